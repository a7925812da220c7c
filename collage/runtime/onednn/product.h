/*!
 * Matrix products as the blob's header has them (collage/backends/library/matmul/layout.py): row-major lhs M x K times rhs K x N,
 * transposed or permuted in memory, in a batch, with a factor and an epilogue.
 *
 * Of a batch each product is a piece. A product of its own is parted by columns, or by rows where there are more of them.
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_PRODUCT_H_
#define COLLAGE_RUNTIME_ONEDNN_PRODUCT_H_

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "narrow_product.h"
#include "operation.h"

namespace collage {
namespace onednn {

class Product : public Operation {
 public:
  Product(const Blob& blob, int64_t threads)
      : m_(Int(blob.header, "m")),
        n_(Int(blob.header, "n")),
        k_(Int(blob.header, "k")),
        batch_(Int(blob.header, "batch")),
        alpha_(static_cast<float>(Real(blob.header, "alpha"))),
        activation_(Activation::Read(Text(blob.header, "activation"), blob.header)),
        nonlinear_(activation_),
        lhs_(blob, "lhs"),
        rhs_(blob, "rhs"),
        output_(blob, "output") {
    if (Has(blob.header, "bias")) bias_ = Constant(blob, Child(blob.header, "bias"));
    if (Has(blob.header, "residual")) residual_ = Constant(blob, Child(blob.header, "residual"));
    for (const ffi::Any& triple : Get(blob.header, "offsets").cast<json::Array>()) offsets_.push_back(Ints(triple));
    int64_t wanted = threads == 1 ? 1 : CeilDiv(kPiecesPerThread * threads, batch_ * static_cast<int64_t>(offsets_.size()));
    Precision precision = Precision::Read(blob.header);
    // Rows of floats lie side by side in parts by rows, for oneDNN's activations.
    bool by_rows = m_ > n_ || (precision.is_float() && !activation_.is_linear());
    for (auto rows : Parts(m_, 1, by_rows ? wanted : 1)) {
      for (auto columns : Parts(n_, kLine, by_rows ? 1 : wanted)) parts_.push_back({rows, columns});
    }
    for (const Part& part : parts_) nonlinear_.Prepare((part.rows.second - part.rows.first) * (part.columns.second - part.columns.first));
    if (!precision.is_float()) PrepareNarrow(precision);
  }

  int64_t tasks() const final { return batch_ * static_cast<int64_t>(offsets_.size() * parts_.size()); }
  int barriers() const final { return 0; }
  void Reserve(Workspace* workspace) const final {
    if (narrow_ != nullptr) workspace->Reserve(0, narrow_->workspace(), tasks());
  }

  void Run(const Tensors& tensors, const Workspace& workspace, Agenda* agenda, int64_t task,
           const std::function<void()>&) const final {
    float* own = narrow_ == nullptr ? nullptr : workspace.own[task].data();
    agenda->Work(0, tasks(), [&](int64_t i) {
      int64_t of_batch = i / parts_.size();
      Multiply(tensors, parts_[i % parts_.size()], of_batch % batch_, offsets_[of_batch / batch_], own);
    });
  }

 private:
  /*! Columns are dealt out by whole cache lines. */
  static constexpr int64_t kLine = 16;

  using Range = std::pair<int64_t, int64_t>;
  struct Part {
    Range rows, columns;
  };

  /*! Floats of a constant, copied: the blob does not outlive the engine's making. Empty where an operand is an argument. */
  static Buffer Constant(const Blob& blob, const json::Object& reference) {
    if (Has(reference, "arg")) return Buffer();
    json::Object entry = Child(Child(blob.header, "tensors"), Text(reference, "tensor").c_str());
    int64_t floats = Int(entry, "bytes") / static_cast<int64_t>(sizeof(float));
    Buffer made(floats);
    std::copy_n(reinterpret_cast<const float*>(blob.data() + Int(entry, "offset")), floats, made.data());
    return made;
  }

  /*! How an operand's matrices lie in memory: `ld` apart along the axis that is not contiguous, `stride` in the batch. */
  struct Matrix {
    Matrix(const Blob& blob, const char* key) {
      json::Object entry = Child(blob.header, key);
      transposed = Flag(entry, "transposed");
      ld = Int(entry, "ld");
      stride = Int(entry, "stride");
      constant = Constant(blob, Child(entry, "at"));
    }
    const float* At(const float* argument, int64_t offset, int64_t row, int64_t column) const {
      const float* data = constant.data() == nullptr ? argument : constant.data();
      return data + offset + (transposed ? column * ld + row : row * ld + column);
    }
    bool is_constant() const { return constant.data() != nullptr; }
    bool transposed;
    int64_t ld, stride;
    Buffer constant;
  };

  /*! Kernels of all parts, and each part of a constant right-hand side once. */
  void PrepareNarrow(const Precision& precision) {
    narrow_ = std::make_unique<NarrowProduct>(precision, k_, alpha_);
    for (const Part& part : parts_) {
      int64_t column = part.columns.first, columns = part.columns.second - column;
      narrow_->Prepare(part.rows.second - part.rows.first, columns, lhs_.transposed, rhs_.transposed, rhs_.is_constant());
      if (!rhs_.is_constant()) continue;
      for (const std::vector<int64_t>& offsets : offsets_) {
        for (int64_t i = 0; i < batch_; ++i) {
          int64_t first = offsets[1] + i * rhs_.stride;
          if (weights_.count({first, column})) continue;
          weights_[{first, column}] = narrow_->MakeWeights({rhs_.At(nullptr, first, 0, column), rhs_.transposed, rhs_.ld}, columns, nullptr);
        }
      }
    }
    rhs_.constant = Buffer();
  }

  void Multiply(const Tensors& tensors, const Part& part, int64_t of_batch, const std::vector<int64_t>& offsets, float* own) const {
    int64_t row = part.rows.first, rows = part.rows.second - row;
    int64_t column = part.columns.first, count = part.columns.second - column;
    int64_t place = offsets[2] + of_batch * output_.stride + row * output_.ld + column;
    float *result = tensors.y + place, *y = result;
    int64_t ld = output_.ld;
    int64_t first = offsets[1] + of_batch * rhs_.stride;
    const float* lhs = lhs_.At(tensors.lhs, offsets[0] + of_batch * lhs_.stride, row, 0);
    if (narrow_ == nullptr) {
      COLLAGE_ONEDNN_CALL(dnnl_sgemm, lhs_.transposed ? 'T' : 'N', rhs_.transposed ? 'T' : 'N', rows, count, k_, alpha_, lhs, lhs_.ld,
                          rhs_.At(tensors.rhs, first, 0, column), rhs_.ld, 0.0f, y, ld);
    } else {
      if (ld != count) y = own;
      ld = count;
      auto weights = weights_.find({first, column});
      Lines right{weights == weights_.end() ? rhs_.At(tensors.rhs, first, 0, column) : nullptr, rhs_.transposed, rhs_.ld};
      narrow_->ReadLhs({lhs, lhs_.transposed, lhs_.ld}, rows, own);
      narrow_->Run(rows, count, right, weights == weights_.end() ? nullptr : &weights->second, y, own);
    }
    const float* bias = bias_.data() == nullptr ? tensors.bias : bias_.data();
    const float* residual = residual_.data() == nullptr ? tensors.residual : residual_.data();
    if (bias != nullptr || residual != nullptr || activation_.kind != dnnl_alg_kind_undef) {
      for (int64_t i = 0; i < rows; ++i) {
        const float* added = residual == nullptr ? nullptr : residual + place + i * output_.ld;
        if (bias == nullptr) {
          Finish(activation_, y + i * ld, added, count, [](int64_t) { return 0.0f; });
        } else {
          Finish(activation_, y + i * ld, added, count, [from = bias + column](int64_t j) { return from[j]; });
        }
      }
    }
    nonlinear_.Run(y, rows * count);
    for (int64_t i = 0; y != result && i < rows; ++i) std::copy_n(y + i * ld, count, result + i * output_.ld);
  }

  int64_t m_, n_, k_, batch_;
  float alpha_;
  Activation activation_;
  Nonlinear nonlinear_;
  Matrix lhs_, rhs_, output_;
  Buffer bias_, residual_;
  std::vector<std::vector<int64_t>> offsets_;
  std::vector<Part> parts_;
  /*! Where operands are not floats: the sums, and by offset and first column what was made of a constant. */
  std::unique_ptr<NarrowProduct> narrow_;
  std::map<std::pair<int64_t, int64_t>, NarrowProduct::Weights> weights_;
};

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_PRODUCT_H_
