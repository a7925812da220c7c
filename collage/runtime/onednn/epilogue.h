/*!
 * What is done to sums that lie in rows: bias, residual, activation.
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_EPILOGUE_H_
#define COLLAGE_RUNTIME_ONEDNN_EPILOGUE_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "primitive.h"

namespace collage {
namespace onednn {

/*! One step after the sums, as oneDNN names it; none without a kind. */
struct Activation {
  dnnl_alg_kind_t kind = dnnl_alg_kind_undef;
  float alpha = 0.0f, beta = 0.0f;

  /*! By its name, with the parameters that `step` has. */
  static Activation Read(const std::string& mode, const json::Object& step) {
    if (mode == "none") return {};
    if (mode == "relu") return {dnnl_eltwise_relu};
    if (mode == "leaky_relu") return {dnnl_eltwise_relu, static_cast<float>(Real(step, "slope"))};
    if (mode == "clip") return {dnnl_eltwise_clip, static_cast<float>(Real(step, "low")), static_cast<float>(Real(step, "high"))};
    if (mode == "sigmoid") return {dnnl_eltwise_logistic};
    if (mode == "tanh") return {dnnl_eltwise_tanh};
    if (mode == "silu") return {dnnl_eltwise_swish, 1.0f};
    if (mode == "gelu") return {dnnl_eltwise_gelu_erf};
    if (mode == "gelu_tanh") return {dnnl_eltwise_gelu_tanh};
    TVM_FFI_THROW(ValueError) << "no activation is called " << mode;
  }

  /*! Whether it is a slope below zero, and bounds. */
  bool is_linear() const { return kind == dnnl_alg_kind_undef || kind == dnnl_eltwise_relu || kind == dnnl_eltwise_clip; }
  float slope() const { return kind == dnnl_eltwise_relu ? alpha : 1.0f; }
  float low() const { return kind == dnnl_eltwise_clip ? alpha : -std::numeric_limits<float>::infinity(); }
  float high() const { return kind == dnnl_eltwise_clip ? beta : std::numeric_limits<float>::infinity(); }
};

/*!
 * y = bound(slope(y + bias + residual)) of one row; `bias(i)` is that of place i, a null residual is none. Activations of
 * other kinds change nothing here.
 */
template <typename Bias>
inline void Finish(const Activation& activation, float* y, const float* residual, int64_t count, Bias bias) {
  float slope = activation.slope(), low = activation.low(), high = activation.high();
  for (int64_t i = 0; i < count; ++i) {
    float value = y[i] + bias(i) + (residual == nullptr ? 0.0f : residual[i]);
    value = value < 0.0f ? value * slope : value;
    value = value < low ? low : value;
    y[i] = value > high ? high : value;
  }
}

/*! oneDNN's elementwise operation on floats that lie side by side, in place. */
class Elementwise {
 public:
  Elementwise() = default;
  Elementwise(const Activation& activation, int64_t floats) : tensor_(Strided({floats}, {1})) {
    dnnl_primitive_desc_t made;
    COLLAGE_ONEDNN_CALL(dnnl_eltwise_forward_primitive_desc_create, &made, Engine(), dnnl_forward_inference, activation.kind,
                        tensor_.get(), tensor_.get(), activation.alpha, activation.beta, nullptr);
    primitive_ = Make(Own(made));
  }
  void Run(float* data) const {
    Memory memory(tensor_, data);
    Execute(primitive_, {{DNNL_ARG_SRC, memory.get()}, {DNNL_ARG_DST, memory.get()}});
  }

 private:
  Descriptor tensor_;
  Primitive primitive_;
};

/*! An activation that is not linear, of as many floats as are made known before; nothing for another one. */
class Nonlinear {
 public:
  explicit Nonlinear(const Activation& activation) : activation_(activation) {}
  void Prepare(int64_t floats) {
    if (!activation_.is_linear() && !made_.count(floats)) made_[floats] = Elementwise(activation_, floats);
  }
  void Run(float* data, int64_t floats) const {
    if (!activation_.is_linear()) made_.at(floats).Run(data);
  }

 private:
  Activation activation_;
  std::map<int64_t, Elementwise> made_;
};

/*! `Finish` for `count` places of each of some filters, whose rows are `plane` apart; a null residual is none. */
inline void FinishFilters(const Activation& activation, float* y, const float* residual, const float* bias, int64_t filters,
                          int64_t count, int64_t plane) {
  for (int64_t f = 0; f < filters; ++f) {
    const float* added = residual == nullptr ? nullptr : residual + f * plane;
    Finish(activation, y + f * plane, added, count, [own = bias[f]](int64_t) { return own; });
  }
}

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_EPILOGUE_H_
