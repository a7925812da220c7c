/*!
 * The forms in which cuDNN can compute a problem: as one graph, as one with its sums in the order of cuDNN's own fused
 * kernels, as a convolution and an epilogue with memory between them, by a routine. Which of them there are kernels for
 * depends on layout, dtype and device; cuDNN's heuristics know. Which of those is the fastest, only the device.
 */
#ifndef COLLAGE_RUNTIME_CUDA_CUDNN_FORMS_H_
#define COLLAGE_RUNTIME_CUDA_CUDNN_FORMS_H_

#include "stage.h"

#include <algorithm>
#include <numeric>

namespace collage {
namespace cudnn {

/*! Stages one after another; they are made when the form is tried. */
struct Form {
  std::string name;
  std::vector<std::function<std::unique_ptr<Stage>()>> stages;
  /*! Bytes between the stages. */
  size_t between = 0;
};

/*! The same memory with its spatial axes as one. */
inline View Flat(const View& view) {
  View flat = view;
  flat.dims = {view.dims[0], view.dims[1], std::accumulate(view.dims.begin() + 2, view.dims.end(), int64_t{1}, std::multiplies<>())};
  flat.strides = {view.strides[0], view.strides[1], view.strides.back()};
  return flat;
}

/*! Describes one problem's graphs. It outlives the stages' making, not their runs. */
class Writer {
 public:
  Writer(const Problem& problem, const Target& target) : p_(problem), target_(target) {}

  std::vector<Form> Forms() const {
    if (p_.op == "conv" || p_.op == "conv_transpose") return Convolutions();
    if (p_.op == "pool") return Pools();
    if (p_.op == "softmax") return {{"routine", {[this] { return Softmax(); }}}};
    if (p_.op == "layer_norm" || p_.op == "rms_norm") return {OneGraph([this](Graph* g) { Norm(g); })};
    if (p_.op == "attention") return {OneGraph([this](Graph* g) { Attention(g); })};
    TVM_FFI_THROW(ValueError) << "the cuDNN engine has no operation " << p_.op;
  }

 private:
  using Steps = std::vector<Step>;

  std::function<std::unique_ptr<Stage>()> Of(GraphStage::Describe describe) const {
    return [this, describe] { return std::make_unique<GraphStage>(target_, describe, Without()); };
  }

  /*! A stage of elementwise operations: whatever its engines are noted for, there are no products to round. */
  std::function<std::unique_ptr<Stage>()> OfSteps(GraphStage::Describe describe) const {
    std::vector<fe::NumericalNote_t> none;
    return [this, describe, none] { return std::make_unique<GraphStage>(target_, describe, none); };
  }

  Form OneGraph(GraphStage::Describe describe) const { return {"fused", {Of(std::move(describe))}}; }

  /*! Products of float32 are exact unless rounding was asked for, and every sum is in float32. */
  std::vector<fe::NumericalNote_t> Without() const {
    if (p_.op != "conv" && p_.op != "conv_transpose") return {};
    std::vector<fe::NumericalNote_t> notes{fe::NumericalNote_t::DOWN_CONVERT_INPUTS,
                                           fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION};
    if (p_.result().dtype == "float32" && p_.precision == "float32") notes.push_back(fe::NumericalNote_t::TENSOR_CORE);
    return notes;
  }

  std::vector<Form> Convolutions() const {
    std::vector<Form> forms;
    Steps reordered = p_.epilogue;
    if (reordered.size() > 1 && reordered[0].mode == "add" && reordered[1].mode == "add") {
      // cuDNN's compiled kernels add a residual first, then the bias.
      if (p_.Has("bias") && reordered[0].operand == p_.Number("bias")) std::swap(reordered[0], reordered[1]);
      forms.push_back({"residual first", {Of([this, reordered](Graph* g) { Convolve(g, reordered); })}});
    }
    forms.push_back({"fused", {Of([this](Graph* g) { Convolve(g, p_.epilogue); })}});
    if (!p_.epilogue.empty()) {
      auto alone = Of([this](Graph* g) { Output(Product(g), p_.result(), kBetween); });
      auto rest = OfSteps([this](Graph* g) {
        View view = Elementwise(p_.result());
        Tensor value = Epilogue(g, Input(g, view, kBetween), p_.epilogue, [this](const View& v) { return Elementwise(v); });
        Output(value, view, Number(p_.tensors.size() - 1));
      });
      forms.push_back({"apart", {alone, rest}, p_.result().Bytes()});
    }
    return forms;
  }

  void Convolve(Graph* g, const Steps& steps) const {
    Finish(Epilogue(g, Product(g), steps, [](const View& view) { return view; }));
  }

