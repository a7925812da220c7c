/*!
 * Vectors of floats, as wide as the processor's registers: loads and stores of whole and partial vectors, and the
 * transposition of a square of them. GCC's and Clang's vector extensions do the rest.
 */
#ifndef COLLAGE_RUNTIME_WINOGRAD_LANES_H_
#define COLLAGE_RUNTIME_WINOGRAD_LANES_H_

#include <cstdint>
#include <cstring>
#include <utility>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace collage {
namespace winograd {

/*! Floats per vector, and how many rows of a product are in registers at a time: two vectors each, two for weights. */
#if defined(__AVX512F__)
constexpr int kLanes = 16, kRows = 14;
#elif defined(__AVX__)
constexpr int kLanes = 8, kRows = 6;
#elif defined(__aarch64__)
constexpr int kLanes = 4, kRows = 12;
#else
constexpr int kLanes = 4, kRows = 6;
#endif

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef float UnalignedVec __attribute__((vector_size(4 * kLanes), aligned(4)));

inline Vec Load(const float* from) { return *reinterpret_cast<const UnalignedVec*>(from); }
inline void Store(float* to, Vec value) { *reinterpret_cast<UnalignedVec*>(to) = value; }

/*! The first `count` lanes; the others are zero, and their memory is not touched. */
inline Vec LoadFirst(const float* from, int count) {
#ifdef __AVX512F__
  return (Vec)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from);
#else
  Vec value{};
  std::memcpy(&value, from, count * sizeof(float));
  return value;
#endif
}

inline void StoreFirst(float* to, Vec value, int count) {
#ifdef __AVX512F__
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1), (__m512)value);
#else
  std::memcpy(to, &value, count * sizeof(float));
#endif
}

/*! The lanes of a and b, counted through, that are named. */
template <int... Lane>
inline Vec Pick(Vec a, Vec b) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, Lane...);
#else
  typedef int32_t Lanes __attribute__((vector_size(4 * kLanes)));
  return __builtin_shuffle(a, b, Lanes{Lane...});
#endif
}

/*! Exchanges the off-diagonal halves of every pair of rows that are `Step` apart. */
template <int Step, int... Lane>
inline void ExchangeHalves(Vec* rows, std::integer_sequence<int, Lane...>) {
  for (int i = 0; i < kLanes; ++i) {
    if (i & Step) continue;
    Vec a = rows[i], b = rows[i + Step];
    rows[i] = Pick<((Lane & Step) ? kLanes + Lane - Step : Lane)...>(a, b);
    rows[i + Step] = Pick<((Lane & Step) ? kLanes + Lane : Lane + Step)...>(a, b);
  }
}

/*! Transposes kLanes x kLanes floats: halves of 1, 2, 4, ... lanes are exchanged. */
template <int Step = 1>
inline void Transpose(Vec* rows) {
  ExchangeHalves<Step>(rows, std::make_integer_sequence<int, kLanes>());
  if constexpr (2 * Step < kLanes) Transpose<2 * Step>(rows);
}

}  // namespace winograd
}  // namespace collage

#endif  // COLLAGE_RUNTIME_WINOGRAD_LANES_H_
