/*!
 * Runs a partition by the CUTLASS kernels that its blob carries (libraries.py, kernels/kernel.h).
 *
 * A kernel library is compiled for one tile shape; which is the fastest depends on the extents. Where there are several
 * they are timed once, on scratch memory, when the partition's function is made; `collage.cuda.cutlass.choice` tells what
 * was found, so that the compiling side ships the winner alone.
 */
#include "kernels/kernel.h"

#include <tvm/ffi/reflection/registry.h>

#include <algorithm>

#include "../timing.h"

namespace collage {
namespace cuda {
namespace {

using Operands = collage_cutlass::Operands;
using collage_cutlass::Problem;

/*! The entry points of one loaded kernel library. It stays loaded: its kernels are registered with the CUDA runtime. */
struct KernelLibrary {
  std::string name;
  decltype(&collage_cutlass_create) create;
  decltype(&collage_cutlass_destroy) destroy;
  decltype(&collage_cutlass_workspace) workspace;
  decltype(&collage_cutlass_run) run;

  /*! Loaded once per process; `digest` is that of the file's contents, which may be had under several names. */
  static const KernelLibrary& Load(const std::string& name, const std::string& digest, const std::string& path) {
    static std::mutex mutex;
    static auto* loaded = new std::map<std::string, std::unique_ptr<KernelLibrary>>();
    std::lock_guard<std::mutex> lock(mutex);
    std::string key = name + " " + digest;
    auto found = loaded->find(key);
    if (found == loaded->end()) found = loaded->emplace(key, std::make_unique<KernelLibrary>(name, path)).first;
    return *found->second;
  }

  KernelLibrary(const std::string& kernel, const std::string& path) : name(kernel) {
    RequireRuntime();
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) TVM_FFI_THROW(RuntimeError) << "kernel " << name << " cannot be loaded: " << dlerror();
    auto interface = Find<decltype(&collage_cutlass_interface)>(handle, "collage_cutlass_interface");
    if (interface() != collage_cutlass::kInterface) {
      TVM_FFI_THROW(RuntimeError) << "kernel " << name << " was compiled for interface " << interface()
                                  << ", this runner has " << collage_cutlass::kInterface << ": compile the model again";
    }
    create = Find<decltype(create)>(handle, "collage_cutlass_create");
    destroy = Find<decltype(destroy)>(handle, "collage_cutlass_destroy");
    workspace = Find<decltype(workspace)>(handle, "collage_cutlass_workspace");
    run = Find<decltype(run)>(handle, "collage_cutlass_run");
  }

 private:
  /*! A kernel's calls go to the CUDA runtime that was loaded first; it has to be the one whose streams it is given. */
  static void RequireRuntime() {
#ifndef COLLAGE_EMULATE
    Lookup(kRuntimeLibrary, "cudaLaunchKernel");
    Dl_info first{};
    void* found = dlsym(RTLD_DEFAULT, "cudaLaunchKernel");
    if (found == nullptr || dladdr(found, &first) == 0 || std::strstr(first.dli_fname, kRuntimeLibrary) != nullptr) return;
    TVM_FFI_THROW(RuntimeError) << "CUTLASS kernels need " << kRuntimeLibrary << ", and " << first.dli_fname
                                << " was loaded before it: import collage before what loads that";
#endif
  }

