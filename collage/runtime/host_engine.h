/*!
 * What engines on the CPU share: aligned memory, arguments and weights as floats, and the threads of TVM's kernels.
 */
#ifndef COLLAGE_RUNTIME_HOST_ENGINE_H_
#define COLLAGE_RUNTIME_HOST_ENGINE_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "blob.h"
#include "parallel.h"

namespace collage {

/*! Memory aligned to a cache line. */
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t floats) { Reserve(floats); }

  /*! At least so many floats; what was there is lost when it grows. */
  void Reserve(int64_t floats) {
    if (floats <= size_) return;
    data_.reset(static_cast<float*>(std::aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64)));
    if (data_ == nullptr) throw std::bad_alloc();
    size_ = floats;
  }
  float* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> data_;
  int64_t size_ = 0;
};

/*!
 * What the tasks of one call still have to do, phase by phase. They take it piece by piece, so that one that wakes late, on
 * a processor that another library's threads have not left yet, does less.
 */
struct Agenda {
  std::atomic<int64_t> next[3] = {};

  /*! Calls `body(i)` for those of `count` pieces of a phase that nobody else has taken. */
  template <typename Body>
  void Work(int phase, int64_t count, Body&& body) {
    for (int64_t i = next[phase].fetch_add(1); i < count; i = next[phase].fetch_add(1)) body(i);
  }
};

/*! The pool of the process (thread_pool.h), which every loaded model and the compiling side register. */
inline const ParallelCalls& Threads() {
  static const auto* calls =
      reinterpret_cast<const ParallelCalls*>(ffi::Function::GetGlobalRequired(kParallelCalls)().cast<int64_t>());
  return *calls;
}

/*! The tasks of one call on the pool. */
template <typename Body>
class PoolCall {
 public:
  PoolCall(int64_t most, int barriers, const Body& body) : most_(most), barriers_(barriers), body_(body) {}

  void Run() {
    // Zero: as many tasks as the pool has threads. A task that fails says so here, not by the code.
    if (Threads().launch(&PoolCall::Task, this, 0) != 0 && error_ == nullptr) {
      TVM_FFI_THROW(RuntimeError) << "a task failed";
    }
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  static int Task(int id, ParallelEnvironment* env, void* closure) {
    return static_cast<PoolCall*>(closure)->Do(id, env);
  }

  int Do(int id, ParallelEnvironment* env) {
    int waited = 0;
    auto barrier = [&]() {
      ++waited;
      if (env->num_task > 1) Threads().barrier(id, env);
    };
    int status = 0;
    try {
      if (id < std::min<int64_t>(env->num_task, most_)) body_(id, barrier);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      error_ = std::current_exception();
      status = -1;
    }
    while (waited < barriers_) barrier();  // the others wait for everyone
    return status;
  }

  int64_t most_;
  int barriers_;
  const Body& body_;
  std::mutex mutex_;
  std::exception_ptr error_;
};

/*!
 * Calls `body(task, barrier)` on threads of the pool, for `most` tasks or as many as there are threads. Each task calls
 * `barrier()`, which waits for all, `barriers` times.
 */
template <typename Body>
void OnPool(int64_t most, int barriers, const Body& body) {
  PoolCall<Body>(most, barriers, body).Run();
}

/*! The floats of a weight in a blob. */
inline const float* Weight(const Blob& blob, const char* name, int64_t elements) {
  json::Object entry = Child(Child(blob.header, "tensors"), name);
  if (Int(entry, "bytes") != elements * static_cast<int64_t>(sizeof(float))) {
    TVM_FFI_THROW(ValueError) << "the tensor " << name << " has " << Int(entry, "bytes") << " bytes, not " << elements
                              << " floats";
  }
  return reinterpret_cast<const float*>(blob.data() + Int(entry, "offset"));
}

/*! The floats of an argument of a partition's function. */
inline float* Argument(ffi::PackedArgs args, int64_t position, int64_t elements) {
  DLTensor* tensor = args[static_cast<int>(position)].cast<DLTensor*>();
  int64_t size = 1;
  for (int i = 0; i < tensor->ndim; ++i) size *= tensor->shape[i];
  if (tensor->device.device_type != kDLCPU || size != elements) {
    TVM_FFI_THROW(ValueError) << "argument " << position << " has " << size << " elements, not " << elements << " on the CPU";
  }
  return reinterpret_cast<float*>(static_cast<char*>(tensor->data) + tensor->byte_offset);
}

inline void CheckCount(ffi::PackedArgs args, int64_t count) {
  if (args.size() == count) return;
  TVM_FFI_THROW(ValueError) << "the partition takes " << count << " tensors, " << args.size() << " were given";
}

}  // namespace collage

#endif  // COLLAGE_RUNTIME_HOST_ENGINE_H_
