/*!
 * The engine of `winograd` partitions: reads a blob (collage/runtime/blob.py), and runs the convolution on the threads of
 * TVM's kernels.
 */
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <memory>
#include <string>

#include "../host_engine.h"
#include "convolution.h"

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
    const float* weights = Weight(blob, "w", shape.filters * shape.channels * shape.taps * 9);
    const float* bias = Has(Child(header, "tensors"), "bias") ? Weight(blob, "bias", shape.filters) : nullptr;
    convolution_ = MakeConvolution(shape, weights, bias, threads_);
  }

  void Run(ffi::PackedArgs args) const {
    CheckCount(args, count_);
    // One call at a time per thread of the caller; all partitions share it, so that it stays in the caches.
    static thread_local Workspace own;
    Workspace* workspace = &own;  // the caller's, in the tasks too
    workspace->tasks.resize(std::max<size_t>(workspace->tasks.size(), threads_));
    convolution_->Reserve(workspace);
    Agenda agenda;
    const float* x = Argument(args, x_, read_);
    float* y = Argument(args, count_ - 1, written_);
    Epilogue epilogue = epilogue_;
    if (residual_ >= 0) epilogue.residual = Argument(args, residual_, written_);
    OnPool(std::min(threads_, convolution_->tasks()), convolution_->barriers(), [&](int64_t task, const auto& barrier) {
      convolution_->Run(x, y, epilogue, workspace, &agenda, task, barrier);
    });
  }

 private:
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
