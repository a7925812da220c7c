/*!
 * A stand-in for cuDNN and the graphs of its frontend on host memory, after cudnn-frontend 1.20 and what cuDNN 9.28 answers
 * for an H100. Graphs are computed by plain loops in double; what the library refuses is refused:
 *
 * - a pointer that is missing or null, of whatever the graph numbers: tensors without a number (an epsilon, a scale) count up
 *   from 1, and their values are only added where the caller has no pointer of that number;
 * - graphs of elementwise operations in four dimensions or more whose channels do not come last;
 * - convolutions with an epilogue that is not compiled in (residual, bias, relu) whose channels do not come last;
 * - attention for which nobody says which device it is for;
 * - one of its own proposals, when it is run.
 *
 * Of convolutions with epilogues all but two plans are compiled when they are built.
 */
#ifndef COLLAGE_TESTS_EMULATION_CUDNN_FRONTEND_H_
#define COLLAGE_TESTS_EMULATION_CUDNN_FRONTEND_H_

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace cudnn_frontend {

extern void* cudnn_dlhandle;

enum class DataType_t { FLOAT, HALF, BFLOAT16 };
enum class HeurMode_t { A, FALLBACK };
enum class NumericalNote_t { TENSOR_CORE, DOWN_CONVERT_INPUTS, REDUCED_PRECISION_REDUCTION };
enum class BehaviorNote_t { RUNTIME_COMPILATION };
enum class PointwiseMode_t { ADD, RELU_FWD, SIGMOID_FWD, TANH_FWD, SWISH_FWD, GELU_FWD, GELU_APPROX_TANH_FWD };
enum class NormFwdPhase_t { INFERENCE };
enum class ResampleMode_t { MAXPOOL, AVGPOOL_EXCLUDE_PADDING, AVGPOOL_INCLUDE_PADDING };
enum class PaddingMode_t { NEG_INF_PAD, ZERO_PAD };
enum class ReductionMode_t { AVG };

struct [[nodiscard]] error_t {
  std::string message;
  bool good = true;
  bool is_good() const { return good; }
  bool is_bad() const { return !good; }
  std::string get_message() const { return message; }
};
inline error_t Failed(const std::string& message) { return {message, false}; }

struct DeviceProperties {
  error_t deserialize(const std::vector<uint8_t>&) { return {}; }
};

/*! How many plans were built in this process, how many are being built now, and were at most at one time. */
inline std::atomic<int64_t> built{0}, building{0}, most_at_once{0};
TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("collage.emulation.cudnn.built", []() { return built.load(); })
      .def("collage.emulation.cudnn.most_at_once", []() { return most_at_once.load(); });
}

namespace graph {
using Extents = std::vector<int64_t>;

struct Tensor_attributes {
  std::string name;
  int64_t uid = 0;
  Extents dim, stride;
  DataType_t type = DataType_t::FLOAT;
  bool output = false;
  std::optional<float> value;

  Tensor_attributes& set_name(const std::string& given) { return name = given, *this; }
  Tensor_attributes& set_uid(int64_t given) { return uid = given, *this; }
  Tensor_attributes& set_dim(const Extents& given) { return dim = given, *this; }
  Tensor_attributes& set_stride(const Extents& given) { return stride = given, *this; }
  Tensor_attributes& set_data_type(DataType_t given) { return type = given, *this; }
  Tensor_attributes& set_output(bool given) { return output = given, *this; }
};
using Tensor = std::shared_ptr<Tensor_attributes>;

/*! Visits the indices of a box in row-major order. */
template <typename Visit>
void ForEach(const Extents& dims, Visit&& visit) {
  Extents at(dims.size(), 0);
  int64_t count = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
  for (int64_t i = 0; i < count; ++i) {
    visit(at);
    for (size_t axis = dims.size(); axis-- > 0;) {
      if (++at[axis] < dims[axis]) break;
      at[axis] = 0;
    }
  }
}

/*! A tensor's values in row-major order, whatever its strides; extents of one are broadcast. */
struct Values {
  Extents dims;
  std::vector<double> data;

