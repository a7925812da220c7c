/*!
 * What a partition computes, ready to run: the interface of products and convolutions, and what is done to their sums.
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_OPERATION_H_
#define COLLAGE_RUNTIME_ONEDNN_OPERATION_H_

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "primitive.h"

namespace collage {
namespace onednn {

/*! One step after the sums, as oneDNN names it; none without a kind. */
struct Activation {
  dnnl_alg_kind_t kind = dnnl_alg_kind_undef;
  float alpha = 0.0f, beta = 0.0f;

  /*! Of one step of an epilogue in the blob's header. */
  static Activation Read(const json::Object& step) {
    std::string mode = Text(step, "mode");
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

/*! One call's tensors; the residual is null where there is none. */
struct Tensors {
  const float* x;
  const float* residual;
  float* y;
};

/*! Intermediate results, for one call at a time: what tasks share, and what each has for itself. */
struct Workspace {
  Buffer shared;
  std::vector<Buffer> own;

  void Reserve(int64_t all, int64_t each, int64_t tasks) {
    shared.Reserve(all);
    own.resize(std::max<size_t>(own.size(), tasks));
    for (int64_t i = 0; i < tasks; ++i) own[i].Reserve(each);
  }
};

/*! y = act(op(x) + bias + residual), in phases between which tasks wait for each other. */
class Operation {
 public:
  virtual ~Operation() = default;

  /*! How many tasks can be of use at most, and how often each waits. */
  virtual int64_t tasks() const = 0;
  virtual int barriers() const = 0;
  virtual void Reserve(Workspace* workspace) const = 0;

  /*! The share of one task; `barrier` waits for all of them. */
  virtual void Run(const Tensors& tensors, const Workspace& workspace, Agenda* agenda, int64_t task,
                   const std::function<void()>& barrier) const = 0;
};

/*! Pieces per thread that the work is cut into, so that one that wakes late does less. */
constexpr int64_t kPiecesPerThread = 2;

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int64_t Count(const Extents& extents, size_t from = 0) {
  int64_t product = 1;
  for (size_t i = from; i < extents.size(); ++i) product *= extents[i];
  return product;
}

/*! Where `parts` nearly equal parts of `units` begin and end, each of `size` things, of which there are `all`. */
inline std::vector<std::pair<int64_t, int64_t>> Parts(int64_t all, int64_t size, int64_t parts) {
  std::vector<std::pair<int64_t, int64_t>> found;
  int64_t units = CeilDiv(all, size);
  parts = std::max<int64_t>(1, std::min(parts, units));
  for (int64_t i = 0; i < parts; ++i) found.emplace_back(units * i / parts * size, std::min(all, units * (i + 1) / parts * size));
  return found;
}

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_OPERATION_H_
