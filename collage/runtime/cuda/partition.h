/*!
 * What the CUDA engines have in common: the weights of a blob (blob.h) on the device, the stream and workspace that they run
 * with, and NVIDIA's libraries, of which no function is linked: each is looked up by name when it is first called, so that one
 * object file serves machines with and without them.
 *
 * With COLLAGE_EMULATE the same engines run on host memory: tests put stand-ins of NVIDIA's headers first on the include
 * path, and every function is called directly.
 */
#ifndef COLLAGE_RUNTIME_CUDA_PARTITION_H_
#define COLLAGE_RUNTIME_CUDA_PARTITION_H_

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../blob.h"

#define COLLAGE_TEXT_(x) #x
#define COLLAGE_TEXT(x) COLLAGE_TEXT_(x)

#ifdef COLLAGE_EMULATE
#define COLLAGE_FUNCTION(library, name) (&::name)
#else
/*! The function `name` of a shared library, as its header declares it; found on the first call. */
#define COLLAGE_FUNCTION(library, name)                                                            \
  ([]() {                                                                                          \
    static auto found = reinterpret_cast<decltype(&::name)>(::collage::cuda::Lookup(library, #name)); \
    return found;                                                                                  \
  }())
#endif

/*! Call a function of the CUDA runtime; an error is thrown with the function's name and CUDA's own words. */
#define COLLAGE_CUDA(name, ...) \
  ::collage::cuda::Check(COLLAGE_FUNCTION(::collage::cuda::kRuntimeLibrary, name)(__VA_ARGS__), #name)

namespace collage {
namespace cuda {

#if CUDART_VERSION / 1000 == 12
constexpr const char* kRuntimeLibrary = "libcudart.so.12";
#else
constexpr const char* kRuntimeLibrary = "libcudart.so.13";
#endif

#ifdef COLLAGE_EMULATE
constexpr DLDeviceType kDevice = kDLCPU;
#else
constexpr DLDeviceType kDevice = kDLCUDA;
#endif

/*! The address of a function. The library may be loaded already (by its full path, see native.py). */
inline void* Lookup(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) TVM_FFI_THROW(RuntimeError) << library << " cannot be loaded: " << dlerror();
  void* found = dlsym(handle, name);
  if (found == nullptr) TVM_FFI_THROW(RuntimeError) << library << " has no function " << name;
  return found;
}

inline void Check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  TVM_FFI_THROW(RuntimeError) << call << ": " << COLLAGE_FUNCTION(kRuntimeLibrary, cudaGetErrorString)(status);
}

/*! A library's message as one line, and no page: records and reports keep the last line of an error only. */
inline std::string OneLine(std::string text) {
  constexpr size_t kMost = 300;
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

/*! The stream that TVM runs on now; the host emulation has none. */
inline cudaStream_t Stream(int device) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDevice, device)); }

/*! Makes a device the current one, and the one before again at the end. */
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    COLLAGE_CUDA(cudaGetDevice, &before_);
    changed_ = before_ != device;
    if (changed_) COLLAGE_CUDA(cudaSetDevice, device);
  }
  ~DeviceGuard() {
    if (changed_) COLLAGE_FUNCTION(kRuntimeLibrary, cudaSetDevice)(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

/*!
 * A library's handle of a device, made on the first call by `make(&handle)`, one of each type. Never destroyed: at the end
 * of the process the driver may go first.
 */
template <typename Handle, typename Make>
Handle OnePerDevice(int device, Make&& make) {
  static std::mutex mutex;
  static auto* handles = new std::map<int, Handle>();
  std::lock_guard<std::mutex> lock(mutex);
  auto found = handles->find(device);
  if (found != handles->end()) return found->second;
  DeviceGuard guard(device);
  Handle handle = nullptr;
  make(&handle);
  handles->emplace(device, handle);
  return handle;
}

/*! Device memory, freed at the end; zero bytes are no memory. */
class DeviceBuffer {
 public:
  DeviceBuffer(size_t bytes, int device) {
    if (bytes == 0) return;
    DeviceGuard guard(device);
    COLLAGE_CUDA(cudaMalloc, &data_, bytes);
  }
  ~DeviceBuffer() {
    // When the process ends the driver may be gone already: nothing to be done about an error here.
    if (data_ != nullptr) COLLAGE_FUNCTION(kRuntimeLibrary, cudaFree)(data_);
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

using collage::Blob;
using collage::Child;
using collage::Flag;
using collage::Get;
using collage::Has;
using collage::Int;
using collage::Ints;
using collage::ParseObject;
using collage::Real;
using collage::Text;

/*! The tensors of a blob on the device, in one allocation, each aligned to 256 bytes. */
class Constants {
 public:
  Constants(const Blob& blob, int device) : memory_(blob.size(), device) {
    DeviceGuard guard(device);
    if (blob.size() > 0) COLLAGE_CUDA(cudaMemcpy, memory_.data(), blob.data(), blob.size(), cudaMemcpyHostToDevice);
    for (const auto& [name, value] : Child(blob.header, "tensors")) {
      ffi::String key = name.cast<ffi::String>();
      places_[std::string(key.data(), key.size())] =
          static_cast<char*>(memory_.data()) + Int(value.cast<json::Object>(), "offset");
    }
  }
  void* at(const std::string& name) const {
    auto found = places_.find(name);
    if (found == places_.end()) TVM_FFI_THROW(ValueError) << "the blob has no tensor " << name;
    return found->second;
  }

 private:
  DeviceBuffer memory_;
  std::map<std::string, void*> places_;
};

/*! The tensors that a partition's function was called with: inputs, then outputs; on the engine's device and compact. */
class Arguments {
 public:
  Arguments(ffi::PackedArgs args, int64_t count, int device) : args_(args) {
    if (args.size() != count) {
      TVM_FFI_THROW(ValueError) << "the partition takes " << count << " tensors, " << args.size() << " were given";
    }
    for (int i = 0; i < args.size(); ++i) {
      DLDevice where = tensor(i)->device;
      if (where.device_type != kDevice || where.device_id != device) {
        TVM_FFI_THROW(ValueError) << "tensor " << i << " is on device (" << where.device_type << ", " << where.device_id
                                  << "), the partition runs on (" << kDevice << ", " << device << ")";
      }
    }
  }
  void* data(int64_t i) const { return static_cast<char*>(tensor(i)->data) + tensor(i)->byte_offset; }

 private:
  DLTensor* tensor(int64_t i) const { return args_[static_cast<int>(i)].cast<DLTensor*>(); }

  ffi::PackedArgs args_;
};

/*! An operand of the computation: an argument of the function, or a tensor of the blob. */
struct Operand {
  int64_t argument = -1;
  void* constant = nullptr;

  /*! From {"arg": i} or {"tensor": name}. */
  static Operand Read(const json::Object& reference, const Constants& constants) {
    if (Has(reference, "arg")) return {Int(reference, "arg"), nullptr};
    return {-1, constants.at(Text(reference, "tensor"))};
  }
  void* pointer(const Arguments& arguments) const { return argument >= 0 ? arguments.data(argument) : constant; }
};

/*!
 * Scratch memory of a device, shared by all partitions of an engine that run on one stream, where they run one after
 * another. Each stream has its own, and a stream that is being captured is a stream of its own: the graph holds the address,
 * and may be launched beside other work. How much is needed is said when partitions are made; a stream gets it with the
 * first call there that needs any. It is never freed.
 */
class Workspace {
 public:
  static void Reserve(int device, size_t bytes) {
    std::lock_guard<std::mutex> lock(Mutex());
    size_t& most = Devices()[device].bytes;
    most = std::max(most, bytes);
  }

  static void* Pointer(int device, cudaStream_t stream) {
    Place place = PlaceOf(stream);
    std::lock_guard<std::mutex> lock(Mutex());
    Device& all = Devices()[device];
    std::vector<std::unique_ptr<DeviceBuffer>>& buffers = all.places[place].buffers;
    size_t& bytes = all.places[place].bytes;
    if (bytes < all.bytes) {
      Relaxed relaxed;
      buffers.push_back(std::make_unique<DeviceBuffer>(all.bytes, device));
      bytes = all.bytes;
    }
    return buffers.empty() ? nullptr : buffers.back()->data();
  }

 private:
  /*! Whether a stream is captured, and the number of the capture, or else of the stream. */
  using Place = std::pair<bool, unsigned long long>;

  /*! Addresses of streams that are gone come back, numbers do not. A stream that is captured must not be asked for its own. */
  static Place PlaceOf(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long number = 0;
#if CUDART_VERSION / 1000 == 12
    COLLAGE_CUDA(cudaStreamGetCaptureInfo, stream, &status, &number, nullptr, nullptr, nullptr);
#else
    COLLAGE_CUDA(cudaStreamGetCaptureInfo, stream, &status, &number, nullptr, nullptr, nullptr, nullptr);
#endif
    if (status != cudaStreamCaptureStatusNone) return {true, number};
    COLLAGE_CUDA(cudaStreamGetId, stream, &number);
    return {false, number};
  }

  /*! Memory may be allocated by this thread while a stream is captured. */
  class Relaxed {
   public:
    Relaxed() { COLLAGE_CUDA(cudaThreadExchangeStreamCaptureMode, &mode_); }
    ~Relaxed() { COLLAGE_FUNCTION(kRuntimeLibrary, cudaThreadExchangeStreamCaptureMode)(&mode_); }
    Relaxed(const Relaxed&) = delete;
    Relaxed& operator=(const Relaxed&) = delete;

   private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  };
  struct Scratch {
    size_t bytes = 0;
    // An earlier, smaller one may be in a captured graph.
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  };
  struct Device {
    size_t bytes = 0;
    std::map<Place, Scratch> places;
  };
  static std::mutex& Mutex() {
    static std::mutex mutex;
    return mutex;
  }
  // Never destroyed: at the end of the process the driver may go first.
  static std::map<int, Device>& Devices() {
    static auto* devices = new std::map<int, Device>();
    return *devices;
  }
};

}  // namespace cuda
}  // namespace collage

#endif  // COLLAGE_RUNTIME_CUDA_PARTITION_H_