  explicit Values(const Extents& given)
      : dims(given), data(std::accumulate(given.begin(), given.end(), size_t{1}, std::multiplies<>())) {}
  double& at(const Extents& index) {
    size_t offset = 0;
    for (size_t axis = 0; axis < dims.size(); ++axis) offset = offset * dims[axis] + (dims[axis] == 1 ? 0 : index[axis]);
    return data[offset];
  }
};
using Inputs = std::vector<Values*>;
using Compute = std::function<void(const Inputs&, Values*)>;

struct Element {
  static double Read(const void* memory, int64_t at, DataType_t type) {
    if (type == DataType_t::FLOAT) return static_cast<const float*>(memory)[at];
    if (type == DataType_t::HALF) return static_cast<double>(static_cast<const _Float16*>(memory)[at]);
    uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(memory)[at]) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  static void Write(void* memory, int64_t at, DataType_t type, double value) {
    if (type == DataType_t::FLOAT) {
      static_cast<float*>(memory)[at] = static_cast<float>(value);
    } else if (type == DataType_t::HALF) {
      static_cast<_Float16*>(memory)[at] = static_cast<_Float16>(value);
    } else {
      float rounded = static_cast<float>(value);
      uint32_t bits;
      std::memcpy(&bits, &rounded, sizeof(bits));
      bits += 0x7fff + ((bits >> 16) & 1);
      static_cast<uint16_t*>(memory)[at] = static_cast<uint16_t>(bits >> 16);
    }
  }
};

/*! Windows over the axes from the third on. */
template <typename Self>
struct Windowed {
  Extents pre, post, step, gap;
  Self& set_pre_padding(const Extents& given) { return pre = given, static_cast<Self&>(*this); }
  Self& set_post_padding(const Extents& given) { return post = given, static_cast<Self&>(*this); }
  Self& set_stride(const Extents& given) { return step = given, static_cast<Self&>(*this); }
  Self& set_dilation(const Extents& given) { return gap = given, static_cast<Self&>(*this); }

  /*! The index in x of a window's tap at an output position; false when it is padding. */
  bool Source(const Extents& at, const Extents& tap, const Extents& extents, Extents* source) const {
    for (size_t axis = 2; axis < at.size(); ++axis) {
      int64_t distance = gap.empty() ? 1 : gap[axis - 2];
      (*source)[axis] = at[axis] * step[axis - 2] - pre[axis - 2] + tap[axis - 2] * distance;
      if ((*source)[axis] < 0 || (*source)[axis] >= extents[axis]) return false;
    }
    return true;
  }
};
struct Conv_fprop_attributes : Windowed<Conv_fprop_attributes> {};
struct Conv_dgrad_attributes : Windowed<Conv_dgrad_attributes> {};
struct Resample_attributes : Windowed<Resample_attributes> {
  Extents window;
  ResampleMode_t mode = ResampleMode_t::MAXPOOL;
  Resample_attributes& set_generate_index(bool) { return *this; }
  Resample_attributes& set_window(const Extents& given) { return window = given, *this; }
  Resample_attributes& set_resampling_mode(ResampleMode_t given) { return mode = given, *this; }
  Resample_attributes& set_padding_mode(PaddingMode_t) { return *this; }
};
struct Pointwise_attributes {
  PointwiseMode_t mode = PointwiseMode_t::ADD;
  double low = 0, high = INFINITY, slope = 0;
  bool plain = true;
  Pointwise_attributes& set_mode(PointwiseMode_t given) { return mode = given, *this; }
  Pointwise_attributes& set_relu_lower_clip(float given) { return low = given, plain = false, *this; }
  Pointwise_attributes& set_relu_upper_clip(float given) { return high = given, plain = false, *this; }
  Pointwise_attributes& set_relu_lower_clip_slope(float given) { return slope = given, plain = false, *this; }
  Pointwise_attributes& set_swish_beta(float) { return *this; }

