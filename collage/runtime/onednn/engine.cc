/*!
 * The engine of `onednn` partitions: reads a blob (collage/runtime/blob.py), and runs it by oneDNN on the threads of TVM's
 * kernels.
 */
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../host_engine.h"
#include "convolution.h"
#include "narrow_pointwise.h"
#include "pointwise.h"
#include "product.h"

namespace collage {
namespace onednn {

/*! With three axes after the first `from` extents. */
Extents Lifted(Extents extents, size_t from) {
  extents.insert(extents.begin() + from, from + 3 - extents.size(), 1);
  return extents;
}

std::unique_ptr<Operation> MakeConvolution(const Blob& blob, int64_t threads) {
  const json::Object& header = blob.header;
  bool transposed = Text(header, "op") == "conv_transpose";
  Shape shape{transposed, Ints(header, "x"), Ints(header, "y"), Ints(header, "kernel"), Ints(header, "stride"),
              Ints(header, "dilation"), Ints(header, "before"), Ints(header, "after"), Int(header, "groups"),
              Precision::Read(header), Has(Child(header, "operands"), "residual")};
  const float* weights = Weight(blob, "w", shape.x[1] * shape.y[1] / shape.groups * Count(shape.kernel));
  const float* bias = Has(Child(header, "tensors"), "bias") ? Weight(blob, "bias", shape.y[1]) : nullptr;
  Activation activation;
  if (Has(header, "activation")) {
    json::Object step = Child(header, "activation");
    activation = Activation::Read(Text(step, "mode"), step);
  }
  if (Has(header, "pointwise")) {
    Extents x = Lifted(shape.x, 2), y = Lifted(shape.y, 2), stride = Lifted(shape.stride, 0);
    if (shape.precision.is_float()) return std::make_unique<Pointwise>(x, y, stride, weights, bias, activation, threads);
    return std::make_unique<NarrowPointwise>(shape.precision, x, y, stride, weights, bias, shape.residual, activation, threads);
  }
  return std::make_unique<Convolution>(shape, weights, bias, activation, threads);
}

/*! A partition: an operation, and where its tensors are among the arguments. */
class Partition {
 public:
  Partition(const ffi::Bytes& bytes, const std::string& options) {
    OneThread one;
    Blob blob(bytes);
    threads_ = Int(ParseObject(options), "threads");
    count_ = Int(blob.header, "arguments");
    json::Object operands = Child(blob.header, "operands");
    for (const auto& [name, place] : Places()) {
      if (!Has(operands, name)) continue;
      json::Object operand = Child(operands, name);
      arguments_.push_back({Int(operand, "arg"), Int(operand, "floats"), place});
    }
    written_ = Int(blob.header, "written");
    if (Text(blob.header, "op") == "matmul") {
      operation_ = std::make_unique<Product>(blob, threads_);
    } else {
      operation_ = MakeConvolution(blob, threads_);
    }
  }

  void Run(ffi::PackedArgs args) const {
    CheckCount(args, count_);
    // One call at a time per thread of the caller; all partitions share it, so that it stays in the caches.
    static thread_local Workspace own;
    Workspace* workspace = &own;  // the caller's, in the tasks too
    operation_->Reserve(workspace);
    Agenda agenda;
    Tensors tensors{};
    for (const Read& read : arguments_) tensors.*(read.place) = Argument(args, read.argument, read.floats);
    tensors.y = Argument(args, count_ - 1, written_);
    OnPool(std::min(threads_, operation_->tasks()), operation_->barriers(), [&](int64_t task, const auto& barrier) {
      OneThread one;
      operation_->Run(tensors, *workspace, &agenda, task, barrier);
    });
  }

 private:
  using Place = const float* Tensors::*;
  struct Read {
    int64_t argument, floats;
    Place place;
  };

  static std::vector<std::pair<const char*, Place>> Places() {
    return {{"x", &Tensors::x},
            {"lhs", &Tensors::lhs},
            {"rhs", &Tensors::rhs},
            {"bias", &Tensors::bias},
            {"residual", &Tensors::residual}};
  }

  int64_t count_ = 0, threads_ = 1, written_ = 0;
  std::vector<Read> arguments_;
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
