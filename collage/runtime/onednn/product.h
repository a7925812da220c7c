/*!
 * Matrix products as the blob's header has them (collage/backends/library/matmul/layout.py): row-major lhs M x K times rhs K x N,
 * transposed or permuted in memory, in a batch, with a factor and an epilogue.
 *
 * Of a batch each product is a piece. A product of its own is parted by columns, or by rows where there are more of them.
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_PRODUCT_H_
#define COLLAGE_RUNTIME_ONEDNN_PRODUCT_H_

#include <algorithm>
#include <utility>
#include <vector>

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
    bool by_rows = !activation_.is_linear() || m_ > n_;  // rows lie side by side, for oneDNN's activations
    for (auto rows : Parts(m_, 1, by_rows ? wanted : 1)) {
      for (auto columns : Parts(n_, kLine, by_rows ? 1 : wanted)) parts_.push_back({rows, columns});
      nonlinear_.Prepare((rows.second - rows.first) * n_);
    }
  }

  int64_t tasks() const final { return batch_ * static_cast<int64_t>(offsets_.size() * parts_.size()); }
  int barriers() const final { return 0; }
  void Reserve(Workspace*) const final {}

  void Run(const Tensors& tensors, const Workspace&, Agenda* agenda, int64_t, const std::function<void()>&) const final {
    agenda->Work(0, tasks(), [&](int64_t i) {
      int64_t of_batch = i / parts_.size();
      Multiply(tensors, parts_[i % parts_.size()], of_batch % batch_, offsets_[of_batch / batch_]);
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
    bool transposed;
    int64_t ld, stride;
    Buffer constant;
  };

  void Multiply(const Tensors& tensors, const Part& part, int64_t of_batch, const std::vector<int64_t>& offsets) const {
    int64_t row = part.rows.first, rows = part.rows.second - row;
    int64_t column = part.columns.first, count = part.columns.second - column;
    int64_t place = offsets[2] + of_batch * output_.stride + row * output_.ld + column;
    float* y = tensors.y + place;
    COLLAGE_ONEDNN_CALL(dnnl_sgemm, lhs_.transposed ? 'T' : 'N', rhs_.transposed ? 'T' : 'N', rows, count, k_, alpha_,
                        lhs_.At(tensors.lhs, offsets[0] + of_batch * lhs_.stride, row, 0), lhs_.ld,
                        rhs_.At(tensors.rhs, offsets[1] + of_batch * rhs_.stride, 0, column), rhs_.ld, 0.0f, y, output_.ld);
    const float* bias = bias_.data() == nullptr ? tensors.bias : bias_.data();
    const float* residual = residual_.data() == nullptr ? tensors.residual : residual_.data();
    if (bias != nullptr || residual != nullptr || activation_.kind != dnnl_alg_kind_undef) {
      for (int64_t i = 0; i < rows; ++i) {
        const float* added = residual == nullptr ? nullptr : residual + place + i * output_.ld;
        if (bias == nullptr) {
          Finish(activation_, y + i * output_.ld, added, count, [](int64_t) { return 0.0f; });
        } else {
          Finish(activation_, y + i * output_.ld, added, count, [from = bias + column](int64_t j) { return from[j]; });
        }
      }
    }
    nonlinear_.Run(y, rows * n_);
  }

  int64_t m_, n_, k_, batch_;
  float alpha_;
  Activation activation_;
  Nonlinear nonlinear_;
  Matrix lhs_, rhs_, output_;
  Buffer bias_, residual_;
  std::vector<std::vector<int64_t>> offsets_;
  std::vector<Part> parts_;
};

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_PRODUCT_H_