  double Of(double x) const {
    switch (mode) {
      case PointwiseMode_t::RELU_FWD: return x > low ? std::min(x, high) : low + slope * (x - low);
      case PointwiseMode_t::SIGMOID_FWD: return 1 / (1 + std::exp(-x));
      case PointwiseMode_t::SWISH_FWD: return x / (1 + std::exp(-x));
      case PointwiseMode_t::TANH_FWD: return std::tanh(x);
      case PointwiseMode_t::GELU_FWD: return 0.5 * x * (1 + std::erf(x * 0.7071067811865476));
      default: return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    }
  }
};
struct Reduction_attributes {
  Reduction_attributes& set_mode(ReductionMode_t) { return *this; }
};
struct Norm_attributes {
  Tensor epsilon;
  Norm_attributes& set_forward_phase(NormFwdPhase_t) { return *this; }
  Norm_attributes& set_epsilon(const Tensor& given) { return epsilon = given, *this; }
};
using Layernorm_attributes = Norm_attributes;
using Rmsnorm_attributes = Norm_attributes;
struct SDPA_attributes {
  float scale = 1;
  Tensor bias;
  SDPA_attributes& set_name(const std::string&) { return *this; }
  SDPA_attributes& set_generate_stats(bool) { return *this; }
  SDPA_attributes& set_attn_scale(float given) { return scale = given, *this; }
  SDPA_attributes& set_bias(const Tensor& given) { return bias = given, *this; }
};

class Graph {
 public:
  Graph& set_intermediate_data_type(DataType_t) { return *this; }
  Graph& set_compute_data_type(DataType_t) { return *this; }
  Graph& set_sm_version(int32_t version) { return version_ = version, *this; }
  Graph& set_device_properties(const std::shared_ptr<const DeviceProperties>&) { return *this; }
  Graph& deselect_numeric_notes(const std::vector<NumericalNote_t>&) { return *this; }
  Graph& deselect_workspace_greater_than(int64_t) { return *this; }

  Tensor tensor(const Tensor_attributes& attributes) {
    return tensors_.emplace_back(std::make_shared<Tensor_attributes>(attributes));
  }
  Tensor tensor(float value) {
    Tensor made = tensor(Tensor_attributes().set_dim({1}).set_stride({1}));
    made->value = value;
    return made;
  }

  Tensor conv_fprop(const Tensor& x, const Tensor& w, const Conv_fprop_attributes& window) {
    return Append("conv", {x, w}, [window](const Inputs& in, Values* out) {
      const Extents &x = in[0]->dims, &w = in[1]->dims;
      int64_t outputs = w[0] / (x[1] / w[1]);
      ForEach(out->dims, [&](const Extents& at) {
        double sum = 0;
        ForEach(Extents(w.begin() + 2, w.end()), [&](const Extents& tap) {
          Extents from = at, filter = at;
          if (!window.Source(at, tap, x, &from)) return;
          std::copy(tap.begin(), tap.end(), filter.begin() + 2);
          filter[0] = at[1];
          for (int64_t c = 0; c < w[1]; ++c) {
            from[1] = at[1] / outputs * w[1] + c;
            filter[1] = c;
            sum += in[0]->at(from) * in[1]->at(filter);
          }
        });
        out->at(at) = sum;
      });
    });
  }

  /*! Every result gathers what the forward convolution scatters to it from there. */
  Tensor conv_dgrad(const Tensor& dy, const Tensor& w, const Conv_dgrad_attributes& window) {
    return Append("conv", {dy, w}, [window](const Inputs& in, Values* out) {
      const Extents &x = in[0]->dims, &w = in[1]->dims;
      int64_t filters = x[1] / (out->dims[1] / w[1]);
      ForEach(out->dims, [&](const Extents& at) {
        double sum = 0;
        ForEach(Extents(w.begin() + 2, w.end()), [&](const Extents& tap) {
          Extents from = at, filter = at;
          for (size_t axis = 0; axis < tap.size(); ++axis) {
            int64_t place = at[axis + 2] + window.pre[axis] - tap[axis] * window.gap[axis];
            if (place < 0 || place % window.step[axis] != 0 || place / window.step[axis] >= x[axis + 2]) return;
            from[axis + 2] = place / window.step[axis];
            filter[axis + 2] = tap[axis];
          }
          filter[1] = at[1] % w[1];
          for (int64_t k = 0; k < filters; ++k) {
            from[1] = filter[0] = at[1] / w[1] * filters + k;
            sum += in[0]->at(from) * in[1]->at(filter);
          }
        });
        out->at(at) = sum;
      });
    });
  }

