/*!
 * The cuDNN engine on the host, by plain loops: what tests run where there is no device. It takes the same problems as
 * cudnn_graph.h, on memory of the same layouts, and sums in double. Half precision is left to the device.
 */
#ifndef COLLAGE_RUNTIME_CUDA_CUDNN_EMULATED_H_
#define COLLAGE_RUNTIME_CUDA_CUDNN_EMULATED_H_

#include "cudnn_problem.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace collage {
namespace cudnn {

inline int64_t Version() { return 0; }

/*! The index of each element of a box, in row-major order. */
inline void ForEach(const std::vector<int64_t>& dims, const std::function<void(const std::vector<int64_t>&)>& visit) {
  std::vector<int64_t> at(dims.size(), 0);
  int64_t count = 1;
  for (int64_t extent : dims) count *= extent;
  for (int64_t i = 0; i < count; ++i) {
    visit(at);
    for (size_t axis = dims.size(); axis-- > 0;) {
      if (++at[axis] < dims[axis]) break;
      at[axis] = 0;
    }
  }
}

/*! The element of a tensor at an index; an extent of one is broadcast. */
inline float& Element(const View& view, void* memory, const std::vector<int64_t>& at) {
  int64_t offset = 0;
  for (size_t axis = 0; axis < at.size(); ++axis) offset += view.dims[axis] == 1 ? 0 : at[axis] * view.strides[axis];
  return static_cast<float*>(memory)[offset];
}

inline double Activation(const Step& step, double x) {
  if (step.mode == "relu") return std::max(x, 0.0);
  if (step.mode == "clip") return std::min(std::max(x, double{step.low}), double{step.high});
  if (step.mode == "leaky_relu") return x > 0 ? x : step.slope * x;
  if (step.mode == "sigmoid") return 1 / (1 + std::exp(-x));
  if (step.mode == "silu") return x / (1 + std::exp(-x));
  if (step.mode == "tanh") return std::tanh(x);
  if (step.mode == "gelu") return 0.5 * x * (1 + std::erf(x * 0.7071067811865476));
  if (step.mode == "gelu_tanh") return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  TVM_FFI_THROW(ValueError) << "the emulation has no step " << step.mode;
}

class Emulation : public Computation {
 public:
  explicit Emulation(const Problem& problem) : p_(problem) {
    for (const View& view : p_.tensors) {
      if (view.dtype != "float32") TVM_FFI_THROW(ValueError) << "the emulation computes in float32, not " << view.dtype;
    }
  }
  size_t workspace() const final { return 0; }
  std::string choice() const final { return "{\"form\":\"emulated\",\"plans\":[],\"version\":0}"; }

  void Run(const std::vector<void*>& memory, void*, cudaStream_t) const final {
    if (p_.op == "conv") return Convolution(memory);
    if (p_.op == "conv_transpose") return Transposed(memory);
    if (p_.op == "pool") return Pool(memory);
    if (p_.op == "softmax" || p_.op == "layer_norm" || p_.op == "rms_norm") return Rows(memory);
    TVM_FFI_THROW(ValueError) << "the emulation has no " << p_.op;
  }

 private:
  using Index = std::vector<int64_t>;

  float& At(const std::string& role, const std::vector<void*>& memory, const Index& at) const {
    return Element(p_.At(role), memory[p_.Number(role)], at);
  }

  void Write(const std::vector<void*>& memory, const Index& at, double value) const {
    for (const Step& step : p_.epilogue) {
      value = step.mode == "add" ? value + Element(p_.tensors[step.operand], memory[step.operand], at) : Activation(step, value);
    }
    Element(p_.result(), memory.back(), at) = static_cast<float>(value);
  }

  /*! The index in x of one element of the window at an output position; false when it is padding. */
  bool Source(const Index& at, const Index& tap, const Index& extents, Index* source) const {
    for (size_t axis = 2; axis < at.size(); ++axis) {
      int64_t step = p_.dilation.empty() ? 1 : p_.dilation[axis - 2];
      (*source)[axis] = at[axis] * p_.stride[axis - 2] - p_.pre_padding[axis - 2] + tap[axis - 2] * step;
      if ((*source)[axis] < 0 || (*source)[axis] >= extents[axis]) return false;
    }
    return true;
  }

  static Index Spatial(const Index& dims) { return Index(dims.begin() + 2, dims.end()); }

