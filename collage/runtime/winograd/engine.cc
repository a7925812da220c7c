/*!
 * The engine of `winograd` partitions: reads a blob (collage/runtime/blob.py), and runs the convolution on the threads of
 * TVM's own pool, so that it shares them with TVM's kernels.
 */
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <map>
#include <memory>
#include <string>

#include "../blob.h"
#include "convolution.h"

extern "C" {
/* TVM's pool, as tvm/runtime/c_backend_api.h declares it; the library is in every process that runs compiled models. */
typedef struct {
  void* sync_handle;
  int32_t num_task;
} TVMParallelGroupEnv;
int TVMBackendParallelLaunch(int (*task)(int, TVMParallelGroupEnv*, void*), void* closure, int num_task);
int TVMBackendParallelBarrier(int task_id, TVMParallelGroupEnv* env);
}

namespace collage {
namespace winograd {

/*! A partition: y = act(conv(x) + bias + residual). */
class Partition {
 public:
  Partition(const ffi::Bytes& bytes, const std::string& options) {
    Blob blob(bytes);
    threads_ = Int(ParseObject(options), "threads");
    const json::Object& header = blob.header;
    count_ = Int(header, "arguments");
    json::Object operands = Child(header, "operands");
    x_ = Int(Child(operands, "x"), "arg");
    if (Has(operands, "residual")) residual_ = Int(Child(operands, "residual"), "arg");
    if (Has(header, "slope")) epilogue_.slope = static_cast<float>(Real(header, "slope"));
    if (Has(header, "low")) epilogue_.low = static_cast<float>(Real(header, "low"));
    if (Has(header, "high")) epilogue_.high = static_cast<float>(Real(header, "high"));
    Shape shape{Int(header, "batch"), Int(header, "channels"), Int(header, "filters"), Int(header, "taps"), {}, {}, {}};
    for (int i = 0; i < 3; ++i) {
      shape.image[i] = Ints(header, "image").at(i);
      shape.result[i] = Ints(header, "result").at(i);
      shape.before[i] = Ints(header, "before").at(i);
    }
    if (shape.taps > kMostTaps) TVM_FFI_THROW(ValueError) << "at most " << kMostTaps << " taps along the depth";
    read_ = shape.batch * shape.channels * shape.image[0] * shape.image[1] * shape.image[2];
    written_ = shape.batch * shape.filters * shape.result[0] * shape.result[1] * shape.result[2];
    const float* weights = Tensor(blob, "w", shape.filters * shape.channels * shape.taps * 9);
    const float* bias = Has(Child(header, "tensors"), "bias") ? Tensor(blob, "bias", shape.filters) : nullptr;
    convolution_ = MakeConvolution(shape, weights, bias, threads_);
  }

  void Run(ffi::PackedArgs args) const {
    if (args.size() != count_) {
      TVM_FFI_THROW(ValueError) << "the partition takes " << count_ << " tensors, " << args.size() << " were given";
    }
    // One call at a time per thread of the caller; all partitions share it, so that it stays in the caches.
    static thread_local Workspace workspace;
    workspace.tasks.resize(std::max<size_t>(workspace.tasks.size(), threads_));
    convolution_->Reserve(&workspace);
    Agenda agenda;
    Call call{convolution_.get(), Data(args, x_, read_), Data(args, count_ - 1, written_), epilogue_, &workspace, &agenda, threads_};
    if (residual_ >= 0) call.epilogue.residual = Data(args, residual_, written_);
    if (TVMBackendParallelLaunch(&Partition::Task, &call, 0) != 0) TVM_FFI_THROW(RuntimeError) << "a task failed";
  }

 private:
  struct Call {
    const Convolution* convolution;
    const float* x;
    float* y;
    Epilogue epilogue;
    Workspace* workspace;
    Agenda* agenda;
    int64_t threads;
  };

  static int Task(int id, TVMParallelGroupEnv* env, void* closure) {
    const Call& call = *static_cast<Call*>(closure);
    int64_t count = std::min<int64_t>({env->num_task, call.threads, call.convolution->tasks()});
    auto barrier = [&]() {
      if (env->num_task > 1) TVMBackendParallelBarrier(id, env);
    };
    if (id < count) {
      call.convolution->Run(call.x, call.y, call.epilogue, call.workspace, call.agenda, id, barrier);
    } else {
      for (int i = 0; i < call.convolution->barriers(); ++i) barrier();
    }
    return 0;
  }

  static const float* Tensor(const Blob& blob, const char* name, int64_t elements) {
    json::Object entry = Child(Child(blob.header, "tensors"), name);
    if (Int(entry, "bytes") != elements * static_cast<int64_t>(sizeof(float))) {
      TVM_FFI_THROW(ValueError) << "the tensor " << name << " has " << Int(entry, "bytes") << " bytes, not " << elements << " floats";
    }
    return reinterpret_cast<const float*>(blob.data() + Int(entry, "offset"));
  }

  static float* Data(ffi::PackedArgs args, int64_t position, int64_t elements) {
    DLTensor* tensor = args[static_cast<int>(position)].cast<DLTensor*>();
    int64_t size = 1;
    for (int i = 0; i < tensor->ndim; ++i) size *= tensor->shape[i];
    if (tensor->device.device_type != kDLCPU || size != elements) {
      TVM_FFI_THROW(ValueError) << "argument " << position << " has " << size << " elements, not " << elements << " on the CPU";
    }
    return reinterpret_cast<float*>(static_cast<char*>(tensor->data) + tensor->byte_offset);
  }

  int64_t count_ = 0, x_ = 0, residual_ = -1, threads_ = 1, read_ = 0, written_ = 0;
  Epilogue epilogue_;
  std::unique_ptr<Convolution> convolution_;
};

ffi::Function Create(const ffi::Bytes& blob, const ffi::String& options) {
  auto partition = std::make_shared<Partition>(blob, std::string(options.data(), options.size()));
  return ffi::Function::FromPacked([partition](ffi::PackedArgs args, ffi::Any*) { partition->Run(args); });
}

/*! Several loaded models may carry a copy of this; the first one registers. */
void Register() {
  if (ffi::Function::GetGlobal("collage.winograd.create").has_value()) return;
  tvm::ffi::reflection::GlobalDef().def("collage.winograd.create", Create);
}

}  // namespace winograd
}  // namespace collage

TVM_FFI_STATIC_INIT_BLOCK() { collage::winograd::Register(); }
