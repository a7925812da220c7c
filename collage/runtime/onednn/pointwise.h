/*!
 * Convolutions of one tap: a matrix product for each image, filters x channels by channels x positions, in place as NCHW
 * lies in memory. oneDNN's own convolutions would be given other layouts first, and copied to and fro.
 *
 * Strides leave positions out; those that stay are gathered first.
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_POINTWISE_H_
#define COLLAGE_RUNTIME_ONEDNN_POINTWISE_H_

#include <algorithm>
#include <cstring>
#include <vector>

#include "operation.h"

namespace collage {
namespace onednn {

/*! Filters that are worth a piece; with fewer, positions are dealt out, by whole cache lines. */
constexpr int64_t kFiltersPerPiece = 64, kPositionsPerLine = 16;

class Pointwise : public Operation {
 public:
  /*! Extents are of images x channels x three axes; `stride` has those three. The bias is null where there is none. */
  Pointwise(const Extents& x, const Extents& y, const Extents& stride, const float* weights, const float* bias,
            Activation activation, int64_t threads)
      : x_(x), y_(y), stride_(stride), positions_(Count(y, 2)), activation_(activation), nonlinear_(activation), weights_(y[1] * x[1]), bias_(y[1]) {
    std::copy_n(weights, y[1] * x[1], weights_.data());
    std::fill_n(bias_.data(), y[1], 0.0f);
    if (bias != nullptr) std::copy_n(bias, y[1], bias_.data());
    int64_t wanted = CeilDiv(threads == 1 ? 1 : kPiecesPerThread * threads, x[0]);
    bool by_filters = !activation.is_linear() || y[1] >= kFiltersPerPiece * threads || positions_ < kPositionsPerLine * wanted;
    auto filters = Parts(y[1], 8, by_filters ? wanted : 1);
    auto positions = Parts(positions_, kPositionsPerLine, by_filters ? 1 : wanted);
    for (int64_t image = 0; image < x[0]; ++image) {
      for (auto f : filters) {
        for (auto p : positions) pieces_.push_back({image, f.first, f.second, p.first, p.second});
      }
    }
    for (const Piece& piece : pieces_) nonlinear_.Prepare((piece.last_filter - piece.filter) * positions_);
  }

  int64_t tasks() const final { return static_cast<int64_t>(pieces_.size()); }
  int barriers() const final { return strided() ? 1 : 0; }
  void Reserve(Workspace* workspace) const final { workspace->Reserve(strided() ? x_[0] * x_[1] * positions_ : 0, 0, 0); }

  void Run(const Tensors& tensors, const Workspace& workspace, Agenda* agenda, int64_t task,
           const std::function<void()>& barrier) const final {
    const float* x = tensors.x;
    if (strided()) {
      float* gathered = workspace.shared.data();
      agenda->Work(0, x_[0] * x_[1], [&](int64_t i) { Gather(x + i * Count(x_, 2), gathered + i * positions_); });
      barrier();
      x = gathered;
    }
    agenda->Work(1, tasks(), [&](int64_t i) { Multiply(pieces_[i], x, tensors); });
  }

 private:
  struct Piece {
    int64_t image, filter, last_filter, position, last_position;
  };

  bool strided() const { return *std::max_element(stride_.begin(), stride_.end()) > 1; }

  /*! Of one channel. */
  void Gather(const float* from, float* to) const {
    for (int64_t d = 0; d < y_[2]; ++d) {
      for (int64_t h = 0; h < y_[3]; ++h) {
        const float* row = from + (d * stride_[0] * x_[3] + h * stride_[1]) * x_[4];
        for (int64_t w = 0; w < y_[4]; ++w) *to++ = row[w * stride_[2]];
      }
    }
  }

  void Multiply(const Piece& piece, const float* x, const Tensors& tensors) const {
    int64_t channels = x_[1], filters = piece.last_filter - piece.filter, count = piece.last_position - piece.position;
    int64_t offset = (piece.image * y_[1] + piece.filter) * positions_ + piece.position;
    float* y = tensors.y + offset;
    COLLAGE_ONEDNN_CALL(dnnl_sgemm, 'N', 'N', filters, count, channels, 1.0f, weights_.data() + piece.filter * channels, channels,
                        x + piece.image * channels * positions_ + piece.position, positions_, 0.0f, y, positions_);
    const float* residual = tensors.residual == nullptr ? nullptr : tensors.residual + offset;
    FinishFilters(activation_, y, residual, bias_.data() + piece.filter, filters, count, positions_);
    nonlinear_.Run(y, filters * positions_);
  }

  Extents x_, y_, stride_;
  int64_t positions_;
  Activation activation_;
  Nonlinear nonlinear_;
  Buffer weights_, bias_;
  std::vector<Piece> pieces_;
};

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_POINTWISE_H_
