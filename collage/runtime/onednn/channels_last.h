/*!
 * Images between planes of floats and rows of channels: oneDNN's kernels for operands of few bits read and write rows of channels,
 * and its own copies take longer than what these kernels compute.
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_CHANNELS_LAST_H_
#define COLLAGE_RUNTIME_ONEDNN_CHANNELS_LAST_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "precision.h"

namespace collage {
namespace onednn {

/*! Sides of the squares of 32-bit words that are transposed. */
constexpr int64_t kSquare = 16;

/*! to[j * to_ld + i] = from[i * from_ld + j] of one square. */
inline void Transpose(const uint32_t* from, int64_t from_ld, uint32_t* to, int64_t to_ld) {
#if defined(__AVX512F__)
  __m512i a[kSquare], b[kSquare];
  for (int i = 0; i < kSquare; ++i) a[i] = _mm512_loadu_si512(from + i * from_ld);
  for (int i = 0; i < kSquare; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < kSquare; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  for (int half = 0; half < kSquare; half += 8) {
    for (int i = half; i < half + 4; ++i) {
      b[i] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88);
      b[i + 4] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xdd);
    }
  }
  for (int i = 0; i < 8; ++i) {
    _mm512_storeu_si512(to + i * to_ld, _mm512_shuffle_i32x4(b[i], b[i + 8], 0x88));
    _mm512_storeu_si512(to + (i + 8) * to_ld, _mm512_shuffle_i32x4(b[i], b[i + 8], 0xdd));
  }
#else
  for (int64_t i = 0; i < kSquare; ++i) {
    for (int64_t j = 0; j < kSquare; ++j) to[j * to_ld + i] = from[i * from_ld + j];
  }
#endif
}

/*! Floats as bfloat16, two of them in a word. */
struct AsBf16 {
  using Element = uint16_t;
  static constexpr int64_t kEach = 2;
  float factor = 1.0f;

  /*! The nearest bfloat16 of value * factor; what is no number stays none. */
  Element operator()(float value) const {
    value *= factor;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return static_cast<Element>(value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : bits >> 16 | 0x40);
  }

  /*! Of sixteen floats, each in a word. */
  void Square(const float* from, uint32_t* words) const {
#if defined(__AVX512F__) && defined(__AVX512BF16__)
    __m512 values = _mm512_mul_ps(_mm512_loadu_ps(from), _mm512_set1_ps(factor));
    _mm512_storeu_si512(words, _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(values)));
#else
    for (int64_t i = 0; i < kSquare; ++i) words[i] = (*this)(from[i]);
#endif
  }
};

/*! Floats as steps of eight bits, four of them in a word. */
struct AsSteps {
  using Element = uint8_t;
  static constexpr int64_t kEach = 4;
  Steps steps;

  /*! The nearest step that there is; the lowest for what is no number. */
  Element operator()(float value) const {
    float low = static_cast<float>(-steps.zero), step = value * steps.factor;
    step = step > low ? step : low;
    return static_cast<Element>(static_cast<int32_t>(std::nearbyint(std::min(step, low + 255.0f))) + steps.zero);
  }

  void Square(const float* from, uint32_t* words) const {
#if defined(__AVX512F__)
    __m512 low = _mm512_set1_ps(static_cast<float>(-steps.zero)), high = _mm512_set1_ps(static_cast<float>(255 - steps.zero));
    __m512 step = _mm512_mul_ps(_mm512_loadu_ps(from), _mm512_set1_ps(steps.factor));
    step = _mm512_min_ps(_mm512_max_ps(step, low), high);
    _mm512_storeu_si512(words, _mm512_add_epi32(_mm512_cvtps_epi32(step), _mm512_set1_epi32(steps.zero)));
#else
    for (int64_t i = 0; i < kSquare; ++i) words[i] = (*this)(from[i]);
#endif
  }
};

/*! Floats that lie side by side, as they are held. */
template <typename As>
inline void ToLine(const float* from, int64_t count, As as, void* to) {
  auto* line = static_cast<typename As::Element*>(to);
  alignas(64) uint32_t words[kSquare];
  int64_t i = 0;
  for (; i + kSquare <= count; i += kSquare) {
    as.Square(from + i, words);
    for (int64_t j = 0; j < kSquare; ++j) line[i + j] = static_cast<typename As::Element>(words[j]);
  }
  for (; i < count; ++i) line[i] = as(from[i]);
}

/*!
 * Some positions of planes that are `plane` apart, as rows of channels that lie side by side. `at(i)` is where the planes have the
 * i-th position; with `even`, they lie side by side there, too.
 */
template <typename As, typename At>
inline void ToRows(const float* planes, int64_t plane, int64_t channels, int64_t positions, bool even, At at, As as, char* rows) {
  constexpr int64_t kBytes = sizeof(typename As::Element), kTile = kSquare * As::kEach;
  for (int64_t p = 0; p < positions; p += kSquare) {
    int64_t count = std::min(kSquare, positions - p);
    for (int64_t c = 0; c < channels; c += kTile) {
      int64_t present = std::min(kTile, channels - c);
      alignas(64) uint32_t words[kSquare * kSquare], some[kSquare * kSquare];
      for (int64_t channel = 0; channel < present; ++channel) {
        const float* from = planes + (c + channel) * plane;
        alignas(64) float gathered[kSquare];
        if (even && count == kSquare) {
          from += at(p);
        } else {
          for (int64_t i = 0; i < kSquare; ++i) gathered[i] = from[at(p + std::min(i, count - 1))];
          from = gathered;
        }
        uint32_t* word = words + channel / As::kEach * kSquare;
        if (channel % As::kEach == 0) {
          as.Square(from, word);
        } else {
          as.Square(from, some);
          for (int64_t i = 0; i < kSquare; ++i) word[i] |= some[i] << (channel % As::kEach * 8 * kBytes);
        }
      }
      char* to = rows + (p * channels + c) * kBytes;
      if (present == kTile && count == kSquare && channels % As::kEach == 0) {
        Transpose(words, kSquare, reinterpret_cast<uint32_t*>(to), channels / As::kEach);
        continue;
      }
      Transpose(words, kSquare, some, kSquare);
      for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * channels * kBytes, some + i * kSquare, present * kBytes);
    }
  }
}

/*! The same, in the type of a precision. */
template <typename At>
inline void ToRows(const Precision& precision, const float* planes, int64_t plane, int64_t channels, int64_t positions, bool even,
                   At at, void* rows) {
  if (precision.is_int8()) {
    ToRows(planes, plane, channels, positions, even, at, AsSteps{precision.steps()}, static_cast<char*>(rows));
  } else {
    ToRows(planes, plane, channels, positions, even, at, AsBf16{}, static_cast<char*>(rows));
  }
}

/*! Rows of `channels` floats, each of one position, into planes that are `plane` apart. */
inline void ToPlanes(const float* rows, int64_t channels, int64_t positions, float* planes, int64_t plane) {
  for (int64_t c = 0; c < channels; c += kSquare) {
    for (int64_t p = 0; p < positions; p += kSquare) {
      int64_t filters = std::min(kSquare, channels - c), count = std::min(kSquare, positions - p);
      const float* from = rows + p * channels + c;
      float* to = planes + c * plane + p;
      if (filters == kSquare && count == kSquare) {
        Transpose(reinterpret_cast<const uint32_t*>(from), channels, reinterpret_cast<uint32_t*>(to), plane);
        continue;
      }
      for (int64_t f = 0; f < filters; ++f) {
        for (int64_t i = 0; i < count; ++i) to[f * plane + i] = from[i * channels + f];
      }
    }
  }
}

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_CHANNELS_LAST_H_