  void Convolution(const std::vector<void*>& memory) const {
    const View &x = p_.At("x"), &w = p_.At("w"), &y = p_.result();
    int64_t inputs = w.dims[1], outputs = w.dims[0] / (x.dims[1] / inputs);
    ForEach(y.dims, [&](const Index& at) {
      double sum = 0;
      ForEach(Spatial(w.dims), [&](const Index& tap) {
        Index from = at, filter = at;
        if (!Source(at, tap, x.dims, &from)) return;
        std::copy(tap.begin(), tap.end(), filter.begin() + 2);
        for (int64_t c = 0; c < inputs; ++c) {
          from[1] = at[1] / outputs * inputs + c;
          filter[0] = at[1];
          filter[1] = c;
          sum += double{At("x", memory, from)} * At("w", memory, filter);
        }
      });
      Write(memory, at, sum);
    });
  }

  /*! Every result gathers what a forward convolution would scatter to it from there. */
  void Transposed(const std::vector<void*>& memory) const {
    const View &x = p_.At("x"), &w = p_.At("w"), &y = p_.result();
    int64_t groups = y.dims[1] / w.dims[1], filters = x.dims[1] / groups;
    ForEach(y.dims, [&](const Index& at) {
      double sum = 0;
      ForEach(Spatial(w.dims), [&](const Index& tap) {
        Index from = at, filter = at;
        for (size_t axis = 0; axis < tap.size(); ++axis) {
          int64_t place = at[axis + 2] + p_.pre_padding[axis] - tap[axis] * p_.dilation[axis];
          if (place < 0 || place % p_.stride[axis] != 0 || place / p_.stride[axis] >= x.dims[axis + 2]) return;
          from[axis + 2] = place / p_.stride[axis];
          filter[axis + 2] = tap[axis];
        }
        int64_t group = at[1] / w.dims[1];
        filter[1] = at[1] % w.dims[1];
        for (int64_t k = 0; k < filters; ++k) {
          from[1] = filter[0] = group * filters + k;
          sum += double{At("x", memory, from)} * At("w", memory, filter);
        }
      });
      Write(memory, at, sum);
    });
  }

  void Pool(const std::vector<void*>& memory) const {
    const View& x = p_.At("x");
    ForEach(p_.result().dims, [&](const Index& at) {
      double sum = 0, greatest = -std::numeric_limits<double>::infinity();
      int64_t inside = 0, all = 0;
      ForEach(p_.window, [&](const Index& tap) {
        Index from = at;
        ++all;
        if (!Source(at, tap, x.dims, &from)) return;
        ++inside;
        sum += At("x", memory, from);
        greatest = std::max(greatest, double{At("x", memory, from)});
      });
      Write(memory, at, p_.mode == "max" ? greatest : sum / static_cast<double>(p_.mode == "average" ? inside : all));
    });
  }

  void Rows(const std::vector<void*>& memory) const {
    Index rows = p_.At("x").dims;
    int64_t columns = rows[1];
    rows[1] = 1;
    ForEach(rows, [&](const Index& row) {
      double sum = 0, squares = 0, greatest = -std::numeric_limits<double>::infinity(), exponentials = 0;
      Index at = row;
      auto each = [&](const std::function<void(double)>& visit) {
        for (at[1] = 0; at[1] < columns; ++at[1]) visit(double{At("x", memory, at)});
      };
      each([&](double x) { greatest = std::max(greatest, x), sum += x; });
      double mean = p_.op == "layer_norm" ? sum / static_cast<double>(columns) : 0;
      each([&](double x) { exponentials += std::exp(x - greatest), squares += (x - mean) * (x - mean); });
      double scale = 1 / std::sqrt(squares / static_cast<double>(columns) + p_.epsilon);
      each([&](double x) {
        if (p_.op == "softmax") return Write(memory, at, std::exp(x - greatest) / exponentials);
        Index column = {0, at[1], 0, 0};
        double shift = p_.Has("bias") ? At("bias", memory, column) : 0;
        Write(memory, at, (x - mean) * scale * At("scale", memory, column) + shift);
      });
    });
  }

  Problem p_;
};

inline std::shared_ptr<const Computation> Prepare(const Problem& problem, const std::string&, int) {
  return std::make_shared<Emulation>(problem);
}

}  // namespace cudnn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_CUDA_CUDNN_EMULATED_H_
