/*!
 * oneDNN's C API, looked up when it is first called, in a library that is loaded already (`native.py`): compiled models
 * carry this engine, and load where oneDNN is not.
 *
 * Threads of TVM's kernels (../thread_pool.h) call oneDNN for one piece of the work each: oneDNN's own threads, of OpenMP, never
 * start. Threads of two pools that wait actively take the processors from each other (docs/TVM.md).
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_LIBRARY_H_
#define COLLAGE_RUNTIME_ONEDNN_LIBRARY_H_

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>
#include <tvm/ffi/error.h>

#include <memory>

namespace collage {
namespace onednn {

inline void* Lookup(const char* name) {
  constexpr const char* kLibrary = "libdnnl.so.3";
  static void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) TVM_FFI_THROW(RuntimeError) << kLibrary << " cannot be loaded: " << dlerror();
  void* found = dlsym(library, name);
  if (found == nullptr) TVM_FFI_THROW(RuntimeError) << kLibrary << " has no function " << name;
  return found;
}

/*! A function of oneDNN. */
#define COLLAGE_ONEDNN(function)                                                            \
  ([] {                                                                                     \
    static auto found = reinterpret_cast<decltype(&function)>(collage::onednn::Lookup(#function)); \
    return found;                                                                           \
  }())

/*! Calls a function of oneDNN that returns a status. */
#define COLLAGE_ONEDNN_CALL(function, ...) collage::onednn::Check(COLLAGE_ONEDNN(function)(__VA_ARGS__), #function)

inline void Check(dnnl_status_t status, const char* function) {
  if (status == dnnl_success) return;
  TVM_FFI_THROW(RuntimeError) << function << ": " << COLLAGE_ONEDNN(dnnl_status2str)(status);
}

/*! As long as it lives, OpenMP makes no threads for what this thread calls. */
class OneThread {
 public:
  OneThread() : before_(Get()) { Set(1); }
  ~OneThread() { Set(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  // Of the OpenMP that oneDNN is linked with: the look-up goes on in a library's dependencies.
  static int Get() {
    static auto get = reinterpret_cast<int (*)()>(Lookup("omp_get_max_threads"));
    return get();
  }
  static void Set(int threads) {
    static auto set = reinterpret_cast<void (*)(int)>(Lookup("omp_set_num_threads"));
    set(threads);
  }
  int before_;
};

using Descriptor = std::shared_ptr<dnnl_memory_desc>;
using Attributes = std::shared_ptr<dnnl_primitive_attr>;
using PrimitiveDescriptor = std::shared_ptr<dnnl_primitive_desc>;
using Primitive = std::shared_ptr<dnnl_primitive>;

template <typename Object, typename Destroy>
std::shared_ptr<Object> OwnedBy(Object* made, Destroy destroy) {
  return {made, [destroy](Object* object) { destroy(object); }};
}

inline Descriptor Own(dnnl_memory_desc_t made) { return OwnedBy(made, COLLAGE_ONEDNN(dnnl_memory_desc_destroy)); }
inline Attributes Own(dnnl_primitive_attr_t made) { return OwnedBy(made, COLLAGE_ONEDNN(dnnl_primitive_attr_destroy)); }
inline PrimitiveDescriptor Own(dnnl_primitive_desc_t made) { return OwnedBy(made, COLLAGE_ONEDNN(dnnl_primitive_desc_destroy)); }
inline Primitive Own(dnnl_primitive_t made) { return OwnedBy(made, COLLAGE_ONEDNN(dnnl_primitive_destroy)); }

inline dnnl_engine_t Engine() {
  static dnnl_engine_t engine = [] {
    if (COLLAGE_ONEDNN(dnnl_version)()->cpu_runtime != DNNL_RUNTIME_OMP) {
      TVM_FFI_THROW(RuntimeError) << "this oneDNN is not built for OpenMP";
    }
    dnnl_engine_t made;
    COLLAGE_ONEDNN_CALL(dnnl_engine_create, &made, dnnl_cpu, 0);
    return made;
  }();
  return engine;
}

inline dnnl_stream_t Stream() {
  static thread_local dnnl_stream_t stream = [] {
    dnnl_stream_t made;
    COLLAGE_ONEDNN_CALL(dnnl_stream_create, &made, Engine(), dnnl_stream_default_flags);
    return made;
  }();
  return stream;
}

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_LIBRARY_H_
