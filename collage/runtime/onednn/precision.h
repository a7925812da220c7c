/*!
 * In what oneDNN holds the operands of convolutions and products. Sums, and what partitions read and give, are floats.
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_PRECISION_H_
#define COLLAGE_RUNTIME_ONEDNN_PRECISION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "primitive.h"

namespace collage {
namespace onednn {

/*! In eight bits a datum is scale * (step - zero), of steps from 0 to 255, and weights are scales of filters times -127 to 127. */
struct Precision {
  dnnl_data_type_t data = dnnl_f32, weights = dnnl_f32;
  float scale = 1.0f;
  int32_t zero = 0;

  /*! As the header has it: floats where it says nothing. */
  static Precision Read(const json::Object& header) {
    if (!Has(header, "precision")) return {};
    if (Text(header, "precision") == "bf16") return {dnnl_bf16, dnnl_bf16};
    if (Text(header, "precision") != "int8") TVM_FFI_THROW(ValueError) << "no precision is called " << Text(header, "precision");
    return {dnnl_u8, dnnl_s8, static_cast<float>(Real(header, "scale")), static_cast<int32_t>(Int(header, "zero"))};
  }

  bool is_float() const { return data == dnnl_f32; }
  bool is_int8() const { return data == dnnl_u8; }
  Steps steps() const { return {1.0f / scale, zero}; }
};

/*! Weights in eight bits, as they lie, and the scale of each filter. */
struct Int8Weights {
  std::vector<int8_t> steps;
  std::vector<float> scales;

  Int8Weights() = default;

  /*! `filter(i)` is that of the i-th weight. What is not finite is zero. */
  template <typename Filter>
  Int8Weights(const float* weights, int64_t count, int64_t filters, Filter filter) : steps(count), scales(filters, 0.0f) {
    constexpr float kMost = 127.0f, kLeast = 1e-15f;
    constexpr int64_t kMostTerms = std::numeric_limits<int32_t>::max() / (255 * 127);
    if (count / filters > kMostTerms) TVM_FFI_THROW(RuntimeError) << "sums of more than " << kMostTerms << " terms may not be of 32 bits";
    auto finite = [&](int64_t i) { return std::isfinite(weights[i]) ? weights[i] : 0.0f; };
    for (int64_t i = 0; i < count; ++i) scales[filter(i)] = std::max(scales[filter(i)], std::abs(finite(i)));
    for (float& scale : scales) scale = std::max(scale / kMost, kLeast);
    for (int64_t i = 0; i < count; ++i) {
      steps[i] = static_cast<int8_t>(std::clamp(std::nearbyint(finite(i) / scales[filter(i)]), -kMost, kMost));
    }
  }
};

/*! Refuses what oneDNN has no fast kernels for. */
inline void RefuseReference(dnnl_primitive_desc_t descriptor) {
  const char* name = nullptr;
  COLLAGE_ONEDNN_CALL(dnnl_primitive_desc_query, descriptor, dnnl_query_impl_info_str, 0, &name);
  if (std::string(name).find("ref") != std::string::npos) {
    TVM_FFI_THROW(RuntimeError) << "oneDNN has its reference implementation only (" << name << ")";
  }
}

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_PRECISION_H_