  /*!
   * A tensor as graphs of elementwise operations alone take it: planes of channels in three dimensions. In four or five
   * cuDNN has engines only where the channels come last (github.com/NVIDIA/cudnn-frontend/issues/171).
   */
  View Elementwise(const View& view) const {
    bool planes = p_.result().strides.back() == 1 && p_.result().strides[1] != 1;
    return planes ? Flat(view) : view;
  }

  Tensor Product(Graph* g) const {
    Tensor x = Input(g, "x"), w = Input(g, "w"), y;
    if (p_.op == "conv") {
      y = g->conv_fprop(x, w, Window(fe::graph::Conv_fprop_attributes()));
    } else {
      y = g->conv_dgrad(x, w, Window(fe::graph::Conv_dgrad_attributes()));
    }
    y->set_dim(p_.result().dims).set_stride(p_.result().strides);
    return y;
  }

  template <typename Attributes>
  Attributes Window(Attributes attributes) const {
    attributes.set_pre_padding(p_.pre_padding).set_post_padding(p_.post_padding);
    attributes.set_stride(p_.stride).set_dilation(p_.dilation);
    return attributes;
  }

  Tensor Epilogue(Graph* g, Tensor value, const Steps& steps, const std::function<View(const View&)>& seen) const {
    View view = seen(p_.result());
    for (const Step& step : steps) {
      if (step.mode == "add") {
        auto sum = fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD);
        value = g->pointwise(value, Input(g, seen(p_.tensors[step.operand]), Number(step.operand)), sum);
      } else {
        value = g->pointwise(value, Activation(step));
      }
      value->set_dim(view.dims).set_stride(view.strides);
    }
    return value;
  }

  static fe::graph::Pointwise_attributes Activation(const Step& step) {
    fe::graph::Pointwise_attributes attributes;
    auto mode = [&](fe::PointwiseMode_t value) { attributes.set_mode(value); };
    if (step.mode == "relu") {
      mode(fe::PointwiseMode_t::RELU_FWD);
    } else if (step.mode == "clip") {
      mode(fe::PointwiseMode_t::RELU_FWD);
      attributes.set_relu_lower_clip(step.low).set_relu_upper_clip(step.high);
    } else if (step.mode == "leaky_relu") {
      mode(fe::PointwiseMode_t::RELU_FWD);
      attributes.set_relu_lower_clip_slope(step.slope);
    } else if (step.mode == "sigmoid") {
      mode(fe::PointwiseMode_t::SIGMOID_FWD);
    } else if (step.mode == "tanh") {
      mode(fe::PointwiseMode_t::TANH_FWD);
    } else if (step.mode == "silu") {
      mode(fe::PointwiseMode_t::SWISH_FWD);
      attributes.set_swish_beta(1.0f);
    } else if (step.mode == "gelu") {
      mode(fe::PointwiseMode_t::GELU_FWD);
    } else if (step.mode == "gelu_tanh") {
      mode(fe::PointwiseMode_t::GELU_APPROX_TANH_FWD);
    } else {
      TVM_FFI_THROW(ValueError) << "the cuDNN engine has no step " << step.mode;
    }
    return attributes;
  }

  std::vector<Form> Pools() const {
    std::vector<Form> forms;
    if (Symmetric()) forms.push_back({"routine", {[this] { return Pooling(); }}});
    forms.push_back({"resampling", {Of([this](Graph* g) { Resample(g); })}});
    const std::vector<int64_t>& extents = p_.At("x").dims;
    if (p_.mode == "average" && std::equal(p_.window.begin(), p_.window.end(), extents.begin() + 2)) {
      forms.push_back({"reduction", {Of([this](Graph* g) { Mean(g); })}});
    }
    return forms;
  }

  /*! Whether a window that is padded alike on both sides gives the same results: what the routine can do. */
  bool Symmetric() const {
    for (size_t i = 0; i < p_.window.size(); ++i) {
      int64_t padded = p_.At("x").dims[i + 2] + 2 * p_.pre_padding[i];
      if (padded < p_.window[i] || (padded - p_.window[i]) / p_.stride[i] + 1 != p_.result().dims[i + 2]) return false;
    }
    return true;
  }

