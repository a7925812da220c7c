/*!
 * The cuDNN engine: partitions of the cuDNN backend as functions. What is computed is read from the blob
 * (problem.h); how is cuDNN's graph API's matter (graph.h).
 *
 * Plans are timed when the partition's function is made, unless the header brings a "choice" of this library version
 * (choices.py remembers them). After that a call allocates nothing.
 */
#include "graph.h"

#include <tvm/ffi/reflection/registry.h>

namespace collage {
namespace cudnn {

/*! What cuDNN's plans are made for; TVM's memory and that of other frameworks is aligned to 64 bytes and more. */
constexpr uintptr_t kAlignment = 16;

class Partition {
 public:
  Partition(const cuda::Blob& blob, int device)
      : problem_(blob.header), device_(device), constants_(blob, device), computation_(Shared(blob)) {
    for (const json::Object& reference : problem_.references) {
      operands_.push_back(cuda::Operand::Read(reference, constants_));
    }
    cuda::Workspace::Reserve(device, computation_->workspace());
  }

  std::string choice() const { return computation_->choice(); }

  void Run(ffi::PackedArgs args) const {
    cuda::Arguments arguments(args, problem_.arguments, device_);
    std::vector<void*> pointers;
    pointers.reserve(operands_.size());
    for (size_t i = 0; i < operands_.size(); ++i) {
      const View& view = problem_.tensors[i];
      pointers.push_back(static_cast<char*>(operands_[i].pointer(arguments)) + view.offset * view.ItemSize());
      if (reinterpret_cast<uintptr_t>(pointers.back()) % kAlignment != 0) {
        TVM_FFI_THROW(ValueError) << "cuDNN: argument " << operands_[i].argument << " is not aligned to " << kAlignment << " bytes";
      }
    }
    cuda::DeviceGuard guard(device_);
    cudaStream_t stream = cuda::Stream(device_);
    void* workspace = computation_->workspace() == 0 ? nullptr : cuda::Workspace::Pointer(device_, stream);
    computation_->Run(pointers, workspace, stream);
  }

 private:
  /*!
   * Equal headers are equal problems, whatever their weights: they share a computation while one of them lives. The last
   * one that was made lives on: who asks for a choice makes the function next.
   */
  std::shared_ptr<const Computation> Shared(const cuda::Blob& blob) const {
    struct Entry {
      std::weak_ptr<const Computation> computation;
      std::string choice;
    };
    static std::mutex mutex;
    static auto* known = new std::map<std::pair<int, std::string>, Entry>();
    // Never destroyed: at the end of the process the driver may go first.
    static auto* last = new std::shared_ptr<const Computation>();
    std::lock_guard<std::mutex> lock(mutex);
    json::Object asked;
    for (const auto& [key, value] : blob.header) {
      if (key.cast<ffi::String>() != "choice") asked.Set(key, value);
    }
    Entry& entry = (*known)[{device_, Stringified(asked)}];
    std::string given = cuda::Has(blob.header, "choice") ? Stringified(cuda::Child(blob.header, "choice")) : "";
    std::shared_ptr<const Computation> computation = entry.computation.lock();
    if (computation == nullptr || !computation->Is(given)) {
      cuda::DeviceGuard guard(device_);
      computation = Prepare(problem_, given.empty() ? entry.choice : given, device_);
      entry = {computation, computation->choice()};
      *last = computation;
    }
    return computation;
  }

  static std::string Stringified(const json::Object& object) {
    ffi::String text = json::Stringify(object);
    return std::string(text.data(), text.size());
  }

  Problem problem_;
  int device_;
  cuda::Constants constants_;
  std::shared_ptr<const Computation> computation_;
  std::vector<cuda::Operand> operands_;
};

int DeviceOf(const ffi::String& options) {
  json::Object object = cuda::ParseObject(std::string(options.data(), options.size()));
  return cuda::Has(object, "device") ? static_cast<int>(cuda::Int(object, "device")) : 0;
}

/*! The partition's function: input tensors, then the output. */
ffi::Function Create(const ffi::Bytes& bytes, const ffi::String& options) {
  auto partition = std::make_shared<const Partition>(cuda::Blob(bytes), DeviceOf(options));
  return ffi::Function::FromPacked([partition](ffi::PackedArgs args, ffi::Any*) { partition->Run(args); });
}

/*! The plans that a partition runs, as JSON: goes into the header as "choice" to be kept. */
ffi::String ChoiceOf(const ffi::Bytes& bytes, const ffi::String& options) {
  return ffi::String(Partition(cuda::Blob(bytes), DeviceOf(options)).choice());
}

/*! What cuDNN could run a partition by on a described device, as JSON: form -> stages -> names of plans. */
ffi::String PlansOf(const ffi::Bytes& bytes, const ffi::String& device) {
  return ffi::String(PlansFor(Problem(cuda::Blob(bytes).header), std::string(device.data(), device.size())));
}

/*! Several loaded models may carry a copy of this; the first one registers. */
void Register() {
  if (ffi::Function::GetGlobal("collage.cuda.cudnn.create").has_value()) return;
  tvm::ffi::reflection::GlobalDef()
      .def("collage.cuda.cudnn.plans", PlansOf)
      .def("collage.cuda.cudnn.create", Create)
      .def("collage.cuda.cudnn.choice", ChoiceOf)
      .def("collage.cuda.cudnn.version", []() { return Version(); });
}

}  // namespace cudnn
}  // namespace collage

TVM_FFI_STATIC_INIT_BLOCK() { collage::cudnn::Register(); }
