/*!
 * One kernel launch, or a few, by cuDNN: a graph with the plans that cuDNN's heuristics propose for it, or one of the
 * routines (pooling, softmax) that are older than graphs.
 *
 * The library is loaded when it is first used. NVIDIA's header-only frontend is compiled in under a name of its own, so
 * that another copy of it in the process (PyTorch has one) is another library.
 */
#ifndef COLLAGE_RUNTIME_CUDA_CUDNN_STAGE_H_
#define COLLAGE_RUNTIME_CUDA_CUDNN_STAGE_H_

#include "problem.h"

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define cudnn_frontend collage_cudnn_frontend
#include <cudnn_frontend.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

#include <algorithm>
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
/*! The number of the memory between stages in graphs; the frontend counts up from 1 for tensors that have no number. */
constexpr int64_t kBetween = 1000;

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

/*! Handles that no thread has at the moment. Never destroyed, as those of `OnePerDevice`. */
struct Handles {
  std::mutex mutex;
  std::map<int, std::vector<cudnnHandle_t>> free;

  static Handles& All() {
    static auto* handles = new Handles();
    return *handles;
  }
};

/*! This thread's: a handle has one stream, and threads may run on several. When it ends, the next thread has it. */
inline cudnnHandle_t Handle(int device) {
  struct Owned {
    std::map<int, cudnnHandle_t> handles;
    ~Owned() {
      std::lock_guard<std::mutex> lock(Handles::All().mutex);
      for (const auto& [device, handle] : handles) {
        if (handle != nullptr) Handles::All().free[device].push_back(handle);
      }
    }
  };
  thread_local Owned owned;
  cudnnHandle_t& handle = owned.handles[device];
  if (handle != nullptr) return handle;
  {
    std::lock_guard<std::mutex> lock(Handles::All().mutex);
    std::vector<cudnnHandle_t>& free = Handles::All().free[device];
    if (!free.empty()) {
      handle = free.back();
      free.pop_back();
      return handle;
    }
  }
  cuda::DeviceGuard guard(device);
  COLLAGE_CUDNN(cudnnCreate, &handle);
  Connect();
  return handle;
}

/*! What plans are made for: a device that is there, or one that is described and need not be. */
struct Target {
  int device = 0;
  /*! Such as 90. The frontend would ask a CUDA runtime of its own choice, and gives up where it finds two. */
  int32_t capability = 0;
  std::shared_ptr<const fe::DeviceProperties> described;

  static Target Of(int device) {
    int major = 0, minor = 0;
    COLLAGE_CUDA(cudaDeviceGetAttribute, &major, cudaDevAttrComputeCapabilityMajor, device);
    COLLAGE_CUDA(cudaDeviceGetAttribute, &minor, cudaDevAttrComputeCapabilityMinor, device);
    return {device, major * 10 + minor, nullptr};
  }
};

/*! One way to run a stage. */
struct Plan {
  std::string name;
  size_t workspace = 0;
  int64_t index = 0;
  /*! Whether its kernel is compiled when it is built. */
  bool compiles = false;
};

/*! What a stage runs on: the problem's tensors, by number, and memory between stages where there is any. */
struct Memory {
  std::vector<void*> tensors;
  void* between = nullptr;
};

class Stage {
 public:
  virtual ~Stage() = default;
  /*! What the library proposes, in its order, each name once. None: `reasons` say why. */
  virtual std::vector<Plan> Proposals() = 0;
  /*! Make a proposal ready; whether it is, otherwise `reasons` say why. */
  virtual bool Build(Plan* plan) = 0;
  virtual void Run(const Plan& plan, const Memory& memory, void* workspace, cudaStream_t stream) const = 0;

  /*! Why a plan, or the stage, does not work; each reason once. */
  void Note(const std::string& message) {
    std::string reason = cuda::OneLine(message);
    if (std::find(reasons_.begin(), reasons_.end(), reason) == reasons_.end()) reasons_.push_back(reason);
  }
  void NoteAll(const Stage& other) {
    for (const std::string& reason : other.reasons_) Note(reason);
  }
  /*! The first ones: a stage may have a hundred plans. */
  std::string reasons() const {
    constexpr size_t kMost = 3;
    std::string text;
    for (size_t i = 0; i < std::min(kMost, reasons_.size()); ++i) text += (i == 0 ? "" : " | ") + reasons_[i];
    return text.empty() ? "no plan" : text;
  }

 private:
  std::vector<std::string> reasons_;
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
    graph_.set_sm_version(target.capability);
    describe(&graph_);
    usable_ = Good(graph_.validate()) && BuildFor(target) &&
              Good(graph_.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}));
    if (!usable_) return;
    if (!without.empty()) graph_.deselect_numeric_notes(without);
    graph_.deselect_workspace_greater_than(kMostWorkspace);
  }

  std::vector<Plan> Proposals() final {
    std::vector<Plan> plans;
    for (int64_t i = 0; usable_ && i < graph_.get_execution_plan_count(); ++i) {
      Plan plan{"", 0, i, IsCompiled(i)};
      if (!Good(graph_.get_plan_name_at_index(i, plan.name))) continue;
      auto same = [&](const Plan& other) { return other.name == plan.name; };
      if (std::none_of(plans.begin(), plans.end(), same)) plans.push_back(plan);
    }
    return plans;
  }

  bool Build(Plan* plan) final {
    int64_t bytes = 0;
    if (!Good(graph_.build_plan_at_index(plan->index))) return false;
    if (!Good(graph_.get_workspace_size_plan_at_index(plan->index, bytes))) return false;
    plan->workspace = static_cast<size_t>(bytes);
    return true;
  }

  void Run(const Plan& plan, const Memory& memory, void* workspace, cudaStream_t stream) const final {
    cudnnHandle_t handle = Handle(device_);
    COLLAGE_CUDNN(cudnnSetStream, handle, stream);
    // The frontend adds the numbers that it gave itself (an epsilon, a scale), but replaces none that is there.
    std::unordered_map<int64_t, void*> pointers;
    for (size_t i = 0; i < memory.tensors.size(); ++i) pointers.emplace(static_cast<int64_t>(i) + 1, memory.tensors[i]);
    if (memory.between != nullptr) pointers.emplace(kBetween, memory.between);
    fe::error_t status = graph_.execute_plan_at_index(handle, pointers, workspace, plan.index);
    if (status.is_bad()) TVM_FFI_THROW(RuntimeError) << "cuDNN's plan " << plan.name << ": " << status.get_message();
  }

 private:
  /*! Whether a plan's kernel is compiled when the plan is built. */
  bool IsCompiled(int64_t index) {
    std::vector<fe::BehaviorNote_t> notes;
    if (!Good(graph_.get_behavior_notes_for_plan_at_index(index, notes))) return false;
    return std::find(notes.begin(), notes.end(), fe::BehaviorNote_t::RUNTIME_COMPILATION) != notes.end();
  }

  bool BuildFor(const Target& target) {
    if (target.described == nullptr) return Good(graph_.build_operation_graph(Handle(target.device)));
    graph_.set_device_properties(target.described);
    return Good(graph_.build_operation_graph());
  }

  bool Good(fe::error_t status) {
    if (status.is_bad()) Note(status.get_message());
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

  std::vector<Plan> Proposals() final { return {{name_}}; }
  bool Build(Plan*) final { return true; }

  void Run(const Plan&, const Memory& memory, void*, cudaStream_t stream) const final {
    cudnnHandle_t handle = Handle(device_);
    COLLAGE_CUDNN(cudnnSetStream, handle, stream);
    call_(handle, memory.tensors[x_], memory.tensors[y_]);
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