  Tensor pointwise(const Tensor& a, const Tensor& b, const Pointwise_attributes&) {
    return Append("add", {a, b}, [](const Inputs& in, Values* out) {
      ForEach(out->dims, [&](const Extents& at) { out->at(at) = in[0]->at(at) + in[1]->at(at); });
    });
  }
  Tensor pointwise(const Tensor& x, const Pointwise_attributes& attributes) {
    bool relu = attributes.mode == PointwiseMode_t::RELU_FWD && attributes.plain;
    return Append(relu ? "relu" : "activation", {x}, [attributes](const Inputs& in, Values* out) {
      ForEach(out->dims, [&](const Extents& at) { out->at(at) = attributes.Of(in[0]->at(at)); });
    });
  }

  std::array<Tensor, 2> resample(const Tensor& x, const Resample_attributes& window) {
    return {Append("resample", {x}, [window](const Inputs& in, Values* out) {
      ForEach(out->dims, [&](const Extents& at) {
        double sum = 0, greatest = -INFINITY;
        int64_t inside = 0, all = 0;
        ForEach(window.window, [&](const Extents& tap) {
          Extents from = at;
          ++all;
          if (!window.Source(at, tap, in[0]->dims, &from)) return;
          ++inside;
          sum += in[0]->at(from);
          greatest = std::max(greatest, in[0]->at(from));
        });
        int64_t count = window.mode == ResampleMode_t::AVGPOOL_EXCLUDE_PADDING ? inside : all;
        out->at(at) = window.mode == ResampleMode_t::MAXPOOL ? greatest : sum / static_cast<double>(count);
      });
    })};
  }

  Tensor reduction(const Tensor& x, const Reduction_attributes&) {
    return Append("reduction", {x}, [](const Inputs& in, Values* out) {
      double share = static_cast<double>(out->data.size()) / static_cast<double>(in[0]->data.size());
      ForEach(in[0]->dims, [&](const Extents& at) { out->at(at) += in[0]->at(at) * share; });
    });
  }

  std::array<Tensor, 3> layernorm(const Tensor& x, const Tensor& scale, const Tensor& bias, const Norm_attributes& attributes) {
    return {Append("norm", {x, scale, attributes.epsilon, bias}, [](const Inputs& in, Values* out) { Normalised(in, true, out); })};
  }
  std::array<Tensor, 2> rmsnorm(const Tensor& x, const Tensor& scale, const Norm_attributes& attributes) {
    return {Append("norm", {x, scale, attributes.epsilon}, [](const Inputs& in, Values* out) { Normalised(in, false, out); })};
  }

  std::array<Tensor, 2> sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const SDPA_attributes& attributes) {
    std::vector<Tensor> inputs{q, k, v, tensor(attributes.scale)};
    if (attributes.bias) inputs.push_back(attributes.bias);
    return {Append("attention", inputs, [](const Inputs& in, Values* out) {
      int64_t keys = in[1]->dims[2], head = in[1]->dims[3];
      ForEach(out->dims, [&](const Extents& at) {
        double sum = 0, total = 0;
        for (int64_t key = 0; key < keys; ++key) {
          double score = 0;
          for (int64_t i = 0; i < head; ++i) score += in[0]->at({at[0], at[1], at[2], i}) * in[1]->at({at[0], at[1], key, i});
          score *= in[3]->data[0];
          if (in.size() > 4) score += in[4]->at({at[0], at[1], at[2], key});
          total += std::exp(score);
          sum += std::exp(score) * in[2]->at({at[0], at[1], key, at[3]});
        }
        out->at(at) = sum / total;
      });
    })};
  }

