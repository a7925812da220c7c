/*!
 * From a problem to the plans that run it: the plans of each stage of each form of forms.h are built and timed, by
 * device events on memory of their own, and the fastest kept as they are: building a plan can take seconds.
 */
#ifndef COLLAGE_RUNTIME_CUDA_CUDNN_GRAPH_H_
#define COLLAGE_RUNTIME_CUDA_CUDNN_GRAPH_H_

#include "../timing.h"
#include "builders.h"
#include "forms.h"

#include <future>
#include <optional>

namespace collage {
namespace cudnn {

/*! How many plans of a stage are timed. */
constexpr size_t kPlans = 8;

/*! What was chosen: a form, and a plan for each of its stages. */
struct Choice {
  std::string form;
  std::vector<std::string> plans;
  /*! Sum over the stages, and how many plans were timed; 0 where the choice was given. */
  double microseconds = 0;
  int64_t timed = 0;

  std::string Json() const {
    json::Array names;
    for (const std::string& plan : plans) names.push_back(ffi::String(plan));
    json::Object object;
    object.Set(ffi::String("form"), ffi::String(form));
    object.Set(ffi::String("plans"), names);
    object.Set(ffi::String("microseconds"), microseconds);
    object.Set(ffi::String("timed"), timed);
    object.Set(ffi::String("version"), Version());
    ffi::String text = json::Stringify(object);
    return std::string(text.data(), text.size());
  }

  /*! None when there is none, or another version of the library made it: plans are named by its engines' numbers. */
  static std::optional<Choice> Read(const std::string& text) {
    if (text.empty()) return std::nullopt;
    json::Object object = cuda::ParseObject(text);
    if (cuda::Int(object, "version") != Version()) return std::nullopt;
    Choice choice{cuda::Text(object, "form"), {}};
    for (const ffi::Any& name : cuda::Get(object, "plans").cast<json::Array>()) {
      ffi::String plan = name.cast<ffi::String>();
      choice.plans.emplace_back(plan.data(), plan.size());
    }
    if (cuda::Has(object, "microseconds")) choice.microseconds = cuda::Real(object, "microseconds");
    return choice;
  }
};

/*! The stages of one form, each with its plan. */
class GraphComputation : public Computation {
 public:
  GraphComputation(std::string form, size_t between) : between_(between), choice_{std::move(form), {}} {}

  void Append(const Ready& step, double microseconds, size_t timed) {
    needed_ = std::max(needed_, step.plan.workspace);
    choice_.plans.push_back(step.plan.name);
    choice_.microseconds += microseconds;
    choice_.timed += static_cast<int64_t>(timed);
    steps_.push_back(step);
  }

  double microseconds() const { return choice_.microseconds; }
  size_t workspace() const final { return Offset(between_) + needed_; }
  std::string choice() const final { return choice_.Json(); }
  bool Is(const std::string& given) const final {
    std::optional<Choice> other = Choice::Read(given);
    return !other || (other->form == choice_.form && other->plans == choice_.plans);
  }

  void Run(const std::vector<void*>& pointers, void* workspace, cudaStream_t stream) const final {
    Memory memory{pointers, between_ > 0 ? workspace : nullptr};
    for (const auto& [stage, plan] : steps_) stage->Run(plan, memory, static_cast<char*>(workspace) + Offset(between_), stream);
  }

  /*! Where the plans' own workspace starts, behind the memory between the stages. */
  static size_t Offset(size_t between) { return (between + 255) / 256 * 256; }

 private:
  size_t between_, needed_ = 0;
  Choice choice_;
  std::vector<Ready> steps_;
};

/*! Memory to time a problem's forms on. */
class Bench {
 public:
  Bench(const Problem& problem, size_t between, int device) : operands_(device, cuda::Stream(device)) {
    for (size_t i = 0; i < problem.tensors.size(); ++i) {
      const View& view = problem.tensors[i];
      bool weight = !cuda::Has(problem.references[i], "arg"), read = i + 1 < problem.tensors.size();
      reads_weights_ = reads_weights_ || weight;
      memory_.tensors.push_back(operands_.Add(view.Bytes(), FormatOf(view.dtype), read && !weight));
    }
    if (between > 0) memory_.between = operands_.Add(between, cuda::Floats::kBfloat16, true);
  }

  /*! What each plan takes. */
  std::vector<cuda::Timing> Time(const std::vector<Ready>& plans, Stage* notes) const {
    size_t most = 0;
    for (const Ready& ready : plans) most = std::max(most, ready.plan.workspace);
    cuda::DeviceBuffer workspace(most, operands_.device());
    return cuda::TakeTurns(
        operands_, plans.size(), reads_weights_,
        [&](size_t i, cudaStream_t stream) { plans[i].stage->Run(plans[i].plan, memory_, workspace.data(), stream); },
        [&](size_t, const char* reason) { notes->Note(reason); });
  }