  template <class Function>
  Function Find(void* handle, const char* symbol) const {
    void* found = dlsym(handle, symbol);
    if (found == nullptr) TVM_FFI_THROW(RuntimeError) << "kernel " << name << " has no " << symbol;
    return reinterpret_cast<Function>(found);
  }
};

/*! One kernel set up for one problem. */
class Plan {
 public:
  Plan(const KernelLibrary& library, const Problem& problem) : library_(&library), plan_(library.create(&problem)) {
    if (plan_ != nullptr) workspace_ = static_cast<size_t>(library.workspace(plan_));
  }
  ~Plan() {
    if (plan_ != nullptr) library_->destroy(plan_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  bool supported() const { return plan_ != nullptr; }
  const std::string& name() const { return library_->name; }
  /*! Bytes of the device's workspace that a run needs. */
  size_t workspace() const { return workspace_; }
  void Run(const Operands& operands, int device, cudaStream_t stream) const {
    Run(operands, workspace_ == 0 ? nullptr : Workspace::Pointer(device, stream), stream);
  }
  void Run(const Operands& operands, void* scratch, cudaStream_t stream) const {
    const char* error = library_->run(plan_, &operands, scratch, static_cast<void*>(stream));
    if (error != nullptr) TVM_FFI_THROW(RuntimeError) << "kernel " << name() << ": " << error;
  }

 private:
  const KernelLibrary* library_;
  void* plan_;
  size_t workspace_ = 0;
};

collage_cutlass::Activation ReadActivation(const json::Object& object) {
  return {static_cast<collage_cutlass::Function>(Int(object, "function")), static_cast<float>(Real(object, "low")),
          static_cast<float>(Real(object, "high"))};
}

Problem ReadProblem(const json::Object& header) {
  json::Object sizes = Child(header, "problem");
  Problem p{};
  const std::pair<const char*, int64_t*> fields[] = {
      {"m", &p.m}, {"n", &p.n}, {"k", &p.k}, {"batch", &p.batch},
      {"lda", &p.lda}, {"ldb", &p.ldb}, {"ldr", &p.ldr}, {"ldd", &p.ldd},
      {"batch_a", &p.batch_a}, {"batch_b", &p.batch_b}, {"batch_r", &p.batch_r}, {"batch_d", &p.batch_d},
      {"images", &p.images}, {"height", &p.height}, {"width", &p.width}, {"channels", &p.channels},
      {"filter_height", &p.filter_height}, {"filter_width", &p.filter_width},
      {"out_height", &p.out_height}, {"out_width", &p.out_width},
      {"pad_height", &p.pad_height}, {"pad_width", &p.pad_width},
      {"stride_height", &p.stride_height}, {"stride_width", &p.stride_width},
      {"dilation_height", &p.dilation_height}, {"dilation_width", &p.dilation_width}};
  for (const auto& [key, value] : fields) {
    if (Has(sizes, key)) *value = Int(sizes, key);
  }
  p.pre = ReadActivation(Child(header, "pre"));
  p.post = ReadActivation(Child(header, "post"));
  return p;
}

/*! What was found when functions were made last in this thread, as JSON; see `collage.cuda.cutlass.choice`. */
std::string& LastChoice() {
  thread_local std::string choice;
  return choice;
}

using Place = const void* Operands::*;

/*! The operands that a computation may read, as the header names them. */
constexpr std::pair<const char*, Place> kPlaces[] = {{"a", &Operands::a},
                                                     {"b", &Operands::b},
                                                     {"column_bias", &Operands::column_bias},
                                                     {"row_bias", &Operands::row_bias},
                                                     {"residual", &Operands::residual}};

class Partition {
 public:
  Partition(const ffi::Bytes& bytes, const std::string& options) : Partition(Blob(bytes), ParseObject(options)) {}

  void Run(ffi::PackedArgs args) const {
    Arguments arguments(args, count_, device_);
    Operands operands{};
    for (const auto& [place, operand] : operands_) operands.*place = operand.pointer(arguments);
    operands.d = arguments.data(count_ - 1);
    plan_->Run(operands, device_, Stream(device_));
  }

 private:
  Partition(const Blob& blob, const json::Object& options)
      : device_(Has(options, "device") ? static_cast<int>(Int(options, "device")) : 0),
        count_(Int(blob.header, "arguments")),
        constants_(blob, device_) {
    DeviceGuard guard(device_);
    json::Object operands = Child(blob.header, "operands");
    for (const auto& [key, place] : kPlaces) {
      if (Has(operands, key)) operands_.emplace_back(place, Operand::Read(Child(operands, key), constants_));
    }
    Problem problem = ReadProblem(blob.header);
    std::vector<std::unique_ptr<Plan>> plans;
    for (const ffi::Any& entry : Get(options, "kernels").cast<json::Array>()) {
      json::Object kernel = entry.cast<json::Object>();
      const KernelLibrary& library = KernelLibrary::Load(Text(kernel, "name"), Text(kernel, "digest"), Text(kernel, "path"));
      auto plan = std::make_unique<Plan>(library, problem);
      if (plan->supported()) plans.push_back(std::move(plan));
    }
    if (plans.empty()) TVM_FFI_THROW(RuntimeError) << "none of the partition's CUTLASS kernels runs it on this device";
    for (const auto& plan : plans) Workspace::Reserve(device_, plan->workspace());
    plan_ = std::move(plans[plans.size() == 1 ? 0 : Choose(plans, Child(blob.header, "bytes"))]);
  }

  /*! The index of the fastest plan; the earlier one where two are not told apart. */
  size_t Choose(const std::vector<std::unique_ptr<Plan>>& plans, const json::Object& sizes) {
    cuda::Operands memory(device_, Stream(device_));
    // In half precision, too, these are ordinary numbers.
    auto buffer = [&](const char* key, bool fresh) {
      return memory.Add(static_cast<size_t>(Int(sizes, key)), Floats::kBfloat16, fresh);
    };
    Operands operands{};
    bool reads_weights = false;
    for (const auto& [place, operand] : operands_) {
      const Place wanted = place;
      auto named = std::find_if(std::begin(kPlaces), std::end(kPlaces), [&](const auto& p) { return p.second == wanted; });
      reads_weights = reads_weights || operand.argument < 0;
      operands.*place = buffer(named->first, operand.argument >= 0);
    }
    operands.d = buffer("d", false);
    size_t most = 0;
    for (const auto& plan : plans) most = std::max(most, plan->workspace());
    DeviceBuffer workspace(most, device_);
    std::string reasons;
    std::vector<Timing> timings = TakeTurns(
        memory, plans.size(), reads_weights,
        [&](size_t i, cudaStream_t stream) { plans[i]->Run(operands, workspace.data(), stream); },
        [&](size_t i, const char* reason) { reasons += std::string("; ") + plans[i]->name() + ": " + OneLine(reason); });
    size_t fastest = Fastest(timings);
    if (timings[fastest].microseconds == kNever) TVM_FFI_THROW(RuntimeError) << "no kernel runs" << reasons;
    json::Object times, errors;
    for (size_t i = 0; i < plans.size(); ++i) {
      if (timings[i].microseconds == kNever) continue;
      times.Set(ffi::String(plans[i]->name()), static_cast<double>(timings[i].microseconds));
      errors.Set(ffi::String(plans[i]->name()), static_cast<double>(timings[i].error));
    }
    json::Object choice;
    choice.Set(ffi::String("kernel"), ffi::String(plans[fastest]->name()));
    choice.Set(ffi::String("microseconds"), times);
    choice.Set(ffi::String("errors"), errors);
    ffi::String text = json::Stringify(choice);
    LastChoice() = std::string(text.data(), text.size());
    return fastest;
  }

  int device_;
  int64_t count_;
  Constants constants_;
  std::vector<std::pair<Place, Operand>> operands_;
  std::unique_ptr<Plan> plan_;
};

ffi::Function Create(ffi::Bytes blob, ffi::String options) {
  LastChoice().clear();
  auto partition = std::make_shared<Partition>(blob, std::string(options.data(), options.size()));
  return ffi::Function::FromPacked([partition](ffi::PackedArgs args, ffi::Any*) { partition->Run(args); });
}

/*! {"kernel": name, "microseconds": {name: time}} of the last function made in this thread; "" where nothing was timed. */
ffi::String Choice() { return ffi::String(LastChoice()); }

void Register() {
  if (ffi::Function::GetGlobal("collage.cuda.cutlass.create").has_value()) return;
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef().def("collage.cuda.cutlass.create", Create).def("collage.cuda.cutlass.choice", Choice);
}

}  // namespace
}  // namespace cuda
}  // namespace collage

TVM_FFI_STATIC_INIT_BLOCK() { collage::cuda::Register(); }
