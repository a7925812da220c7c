/*! y = x, plus a constant, negative numbers made zero: each where the blob says so. */
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "host_engine.h"

namespace acme {
namespace ffi = tvm::ffi;
using namespace collage;

class Partition {
 public:
  explicit Partition(const ffi::Bytes& bytes) {
    Blob blob(bytes);
    count_ = Int(blob.header, "arguments");
    x_ = Int(Child(blob.header, "x"), "arg");
    elements_ = Int(blob.header, "elements");
    relu_ = Flag(blob.header, "relu");
    if (Has(blob.header, "addend")) {
      const float* addend = Weight(blob, Text(Child(blob.header, "addend"), "tensor").c_str(), elements_);
      addend_.assign(addend, addend + elements_);
    }
  }

  void Run(ffi::PackedArgs args) const {
    CheckCount(args, count_);
    const float* x = Argument(args, x_, elements_);
    float* y = Argument(args, count_ - 1, elements_);
    constexpr int64_t kPiece = 4096;
    Agenda agenda;
    OnPool((elements_ + kPiece - 1) / kPiece, 0, [&](int64_t, const auto&) {
      agenda.Work(0, (elements_ + kPiece - 1) / kPiece, [&](int64_t piece) {
        for (int64_t i = piece * kPiece; i < std::min(elements_, (piece + 1) * kPiece); ++i) {
          float value = x[i] + (addend_.empty() ? 0.0f : addend_[i]);
          y[i] = relu_ ? std::max(value, 0.0f) : value;
        }
      });
    });
  }

 private:
  int64_t count_ = 0, x_ = 0, elements_ = 0;
  bool relu_ = false;
  std::vector<float> addend_;
};

ffi::Function Create(const ffi::Bytes& blob, const ffi::String&) {
  auto partition = std::make_shared<Partition>(blob);
  return ffi::Function::FromPacked([partition](ffi::PackedArgs args, ffi::Any*) { partition->Run(args); });
}

}  // namespace acme

TVM_FFI_STATIC_INIT_BLOCK() {
  // Several loaded models may carry a copy; the first one registers.
  if (tvm::ffi::Function::GetGlobal("collage.acme-relu.create").has_value()) return;
  tvm::ffi::reflection::GlobalDef().def("collage.acme-relu.create", acme::Create);
}