  std::unique_ptr<Stage> Pooling() const {
    cudnnPoolingDescriptor_t made = nullptr;
    COLLAGE_CUDNN(cudnnCreatePoolingDescriptor, &made);
    auto pooling = Owned(made, COLLAGE_FUNCTION(kLibrary, cudnnDestroyPoolingDescriptor));
    cudnnPoolingMode_t mode = CUDNN_POOLING_MAX;
    if (p_.mode == "average") mode = CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING;
    if (p_.mode == "average_with_padding") mode = CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING;
    std::vector<int> window(p_.window.begin(), p_.window.end()), stride(p_.stride.begin(), p_.stride.end());
    std::vector<int> padding(p_.pre_padding.begin(), p_.pre_padding.end());
    COLLAGE_CUDNN(cudnnSetPoolingNdDescriptor, made, mode, CUDNN_PROPAGATE_NAN, static_cast<int>(window.size()), window.data(),
                  padding.data(), stride.data());
    auto x = Describe(p_.At("x")), y = Describe(p_.result());
    return std::make_unique<RoutineStage>(target_.device, "pooling", p_, [=](cudnnHandle_t handle, const void* from, void* to) {
      float one = 1, zero = 0;
      COLLAGE_CUDNN(cudnnPoolingForward, handle, pooling.get(), &one, x.get(), from, &zero, y.get(), to);
    });
  }

  void Resample(Graph* g) const {
    auto attributes = fe::graph::Resample_attributes().set_generate_index(false).set_window(p_.window).set_stride(p_.stride);
    attributes.set_pre_padding(p_.pre_padding).set_post_padding(p_.post_padding);
    if (p_.mode == "max") {
      attributes.set_resampling_mode(fe::ResampleMode_t::MAXPOOL).set_padding_mode(fe::PaddingMode_t::NEG_INF_PAD);
    } else {
      attributes.set_resampling_mode(p_.mode == "average" ? fe::ResampleMode_t::AVGPOOL_EXCLUDE_PADDING
                                                          : fe::ResampleMode_t::AVGPOOL_INCLUDE_PADDING);
      attributes.set_padding_mode(fe::PaddingMode_t::ZERO_PAD);
    }
    Finish(g->resample(Input(g, "x"), attributes)[0]);
  }

  void Mean(Graph* g) const {
    Finish(g->reduction(Input(g, "x"), fe::graph::Reduction_attributes().set_mode(fe::ReductionMode_t::AVG)));
  }

  std::unique_ptr<Stage> Softmax() const {
    auto x = Describe(p_.At("x")), y = Describe(p_.result());
    return std::make_unique<RoutineStage>(target_.device, "softmax", p_, [=](cudnnHandle_t handle, const void* from, void* to) {
      float one = 1, zero = 0;
      COLLAGE_CUDNN(cudnnSoftmaxForward, handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, x.get(), from, &zero,
                    y.get(), to);
    });
  }

  void Norm(Graph* g) const {
    Tensor x = Input(g, "x"), scale = Input(g, "scale"), epsilon = g->tensor(static_cast<float>(p_.epsilon));
    Tensor bias = p_.Has("bias") ? Input(g, "bias") : nullptr;
    constexpr auto phase = fe::NormFwdPhase_t::INFERENCE;
    if (p_.op == "layer_norm") {
      auto attributes = fe::graph::Layernorm_attributes().set_forward_phase(phase).set_epsilon(epsilon);
      Finish(g->layernorm(x, scale, bias, attributes)[0]);
    } else {
      auto attributes = fe::graph::Rmsnorm_attributes().set_forward_phase(phase).set_epsilon(epsilon);
      Finish(g->rmsnorm(x, scale, attributes)[0]);
    }
  }

  void Attention(Graph* g) const {
    auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(false);
    attributes.set_attn_scale(static_cast<float>(p_.scale));
    if (p_.Has("mask")) attributes.set_bias(Input(g, "mask"));
    Finish(g->sdpa(Input(g, "q"), Input(g, "k"), Input(g, "v"), attributes)[0]);
  }

  /*! The number that a tensor of the problem has in graphs. */
  static int64_t Number(size_t tensor) { return static_cast<int64_t>(tensor) + 1; }

  Tensor Input(Graph* g, const std::string& role) const { return Input(g, p_.At(role), Number(p_.Number(role))); }

  static Tensor Input(Graph* g, const View& view, int64_t number) {
    return g->tensor(fe::graph::Tensor_attributes()
                         .set_name("tensor " + std::to_string(number))
                         .set_uid(number)
                         .set_dim(view.dims)
                         .set_stride(view.strides)
                         .set_data_type(DataType(view.dtype)));
  }

  void Finish(const Tensor& value) const { Output(value, p_.result(), Number(p_.tensors.size() - 1)); }

  static void Output(const Tensor& value, const View& view, int64_t number) {
    value->set_output(true).set_uid(number);
    value->set_dim(view.dims).set_stride(view.strides).set_data_type(DataType(view.dtype));
  }

  const Problem& p_;
  Target target_;
};

}  // namespace cudnn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_CUDA_CUDNN_FORMS_H_