  error_t validate() {
    std::set<int64_t> used;
    for (const Tensor& tensor : tensors_) {
      if (tensor->uid != 0 && !used.insert(tensor->uid).second) return Failed("uid " + std::to_string(tensor->uid) + " twice");
    }
    bool attention = !nodes_.empty() && nodes_[0].kind == "attention";
    if (attention && version_ <= 0) return Failed("Multiple libcudart libraries found: libcudart.so.12 and libcudart.so.13");
    return {};
  }

  error_t build_operation_graph() { return build_operation_graph(nullptr); }
  error_t build_operation_graph(cudnnHandle_t) {
    std::set<int64_t> used;
    for (const Tensor& tensor : tensors_) used.insert(tensor->uid);
    int64_t next = 1;
    for (const Tensor& tensor : tensors_) {
      if (tensor->uid != 0) continue;
      while (used.count(next) > 0) ++next;
      tensor->uid = next++;
    }
    return {};
  }

  error_t create_execution_plans(const std::vector<HeurMode_t>&) {
    std::string operations;
    for (const Node& node : nodes_) operations += node.kind + " ";
    const Tensor_attributes& result = *nodes_.back().output;
    bool alone = nodes_[0].kind != "add" && nodes_[0].kind != "relu" && nodes_[0].kind != "activation";
    fused_ = nodes_[0].kind == "conv" && nodes_.size() > 1;
    bool last = result.stride[1] == 1, taken = alone ? !fused_ || IsCompiledIn() : result.dim.size() == 3 && result.stride[2] == 1;
    if (!last && !taken) return Failed("No valid engine configs for " + operations + "\n{\"engineId\":0}\nWarning: pattern\n");
    return {};
  }

  int64_t get_execution_plan_count() const { return kPlans; }
  /*! Names come twice, as those of heuristics and fallbacks do. */
  error_t get_plan_name_at_index(int64_t index, std::string& name) const {
    name = "eng" + std::to_string(index % (kPlans - 1));
    return {};
  }
  error_t get_behavior_notes_for_plan_at_index(int64_t index, std::vector<BehaviorNote_t>& notes) const {
    notes.clear();
    if (fused_ && index > kWithWorkspace) notes.push_back(BehaviorNote_t::RUNTIME_COMPILATION);
    return {};
  }
  error_t build_plan_at_index(int64_t) {
    if (busy_.exchange(true)) return Failed("a graph is built by two threads");
    ++built;
    int64_t now = ++building, most = most_at_once;
    while (now > most && !most_at_once.compare_exchange_weak(most, now)) continue;
    const char* seconds = std::getenv("COLLAGE_EMULATED_BUILD_SECONDS");
    if (seconds != nullptr) std::this_thread::sleep_for(std::chrono::duration<double>(std::atof(seconds)));
    --building;
    busy_ = false;
    return {};
  }
  error_t get_workspace_size_plan_at_index(int64_t index, int64_t& bytes) const {
    bytes = index == kWithWorkspace ? kWorkspace : 0;
    return {};
  }

