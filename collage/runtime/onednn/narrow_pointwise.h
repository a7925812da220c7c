/*!
 * Convolutions of one tap whose operands are held in less than 32 bits: products of positions x channels by channels x filters.
 * Each piece brings its positions into rows of channels, and its sums back into planes, while they are in the caches.
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_NARROW_POINTWISE_H_
#define COLLAGE_RUNTIME_ONEDNN_NARROW_POINTWISE_H_

#include <algorithm>
#include <map>
#include <vector>

#include "channels_last.h"
#include "narrow_product.h"
#include "operation.h"

namespace collage {
namespace onednn {

class NarrowPointwise : public Operation {
 public:
  /*! As of `Pointwise`. */
  NarrowPointwise(const Precision& precision, const Extents& x, const Extents& y, const Extents& stride, const float* weights,
                  const float* bias, bool residual, Activation activation, int64_t threads)
      : precision_(precision),
        x_(x),
        y_(y),
        activation_(activation),
        nonlinear_(activation),
        even_(*std::max_element(stride.begin(), stride.end()) == 1),
        product_(precision, x[1], 1.0f),
        none_(y[1], 0.0f) {
    for (int64_t d = 0; d < y[2]; ++d) {
      for (int64_t h = 0; h < y[3]; ++h) {
        for (int64_t w = 0; w < y[4]; ++w) places_.push_back((d * stride[0] * x[3] + h * stride[1]) * x[4] + w * stride[2]);
      }
    }
    int64_t positions = Count(y, 2), wanted = CeilDiv(threads == 1 ? 1 : kPiecesPerThread * threads, x[0]);
    // oneDNN's activations take floats that lie side by side: whole planes, where a residual comes first.
    bool whole = residual && !activation.is_linear();
    bool by_filters = whole || (positions < kFewPositions * wanted && y[1] >= kFewFilters * threads);
    int64_t bands = whole ? 1 : std::max(by_filters ? 1 : wanted, positions * y[1] / kMostSums);
    for (auto filters : Parts(y[1], kSquare, by_filters ? wanted : 1)) {
      int64_t count = filters.second - filters.first;
      for (auto band : Parts(positions, kSquare, bands)) {
        int64_t rows = band.second - band.first;
        product_.Prepare(rows, count, false, true, true);
        nonlinear_.Prepare(rows * count);
        for (int64_t image = 0; image < x[0]; ++image) pieces_.push_back({image, filters.first, count, band.first, rows});
      }
      const float* own = bias == nullptr ? nullptr : bias + filters.first;
      weights_[filters.first] = product_.MakeWeights({weights + filters.first * x[1], true, x[1]}, count, own);
    }
  }

  int64_t tasks() const final { return static_cast<int64_t>(pieces_.size()); }
  int barriers() const final { return 0; }
  void Reserve(Workspace* workspace) const final { workspace->Reserve(0, product_.workspace(), tasks()); }

  void Run(const Tensors& tensors, const Workspace& workspace, Agenda* agenda, int64_t task,
           const std::function<void()>&) const final {
    agenda->Work(0, tasks(), [&](int64_t i) { Multiply(pieces_[i], tensors, workspace.own[task].data()); });
  }

 private:
  /*! Positions of an image below which pieces are of filters, and filters that are enough for one; sums that stay in a cache. */
  static constexpr int64_t kFewPositions = 64, kFewFilters = 64, kMostSums = 1 << 16;

  struct Piece {
    int64_t image, filter, filters, position, positions;
  };

  void Multiply(const Piece& piece, const Tensors& tensors, float* sums) const {
    int64_t plane = Count(y_, 2), place = (piece.image * y_[1] + piece.filter) * plane + piece.position;
    auto at = [places = places_.data() + piece.position](int64_t i) { return places[i]; };
    ToRows(precision_, tensors.x + piece.image * Count(x_, 1), Count(x_, 2), x_[1], piece.positions, even_, at, product_.lhs(sums));
    product_.Run(piece.positions, piece.filters, {}, &weights_.at(piece.filter), sums, sums);
    const float* residual = tensors.residual == nullptr ? nullptr : tensors.residual + place;
    float* y = tensors.y + place;
    if (residual == nullptr) nonlinear_.Run(sums, piece.positions * piece.filters);
    ToPlanes(sums, piece.filters, piece.positions, y, plane);
    if (residual == nullptr && (activation_.kind == dnnl_alg_kind_undef || !activation_.is_linear())) return;
    FinishFilters(activation_, y, residual, none_.data(), piece.filters, piece.positions, plane);
    if (residual != nullptr) nonlinear_.Run(y, piece.positions * piece.filters);
  }

  Precision precision_;
  Extents x_, y_;
  Activation activation_;
  Nonlinear nonlinear_;
  bool even_;
  NarrowProduct product_;
  std::vector<int64_t> places_;
  std::vector<float> none_;
  std::vector<Piece> pieces_;
  std::map<int64_t, NarrowProduct::Weights> weights_;
};

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_NARROW_POINTWISE_H_
