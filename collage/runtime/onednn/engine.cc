/*!
 * The engine of `onednn` partitions: reads a blob (collage/runtime/blob.py), and runs it by oneDNN on the threads of TVM's
 * own pool.
 */
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <memory>
#include <string>

#include "../host_engine.h"
#include "convolution.h"
#include "pointwise.h"

namespace collage {
namespace onednn {

/*! A partition: y = act(op(x) + bias + residual). */
class Partition {
 public:
  Partition(const ffi::Bytes& bytes, const std::string& options) {
    OneThread one;
    Blob blob(bytes);
    threads_ = Int(ParseObject(options), "threads");
    const json::Object& header = blob.header;
    json::Object operands = Child(header, "operands");
    count_ = Int(header, "arguments");
    x_ = Int(Child(operands, "x"), "arg");
    if (Has(operands, "residual")) residual_ = Int(Child(operands, "residual"), "arg");
    Activation activation = Has(header, "activation") ? Activation::Read(Child(header, "activation")) : Activation{};
    Shape shape{Text(header, "op") == "conv_transpose", Ints(header, "x"), Ints(header, "y"), Ints(header, "kernel"),
                Ints(header, "stride"), Ints(header, "dilation"), Ints(header, "before"), Ints(header, "after"),
                Int(header, "groups")};
    read_ = Count(shape.x);
    written_ = Count(shape.y);
    const float* weights = Weight(blob, "w", shape.x[1] * shape.y[1] / shape.groups * Count(shape.kernel));
    const float* bias = Has(Child(header, "tensors"), "bias") ? Weight(blob, "bias", shape.y[1]) : nullptr;
    if (Has(header, "pointwise")) {
      operation_ = std::make_unique<Pointwise>(Lifted(shape.x, 2), Lifted(shape.y, 2), Lifted(shape.stride, 0), weights, bias, activation, threads_);
    } else {
      operation_ = std::make_unique<Convolution>(shape, weights, bias, residual_ >= 0, activation, threads_);
    }
  }

  void Run(ffi::PackedArgs args) const {
    CheckCount(args, count_);
    // One call at a time per thread of the caller; all partitions share it, so that it stays in the caches.
    static thread_local Workspace own;
    Workspace* workspace = &own;  // the caller's, in the tasks too
    operation_->Reserve(workspace);
    Agenda agenda;
    Tensors tensors{Argument(args, x_, read_), residual_ < 0 ? nullptr : Argument(args, residual_, written_),
                    Argument(args, count_ - 1, written_)};
    OnPool(std::min(threads_, operation_->tasks()), operation_->barriers(), [&](int64_t task, const auto& barrier) {
      OneThread one;
      operation_->Run(tensors, *workspace, &agenda, task, barrier);
    });
  }

 private:
  /*! With three axes after the first `from` extents. */
  static Extents Lifted(Extents extents, size_t from) {
    extents.insert(extents.begin() + from, from + 3 - extents.size(), 1);
    return extents;
  }

  int64_t count_ = 0, x_ = 0, residual_ = -1, threads_ = 1, read_ = 0, written_ = 0;
  std::unique_ptr<Operation> operation_;
};

ffi::Function Create(const ffi::Bytes& blob, const ffi::String& options) {
  auto partition = std::make_shared<Partition>(blob, std::string(options.data(), options.size()));
  return ffi::Function::FromPacked([partition](ffi::PackedArgs args, ffi::Any*) { partition->Run(args); });
}

/*! Several loaded models may carry a copy of this; the first one registers. */
void Register() {
  if (ffi::Function::GetGlobal("collage.onednn.create").has_value()) return;
  tvm::ffi::reflection::GlobalDef().def("collage.onednn.create", Create);
}

}  // namespace onednn
}  // namespace collage

TVM_FFI_STATIC_INIT_BLOCK() { collage::onednn::Register(); }
