/*!
 * A kernel library (collage/runtime/cuda/cutlass/kernels/kernel.h) on host memory, by plain loops in double precision.
 *
 * As a kernel that divides k does, it wants a workspace and leaves it dirty; ROUNDS makes it as slow as a bad tile, and with
 * none it refuses when it is launched.
 */
#pragma once

#include <cmath>
#include <cstring>

#include "activation.h"
#include "library.h"

namespace collage_cutlass {

/*! Half precision with `Exponent` bits of exponent, read and written (to nearest) by its bits. */
template <int Exponent>
struct Half {
  static constexpr int kMantissa = 15 - Exponent, kBias = (1 << (Exponent - 1)) - 1;
  uint16_t bits;

  explicit operator float() const {
    int const exponent = bits >> kMantissa & ((1 << Exponent) - 1), mantissa = bits & ((1 << kMantissa) - 1);
    float const unit = std::ldexp(1.0f, (exponent == 0 ? 1 : exponent) - kBias - kMantissa);
    float const magnitude = unit * static_cast<float>(mantissa + (exponent == 0 ? 0 : 1 << kMantissa));
    return bits >> 15 ? -magnitude : magnitude;
  }
  static Half Of(float value) {
    int exponent;
    float const magnitude = std::fabs(value);
    std::frexp(magnitude, &exponent);
    exponent = magnitude == 0 || exponent - 1 < 1 - kBias ? 1 - kBias : exponent - 1;
    int const steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, kMantissa - exponent)));
    uint16_t const found = static_cast<uint16_t>(steps + ((exponent + kBias - 1) << kMantissa));
    return {static_cast<uint16_t>(found | (std::signbit(value) ? 0x8000 : 0))};
  }
};
struct Float {
  float value;
  explicit operator float() const { return value; }
  static Float Of(float value) { return {value}; }
};

template <class Element, bool ColumnMajor, bool Convolution, bool StreamK>
class HostKernel {
 public:
  explicit HostKernel(Problem const& problem) : p_(problem) {}
  bool supported() const { return !StreamK || p_.batch == 1; }
  int64_t workspace() const { return StreamK ? 64 : 0; }

  char const* run(Operands const& operands, void* workspace, void*) {
    if (ROUNDS == 0) return "misaligned operand";
    if (StreamK && workspace == nullptr) return "no workspace";
    if (StreamK) std::memset(workspace, 0x55, 64);
    for (int round = 0; round < ROUNDS; ++round) {
      for (int64_t l = 0; l < p_.batch; ++l) Matrix(operands, l);
    }
    return nullptr;
  }

 private:
  static double At(void const* data, int64_t index) {
    return static_cast<double>(static_cast<float>(static_cast<Element const*>(data)[index]));
  }

  void Matrix(Operands const& o, int64_t l) const {
    for (int64_t i = 0; i < p_.m; ++i) {
      for (int64_t j = 0; j < p_.n; ++j) {
        double sum = Convolution ? Window(o, i, j) : Dot(o, l, i, j);
        if (o.column_bias != nullptr) sum += At(o.column_bias, j);
        if (o.row_bias != nullptr) sum += At(o.row_bias, i);
        float value = activated(p_.pre, static_cast<float>(sum));
        if (o.residual != nullptr) value += static_cast<float>(At(o.residual, l * p_.batch_r + i * p_.ldr + j));
        static_cast<Element*>(o.d)[l * p_.batch_d + i * p_.ldd + j] = Element::Of(activated(p_.post, value));
      }
    }
  }

  double Dot(Operands const& o, int64_t l, int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t k = 0; k < p_.k; ++k) {
      int64_t const b = ColumnMajor ? j * p_.ldb + k : k * p_.ldb + j;
      sum += At(o.a, l * p_.batch_a + i * p_.lda + k) * At(o.b, l * p_.batch_b + b);
    }
    return sum;
  }

  double Window(Operands const& o, int64_t pixel, int64_t filter) const {
    int64_t const column = pixel % p_.out_width, row = pixel / p_.out_width % p_.out_height;
    int64_t const image = pixel / (p_.out_width * p_.out_height);
    double sum = 0;
    for (int64_t r = 0; r < p_.filter_height; ++r) {
      for (int64_t s = 0; s < p_.filter_width; ++s) {
        int64_t const y = row * p_.stride_height - p_.pad_height + r * p_.dilation_height;
        int64_t const x = column * p_.stride_width - p_.pad_width + s * p_.dilation_width;
        if (y < 0 || y >= p_.height || x < 0 || x >= p_.width) continue;
        int64_t const from = ((image * p_.height + y) * p_.width + x) * p_.channels;
        int64_t const by = ((filter * p_.filter_height + r) * p_.filter_width + s) * p_.channels;
        for (int64_t c = 0; c < p_.channels; ++c) sum += At(o.a, from + c) * At(o.b, by + c);
      }
    }
    return sum;
  }

  Problem p_;
};

}  // namespace collage_cutlass
