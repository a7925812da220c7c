/*!
 * The products between the transforms: rows of transformed data times a panel of transformed weights. A block of rows
 * times two vectors of filters stays in registers while channels, and the filter's taps along the depth, run through
 * (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008).
 */
#ifndef COLLAGE_RUNTIME_WINOGRAD_PRODUCTS_H_
#define COLLAGE_RUNTIME_WINOGRAD_PRODUCTS_H_

#include <array>
#include <cstdint>
#include <utility>

#include "lanes.h"

namespace collage {
namespace winograd {

/*! Filters per panel of weights. */
constexpr int kPanel = 2 * kLanes;
/*! Most taps along the depth. */
constexpr int kMostTaps = 8;

/*!
 * R rows of sums. `data[t]` are the rows that tap t reads, `channels` floats each, one after another; null where it
 * lies in the padding. `weights` is a panel: tap x channel x filter. Rows of `sums` are `stride` floats apart.
 */
template <int R>
void BlockProduct(const float* const* data, const float* weights, int taps, int channels, float* sums, int64_t stride) {
  Vec sum[R][2] = {};
  for (int t = 0; t < taps; ++t) {
    if (data[t] == nullptr) continue;
    const float* x = data[t];
    const float* w = weights + int64_t{t} * channels * kPanel;
    for (int c = 0; c < channels; ++c, w += kPanel) {
      Vec first = *reinterpret_cast<const Vec*>(w), second = *reinterpret_cast<const Vec*>(w + kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        Vec value = Vec{} + x[int64_t{r} * channels + c];
        sum[r][0] += value * first;
        sum[r][1] += value * second;
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    *reinterpret_cast<Vec*>(sums + r * stride) = sum[r][0];
    *reinterpret_cast<Vec*>(sums + r * stride + kLanes) = sum[r][1];
  }
}

using BlockFunction = void (*)(const float* const*, const float*, int, int, float*, int64_t);

template <size_t... I>
constexpr std::array<BlockFunction, kRows> BlockFunctions(std::index_sequence<I...>) {
  return {BlockProduct<static_cast<int>(I) + 1>...};
}

/*! Any number of rows, in blocks of nearly equal size; the arguments are those of `BlockProduct`. */
inline void PanelProduct(const float* const* data, const float* weights, int taps, int channels, int64_t rows, float* sums,
                         int64_t stride) {
  static constexpr auto kBlocks = BlockFunctions(std::make_index_sequence<kRows>());
  int64_t blocks = (rows + kRows - 1) / kRows;
  for (int64_t i = 0; i < blocks; ++i) {
    int64_t begin = rows * i / blocks, end = rows * (i + 1) / blocks;
    const float* from[kMostTaps];
    for (int t = 0; t < taps; ++t) from[t] = data[t] == nullptr ? nullptr : data[t] + begin * channels;
    kBlocks[end - begin - 1](from, weights, taps, channels, sums + begin * stride, stride);
  }
}

}  // namespace winograd
}  // namespace collage

#endif  // COLLAGE_RUNTIME_WINOGRAD_PRODUCTS_H_