  error_t execute_plan_at_index(cudnnHandle_t handle, std::unordered_map<int64_t, void*>& pointers, void* workspace,
                                int64_t index) const {
    if (handle == nullptr) return Failed("no handle");
    if (index == kRefused || std::getenv("COLLAGE_EMULATED_REFUSES") != nullptr) {
      return Failed("execute(handle, plan) failed with\nCUDNN_STATUS_EXECUTION_FAILED\n");
    }
    if (index == kWithWorkspace) {
      if (workspace == nullptr) return Failed("no workspace");
      std::memset(workspace, 0xff, kWorkspace);
    }
    for (const Tensor& tensor : tensors_) {
      if (tensor->value) pointers.emplace(tensor->uid, &*tensor->value);
    }
    std::map<const Tensor_attributes*, Values> values;
    for (const Tensor& tensor : tensors_) {
      Values& made = values.emplace(tensor.get(), Values(tensor->dim)).first->second;
      if (produced_.count(tensor.get()) > 0 && !tensor->output) continue;
      auto found = pointers.find(tensor->uid);
      if (found == pointers.end()) return Failed("Uid " + std::to_string(tensor->uid) + " does not exist in variant pack.");
      if (found->second == nullptr) return Failed("execute(handle, plan) failed with\nCUDNN_STATUS_BAD_PARAM_NULL_POINTER\n");
      if (tensor->output) continue;
      ForEach(tensor->dim, [&](const Extents& at) { made.at(at) = Element::Read(found->second, Offset(*tensor, at), tensor->type); });
    }
    for (const Node& node : nodes_) {
      Inputs inputs;
      for (const Tensor& input : node.inputs) inputs.push_back(&values.at(input.get()));
      Values& made = values.at(node.output.get());
      node.compute(inputs, &made);
      if (!node.output->output) continue;
      void* memory = pointers.at(node.output->uid);
      ForEach(made.dims, [&](const Extents& at) { Element::Write(memory, Offset(*node.output, at), node.output->type, made.at(at)); });
    }
    return {};
  }

 private:
  static constexpr int64_t kPlans = 7, kRefused = 0, kWithWorkspace = 1, kWorkspace = 4096;

  struct Node {
    std::string kind;
    std::vector<Tensor> inputs;
    Tensor output;
    Compute compute;
  };

  Tensor Append(const std::string& kind, const std::vector<Tensor>& inputs, Compute compute) {
    Tensor output = tensor(Tensor_attributes());
    produced_.insert(output.get());
    nodes_.push_back({kind, inputs, output, std::move(compute)});
    return output;
  }

  static int64_t Offset(const Tensor_attributes& tensor, const Extents& at) {
    return std::inner_product(at.begin(), at.end(), tensor.stride.begin(), int64_t{0});
  }

  /*! Whether the steps after a convolution are those of the kernels that come with the library: residual, bias, relu. */
  bool IsCompiledIn() const {
    size_t at = 1;
    auto adds = [&](bool whole) {
      if (at >= nodes_.size() || nodes_[at].kind != "add") return false;
      return (nodes_[at].inputs[1]->dim == nodes_[at].output->dim) == whole;
    };
    if (adds(true)) ++at;
    if (adds(false)) ++at;
    if (at < nodes_.size() && nodes_[at].kind == "relu") ++at;
    return at == nodes_.size();
  }

  static void Normalised(const Inputs& in, bool centred, Values* out) {
    int64_t rows = in[0]->dims[0], columns = in[0]->dims[1];
    for (int64_t row = 0; row < rows; ++row) {
      double mean = 0, squares = 0;
      for (int64_t c = 0; c < columns && centred; ++c) mean += in[0]->at({row, c, 0, 0}) / static_cast<double>(columns);
      for (int64_t c = 0; c < columns; ++c) squares += std::pow(in[0]->at({row, c, 0, 0}) - mean, 2);
      double scale = 1 / std::sqrt(squares / static_cast<double>(columns) + in[2]->data[0]);
      for (int64_t c = 0; c < columns; ++c) {
        double shift = in.size() > 3 ? in[3]->at({0, c, 0, 0}) : 0;
        out->at({row, c, 0, 0}) = (in[0]->at({row, c, 0, 0}) - mean) * scale * in[1]->at({0, c, 0, 0}) + shift;
      }
    }
  }

  int32_t version_ = 0;
  bool fused_ = false;
  std::atomic<bool> busy_{false};
  std::vector<Tensor> tensors_;
  std::set<const Tensor_attributes*> produced_;
  std::vector<Node> nodes_;
};

}  // namespace graph
}  // namespace cudnn_frontend

#endif  // COLLAGE_TESTS_EMULATION_CUDNN_FRONTEND_H_
