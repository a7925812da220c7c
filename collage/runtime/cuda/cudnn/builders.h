/*!
 * The plans of one stage, built side by side: cuDNN compiles some of them there and then, which takes a second each.
 *
 * Every thread has a handle and a graph of its own, because neither is to be used by two; plans keep the graph that they
 * were built in. What is built, and how much, is the same as by one thread.
 */
#ifndef COLLAGE_RUNTIME_CUDA_CUDNN_BUILDERS_H_
#define COLLAGE_RUNTIME_CUDA_CUDNN_BUILDERS_H_

#include "stage.h"

#include <chrono>
#include <optional>
#include <thread>

#ifndef COLLAGE_CUDNN_BUILDERS
#define COLLAGE_CUDNN_BUILDERS std::min(8u, std::max(1u, std::thread::hardware_concurrency()))
#endif

namespace collage {
namespace cudnn {

/*!
 * After so many seconds, or so many plans that cuDNN compiles there and then, a stage has plans enough: a network has
 * hundreds of partitions.
 */
constexpr double kBuildSeconds = 3;
constexpr size_t kMostCompiled = 3;

/*! A plan that can run, and the stage that it was built in. */
struct Ready {
  std::shared_ptr<Stage> stage;
  Plan plan;
};

class Builders {
 public:
  using Make = std::function<std::unique_ptr<Stage>()>;

  /*!
   * Up to `most` plans, in the library's order, or only the one called `name`; none, and `reasons` say why. `device` is the
   * one that is used, or none where it is only described.
   */
  Builders(const Make& make, size_t most, const std::string& name, std::optional<int> device)
      : device_(device), most_(most) {
    std::optional<cuda::DeviceGuard> guard;
    if (device_) guard.emplace(*device_);
    first_ = make();
    for (const Plan& plan : first_->Proposals()) {
      if (name.empty() || plan.name == name) proposals_.push_back({plan});
    }
    size_t wanted = std::min(most, proposals_.size());
    std::vector<std::thread> threads;
    for (size_t i = 1; i < std::min(wanted, static_cast<size_t>(COLLAGE_CUDNN_BUILDERS)); ++i) {
      threads.emplace_back([&] { Help(make); });
    }
    Work(first_, {});
    for (std::thread& thread : threads) thread.join();
    for (const std::shared_ptr<Stage>& helper : helpers_) first_->NoteAll(*helper);
    for (const std::string& reason : failures_) first_->Note(reason);
  }

  std::vector<Ready> ready() const {
    std::vector<Ready> plans;
    for (const Proposal& proposal : proposals_) {
      if (proposal.state == State::kBuilt) plans.push_back({proposal.stage, proposal.plan});
    }
    return plans;
  }

  /*! Keeps the reasons why plans do not run. */
  Stage* notes() const { return first_.get(); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kProposed, kTaken, kBuilt, kRefused };
  struct Proposal {
    Plan plan;
    State state = State::kProposed;
    std::shared_ptr<Stage> stage = nullptr;
  };

  void Help(const Make& make) {
    std::shared_ptr<Stage> stage;
    std::map<std::string, Plan> own;
    std::optional<cuda::DeviceGuard> guard;
    try {
      if (device_) guard.emplace(*device_);
      stage = make();
      for (const Plan& plan : stage->Proposals()) own.emplace(plan.name, plan);
    } catch (const std::exception& error) {
      std::lock_guard<std::mutex> lock(mutex_);
      failures_.push_back(error.what());
      return;
    }
    Work(stage, own);
    std::lock_guard<std::mutex> lock(mutex_);
    helpers_.push_back(stage);
  }

  /*! Build what nobody has taken; `own` are the proposals of a stage that is not the first one. */
  void Work(const std::shared_ptr<Stage>& stage, const std::map<std::string, Plan>& own) {
    while (Proposal* taken = Next()) {
      Plan plan = taken->plan;
      bool built = false;
      std::string failure;
      try {
        if (stage != first_) plan = own.at(plan.name);
        built = stage->Build(&plan);
      } catch (const std::exception& error) {
        failure = error.what();
      }
      std::lock_guard<std::mutex> lock(mutex_);
      taken->state = built ? State::kBuilt : State::kRefused;
      if (built) {
        taken->plan = plan;
        taken->stage = stage;
      }
      if (!failure.empty()) failures_.push_back(failure);
    }
  }

  /*! The next proposal to build, taken; null when there are plans enough. */
  Proposal* Next() {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t built = 0, compiled = 0, begun = 0;
    for (const Proposal& proposal : proposals_) {
      bool counts = proposal.state == State::kTaken || proposal.state == State::kBuilt;
      begun += counts;
      compiled += counts && proposal.plan.compiles;
      built += proposal.state == State::kBuilt;
    }
    bool late = built > 0 && std::chrono::duration<double>(Clock::now() - start_).count() > kBuildSeconds;
    if (begun >= most_ || late) return nullptr;
    for (Proposal& proposal : proposals_) {
      if (proposal.state != State::kProposed || (proposal.plan.compiles && compiled >= kMostCompiled)) continue;
      proposal.state = State::kTaken;
      return &proposal;
    }
    return nullptr;
  }

  std::optional<int> device_;
  size_t most_;
  std::shared_ptr<Stage> first_;
  std::vector<Proposal> proposals_;
  /*! The others' stages, and what they threw. */
  std::vector<std::shared_ptr<Stage>> helpers_;
  std::vector<std::string> failures_;
  std::mutex mutex_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace cudnn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_CUDA_CUDNN_BUILDERS_H_