 private:
  static cuda::Floats FormatOf(const std::string& dtype) {
    if (dtype == "float16") return cuda::Floats::kFloat16;
    return dtype == "float32" ? cuda::Floats::kFloat32 : cuda::Floats::kBfloat16;
  }

  cuda::Operands operands_;
  bool reads_weights_ = false;
  Memory memory_;
};

/*! A form with the plans of a choice; none where the library does not have them any more. */
inline std::shared_ptr<GraphComputation> Chosen(const Form& form, const Choice& choice, int device) {
  if (choice.plans.size() != form.stages.size()) return nullptr;
  auto computation = std::make_shared<GraphComputation>(form.name, form.between);
  for (size_t i = 0; i < form.stages.size(); ++i) {
    std::vector<Ready> found = Builders(form.stages[i], 1, choice.plans[i], device).ready();
    if (found.empty()) return nullptr;
    computation->Append(found[0], i == 0 ? choice.microseconds : 0, 0);
  }
  return computation;
}

/*! The stages of a form, which are built meanwhile. */
using Building = std::vector<std::future<std::unique_ptr<Builders>>>;

/*! A form with the fastest plan of every stage; none, and the reason, where a stage has no plan that runs. */
inline std::shared_ptr<GraphComputation> Timed(const Problem& problem, const Form& form, Building* building, int device,
                                               std::string* reasons) {
  auto computation = std::make_shared<GraphComputation>(form.name, form.between);
  Bench bench(problem, form.between, device);
  for (auto& stage : *building) {
    std::unique_ptr<Builders> builders = stage.get();
    std::vector<Ready> plans = builders->ready();
    std::vector<cuda::Timing> timings = bench.Time(plans, builders->notes());
    size_t fastest = cuda::Fastest(timings);
    if (timings.empty() || timings[fastest].microseconds == cuda::kNever) {
      *reasons += "; " + form.name + ": " + builders->notes()->reasons();
      return nullptr;
    }
    computation->Append(plans[fastest], timings[fastest].microseconds, plans.size());
  }
  return computation;
}

/*! A problem with its plans ready: those of `given`, a choice as JSON, as far as the library has them; else the fastest. */
inline std::shared_ptr<const Computation> Prepare(const Problem& problem, const std::string& given, int device) {
  Handle(device);
  Writer writer(problem, Target::Of(device));
  std::vector<Form> forms = writer.Forms();
  if (std::optional<Choice> known = Choice::Read(given)) {
    for (const Form& form : forms) {
      if (form.name != known->form) continue;
      if (auto computation = Chosen(form, *known, device)) return computation;
    }
  }
  // All are built before the first is timed: it is to have the processor to itself.
  std::vector<Building> building(forms.size());
  for (size_t i = 0; i < forms.size(); ++i) {
    for (const auto& make : forms[i].stages) {
      building[i].push_back(std::async(std::launch::async, [&make, device] {
        return std::make_unique<Builders>(make, kPlans, "", device);
      }));
    }
  }
  for (const Building& stages : building) {
    for (const auto& stage : stages) stage.wait();
  }
  std::shared_ptr<GraphComputation> best;
  std::string reasons;
  for (size_t i = 0; i < forms.size(); ++i) {
    std::shared_ptr<GraphComputation> timed = Timed(problem, forms[i], &building[i], device, &reasons);
    if (timed && (!best || timed->microseconds() < best->microseconds())) best = timed;
  }
  if (!best) TVM_FFI_THROW(RuntimeError) << "cuDNN has no plan for this " << problem.op << reasons;
  return best;
}

/*!
 * The plans that cuDNN has for a problem on a device that need not be there, as JSON: form -> a list of names per stage.
 *
 * `device` describes it, as cuDNN's own JSON of device properties. The routines are not asked: they have no plans.
 */
inline std::string PlansFor(const Problem& problem, const std::string& device) {
  Connect();
  auto properties = std::make_shared<fe::DeviceProperties>();
  fe::error_t status = properties->deserialize(std::vector<uint8_t>(device.begin(), device.end()));
  if (status.is_bad()) TVM_FFI_THROW(ValueError) << "cuDNN does not understand the device: " << status.get_message();
  int32_t capability = static_cast<int32_t>(cuda::Int(cuda::ParseObject(device), "deviceVer")) / 10;
  Writer writer(problem, {0, capability, properties});
  json::Object result;
  for (const Form& form : writer.Forms()) {
    json::Array stages;
    if (form.name == "routine") continue;
    for (const auto& make : form.stages) {
      json::Array names;
      Builders builders(make, kPlans, "", std::nullopt);
      for (const Ready& ready : builders.ready()) names.push_back(ffi::String(ready.plan.name));
      if (names.empty()) names.push_back(ffi::String("none: " + builders.notes()->reasons()));
      stages.push_back(names);
    }
    result.Set(ffi::String(form.name), stages);
  }
  ffi::String text = json::Stringify(result);
  return std::string(text.data(), text.size());
}

}  // namespace cudnn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_CUDA_CUDNN_GRAPH_H_
