/*!
 * What a partition asks of cuDNN, read from its blob's header: the C++ side of collage/backends/cuda/cudnn/patterns.py.
 *
 * Tensors are numbered: the operands in the order of their roles' names, then the result. A call of the partition gives one
 * pointer for each.
 */
#ifndef COLLAGE_RUNTIME_CUDA_CUDNN_PROBLEM_H_
#define COLLAGE_RUNTIME_CUDA_CUDNN_PROBLEM_H_

#include "../partition.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace collage {
namespace cudnn {
namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

/*! A tensor as cuDNN sees it: extents and strides in elements, of N x C x spatial axes whatever the layout in memory. */
struct View {
  std::vector<int64_t> dims, strides;
  /*! Where it begins in its memory, in elements. */
  int64_t offset = 0;
  std::string dtype;

  explicit View(const json::Object& entry)
      : dims(cuda::Ints(entry, "dims")), strides(cuda::Ints(entry, "strides")), dtype(cuda::Text(entry, "dtype")) {
    if (cuda::Has(entry, "offset")) offset = cuda::Int(entry, "offset");
    if (dims.size() != strides.size() || dims.empty()) TVM_FFI_THROW(ValueError) << "a tensor needs one stride per extent";
  }

  int64_t ItemSize() const {
    if (dtype == "float32") return 4;
    if (dtype == "float16" || dtype == "bfloat16") return 2;
    TVM_FFI_THROW(ValueError) << "cuDNN partitions of " << dtype << " are not supported";
  }

  /*! How far it reaches from its first element. */
  size_t Bytes() const {
    int64_t last = 0;
    for (size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
    return static_cast<size_t>((last + 1) * ItemSize());
  }
};

/*! One step of an epilogue; `operand` is the number of the tensor that a sum adds. */
struct Step {
  std::string mode;
  size_t operand = 0;
  float low = 0, high = 0, slope = 0;
};

struct Problem {
  explicit Problem(const json::Object& header)
      : op(cuda::Text(header, "op")),
        precision(cuda::Text(header, "precision")),
        arguments(cuda::Int(header, "arguments")) {
    std::map<std::string, json::Object> sorted;
    for (const auto& [role, entry] : cuda::Child(header, "operands")) {
      ffi::String name = role.cast<ffi::String>();
      sorted.emplace(std::string(name.data(), name.size()), entry.cast<json::Object>());
    }
    for (const auto& [role, entry] : sorted) {
      numbers[role] = tensors.size();
      tensors.emplace_back(entry);
      references.push_back(entry);
    }
    json::Object written = cuda::Child(header, "result");
    tensors.emplace_back(written);
    references.push_back(written);
    auto list = [&](const char* key) { return cuda::Has(header, key) ? cuda::Ints(header, key) : std::vector<int64_t>(); };
    stride = list("stride");
    dilation = list("dilation");
    pre_padding = list("pre_padding");
    post_padding = list("post_padding");
    window = list("window");
    if (cuda::Has(header, "mode")) mode = cuda::Text(header, "mode");
    if (cuda::Has(header, "epsilon")) epsilon = cuda::Real(header, "epsilon");
    if (cuda::Has(header, "scale")) scale = cuda::Real(header, "scale");
    if (!cuda::Has(header, "epilogue")) return;
    for (const ffi::Any& item : cuda::Get(header, "epilogue").cast<json::Array>()) {
      json::Object entry = item.cast<json::Object>();
      Step step;
      step.mode = cuda::Text(entry, "mode");
      if (step.mode == "add") step.operand = Number(cuda::Text(entry, "operand"));
      if (cuda::Has(entry, "low")) step.low = static_cast<float>(cuda::Real(entry, "low"));
      if (cuda::Has(entry, "high")) step.high = static_cast<float>(cuda::Real(entry, "high"));
      if (cuda::Has(entry, "slope")) step.slope = static_cast<float>(cuda::Real(entry, "slope"));
      epilogue.push_back(step);
    }
  }

  size_t Number(const std::string& role) const {
    auto found = numbers.find(role);
    if (found == numbers.end()) TVM_FFI_THROW(ValueError) << "the partition has no operand " << role;
    return found->second;
  }
  bool Has(const std::string& role) const { return numbers.count(role) > 0; }
  const View& At(const std::string& role) const { return tensors[Number(role)]; }
  const View& result() const { return tensors.back(); }

  std::string op, precision, mode;
  int64_t arguments;
  std::map<std::string, size_t> numbers;
  /*! One per tensor: where it is, {"arg": i} or {"tensor": name}. */
  std::vector<json::Object> references;
  std::vector<View> tensors;
  std::vector<int64_t> stride, dilation, pre_padding, post_padding, window;
  std::vector<Step> epilogue;
  double epsilon = 0, scale = 1;
};

/*! What runs a problem on a device; equal problems share one. */
class Computation {
 public:
  virtual ~Computation() = default;
  /*! Bytes of the device's workspace that a run uses. */
  virtual size_t workspace() const = 0;
  /*! How it was chosen, as JSON: a header's "choice". */
  virtual std::string choice() const = 0;
  /*! Whether it is what a "choice" names, as far as this version of the library understands it. */
  virtual bool Is(const std::string& choice) const = 0;
  /*! One pointer per tensor of the problem. */
  virtual void Run(const std::vector<void*>& pointers, void* workspace, cudaStream_t stream) const = 0;
};

}  // namespace cudnn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_CUDA_CUDNN_PROBLEM_H_
