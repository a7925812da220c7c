/*!
 * One kernel launch, or a few, by cuDNN: a graph with the plans that cuDNN's heuristics propose for it, or one of the
 * routines (pooling, softmax) that are older than graphs.
 *
 * The library is loaded when it is first used. NVIDIA's header-only frontend is compiled in under a name of its own, so
 * that another copy of it in the process (PyTorch has one) is another library.
 */
#ifndef COLLAGE_RUNTIME_CUDA_CUDNN_STAGE_H_
#define COLLAGE_RUNTIME_CUDA_CUDNN_STAGE_H_

#include "cudnn_problem.h"

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define cudnn_frontend collage_cudnn_frontend
#include <cudnn_frontend.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

#include <functional>
#include <unordered_map>

#define COLLAGE_CUDNN(name, ...) \
  ::collage::cudnn::Check(COLLAGE_FUNCTION(::collage::cudnn::kLibrary, name)(__VA_ARGS__), #name)

namespace collage {
namespace cudnn {
namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr const char* kLibrary = "libcudnn.so." COLLAGE_TEXT(CUDNN_MAJOR);
/*! Plans that want more are left out: an activation of the largest networks takes a tenth of it. */
constexpr int64_t kMostWorkspace = int64_t{1} << 30;

inline void Check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  TVM_FFI_THROW(RuntimeError) << call << ": " << COLLAGE_FUNCTION(kLibrary, cudnnGetErrorString)(status);
}

inline int64_t Version() { return static_cast<int64_t>(COLLAGE_FUNCTION(kLibrary, cudnnGetVersion)()); }

/*! Let the frontend find the library's functions. */
inline void Connect() {
  Version();
  fe::cudnn_dlhandle = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
}

inline cudnnHandle_t Handle(int device) {
  return cuda::OnePerDevice<cudnnHandle_t>(device, [](cudnnHandle_t* handle) {
    COLLAGE_CUDNN(cudnnCreate, handle);
    Connect();
  });
}

/*! What plans are made for: a device that is there, or one that is described and need not be. */
struct Target {
  int device = 0;
  std::shared_ptr<const fe::DeviceProperties> described;
};

/*! One way to run a stage. */
struct Plan {
  std::string name;
  size_t workspace;
  int64_t index;
};

/*! Tensors are numbered as in the problem; the one after the last is memory between stages. */
class Stage {
 public:
  virtual ~Stage() = default;
  /*! Make plans ready: up to `most`, in the library's order, or only the one called `name`. None: `reason` says why. */
  virtual std::vector<Plan> Plans(size_t most, const std::string& name) = 0;
  virtual void Run(const Plan& plan, const std::vector<void*>& pointers, void* workspace, cudaStream_t stream) const = 0;
  std::string reason;
};

inline fe::DataType_t DataType(const std::string& name) {
  if (name == "float32") return fe::DataType_t::FLOAT;
  if (name == "float16") return fe::DataType_t::HALF;
  if (name == "bfloat16") return fe::DataType_t::BFLOAT16;
  TVM_FFI_THROW(ValueError) << "cuDNN partitions of " << name << " are not supported";
}

class GraphStage : public Stage {
 public:
  using Describe = std::function<void(Graph*)>;

  /*! `without` are properties that a plan must not have. */
  GraphStage(const Target& target, const Describe& describe, const std::vector<fe::NumericalNote_t>& without)
      : device_(target.device) {
    graph_.set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
    describe(&graph_);
    usable_ = Good(graph_.validate()) && BuildFor(target) &&
              Good(graph_.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}));
    if (!usable_) return;
    if (!without.empty()) graph_.deselect_numeric_notes(without);
    graph_.deselect_workspace_greater_than(kMostWorkspace);
  }

  std::vector<Plan> Plans(size_t most, const std::string& name) final {
    std::vector<Plan> plans;
    if (!usable_) return plans;
    for (int64_t i = 0; i < graph_.get_execution_plan_count() && plans.size() < most; ++i) {
      Plan plan{"", 0, i};
      if (!Good(graph_.get_plan_name_at_index(i, plan.name)) || (!name.empty() && plan.name != name)) continue;
      bool repeated = false;
      for (const Plan& other : plans) repeated = repeated || other.name == plan.name;
      int64_t bytes = 0;
      if (repeated || !Good(graph_.build_plan_at_index(i)) || !Good(graph_.get_workspace_size_plan_at_index(i, bytes))) continue;
      plan.workspace = static_cast<size_t>(bytes);
      plans.push_back(plan);
    }
    return plans;
  }

  void Run(const Plan& plan, const std::vector<void*>& pointers, void* workspace, cudaStream_t stream) const final {
    cudnnHandle_t handle = Handle(device_);
    COLLAGE_CUDNN(cudnnSetStream, handle, stream);
    std::unordered_map<int64_t, void*> memory;
    for (size_t i = 0; i < pointers.size(); ++i) memory.emplace(static_cast<int64_t>(i) + 1, pointers[i]);
    fe::error_t status = graph_.execute_plan_at_index(handle, memory, workspace, plan.index);
    if (status.is_bad()) TVM_FFI_THROW(RuntimeError) << "cuDNN's plan " << plan.name << ": " << status.get_message();
  }

 private:
  bool BuildFor(const Target& target) {
    if (target.described == nullptr) return Good(graph_.build_operation_graph(Handle(target.device)));
    graph_.set_device_properties(target.described);
    return Good(graph_.build_operation_graph());
  }

  bool Good(fe::error_t status) {
    if (status.is_bad()) reason = status.get_message();
    return status.is_good();
  }

  int device_;
  Graph graph_;
  bool usable_ = false;
};

/*! An object of the library, destroyed with it. */
template <typename Descriptor>
std::shared_ptr<std::remove_pointer_t<Descriptor>> Owned(Descriptor made, cudnnStatus_t (*destroy)(Descriptor)) {
  return {made, [destroy](Descriptor descriptor) { destroy(descriptor); }};
}

inline std::shared_ptr<std::remove_pointer_t<cudnnTensorDescriptor_t>> Describe(const View& view) {
  cudnnTensorDescriptor_t made = nullptr;
  COLLAGE_CUDNN(cudnnCreateTensorDescriptor, &made);
  auto owned = Owned(made, COLLAGE_FUNCTION(kLibrary, cudnnDestroyTensorDescriptor));
  cudnnDataType_t type = view.dtype == "float32" ? CUDNN_DATA_FLOAT : CUDNN_DATA_HALF;
  if (view.dtype == "bfloat16") type = CUDNN_DATA_BFLOAT16;
  std::vector<int> dims(view.dims.begin(), view.dims.end()), strides(view.strides.begin(), view.strides.end());
  COLLAGE_CUDNN(cudnnSetTensorNdDescriptor, made, type, static_cast<int>(dims.size()), dims.data(), strides.data());
  return owned;
}

/*! A routine from x to y. */
class RoutineStage : public Stage {
 public:
  using Call = std::function<void(cudnnHandle_t, const void* x, void* y)>;

  RoutineStage(int device, std::string name, const Problem& problem, Call call)
      : device_(device), name_(std::move(name)), x_(problem.Number("x")), y_(problem.tensors.size() - 1), call_(std::move(call)) {}

  std::vector<Plan> Plans(size_t, const std::string& name) final {
    if (!name.empty() && name != name_) return {};
    return {{name_, 0, 0}};
  }

  void Run(const Plan&, const std::vector<void*>& pointers, void*, cudaStream_t stream) const final {
    cudnnHandle_t handle = Handle(device_);
    COLLAGE_CUDNN(cudnnSetStream, handle, stream);
    call_(handle, pointers[x_], pointers[y_]);
  }

 private:
  int device_;
  std::string name_;
  size_t x_, y_;
  Call call_;
};

}  // namespace cudnn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_CUDA_CUDNN_STAGE_H_
