/*!
 * The threads of TVM's kernels, and of the engines in C++, in place of TVM's own pool.
 *
 * TVM's pool waits by giving up the processor: the caller yields until every worker has done its share. Beside a busy
 * neighbour process each yield lends the neighbour a time slice, milliseconds for a region of microseconds, and a worker that
 * lost its processor is waited for by a caller that keeps the other one busy. Here the caller takes over shares that no worker
 * has begun, and then waits for those that are under way: it polls for a moment, and sleeps. A processor that falls idle is
 * given to the worker that waits for one. Beside a busy process Linux wakes workers where their caller is, for the neighbour's
 * processor looks as busy; so they may run anywhere but there, unless several threads call.
 *
 * Kernels call `__TVMBackendParallelLaunch`, a pointer in their library that is set from a registry when it is loaded. What is
 * registered last counts, so that all libraries that are loaded after this one use this pool. Like TVM's, it belongs to the
 * thread that calls, and has as many threads as TVM says (`runtime.config_threadpool`).
 */
#ifndef COLLAGE_RUNTIME_THREAD_POOL_H_
#define COLLAGE_RUNTIME_THREAD_POOL_H_

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel.h"

namespace tvm {
namespace runtime {
namespace threading {
int NumThreads();
}  // namespace threading
}  // namespace runtime
}  // namespace tvm

namespace collage {
namespace threads {
namespace {  // each compiled model carries a copy; copies of different versions share nothing

/*! A number that threads wait for to change: they poll first, because waking takes longer than most kernels. */
class Signal {
 public:
  uint32_t Read() const { return value_.load(); }

  /*! Returns what was there before. */
  uint32_t Add(int32_t step) { return value_.fetch_add(step); }

  void Wake() {
    if (asleep_.load() > 0) syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  /*! Returns the first value that `fits`. It holds the processor for the first time, and offers it to others for the second. */
  template <typename Fits>
  uint32_t Await(std::chrono::microseconds hold, std::chrono::microseconds offer, Fits&& fits) {
    auto start = std::chrono::steady_clock::now(), now = start;
    do {
      for (int i = 0; i < 32; ++i) {
        uint32_t found = Read();
        if (fits(found)) return found;
        Pause();
      }
      now = std::chrono::steady_clock::now();
      if (now >= start + hold && offer.count() > 0) std::this_thread::yield();
    } while (now < start + hold + offer);
    asleep_.fetch_add(1);
    uint32_t found = Read();
    for (; !fits(found); found = Read()) syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, found, nullptr, nullptr, 0);
    asleep_.fetch_sub(1);
    return found;
  }

 private:
  static void Pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::atomic<uint32_t> value_{0}, asleep_{0};
};

/*! Workers between regions: kernels follow each other within microseconds, engines with threads of their own need room. */
constexpr std::chrono::microseconds kWorkerHolds{20}, kWorkerOffers{300};
/*! Who waits for shares under way: longer than shares differ, shorter than a time slice. */
constexpr std::chrono::microseconds kCallerHolds{200}, kNever{0};

/*! Where the tasks of a region wait for each other. */
struct Barrier {
  std::atomic<int> arrived{0};
  Signal passed;

  void Wait(int tasks) {
    uint32_t before = passed.Read();
    if (arrived.fetch_add(1) + 1 < tasks) {
      passed.Await(kCallerHolds, kNever, [&](uint32_t now) { return now != before; });
      return;
    }
    arrived.store(0);
    passed.Add(1);
    passed.Wake();
  }
};

/*! How many threads of this process have a pool. */
std::atomic<int>& Callers() {
  static std::atomic<int> callers{0};
  return callers;
}

/*! How often this process is a forked one: threads do not come along. */
std::atomic<int>& Forks() {
  static std::atomic<int> forks{0};
  static int registered = pthread_atfork(nullptr, nullptr, [] {
    forks.fetch_add(1);
    Callers().store(0);
  });
  (void)registered;
  return forks;
}

/*! Whether the calling thread is inside a region: another one is not dealt out again. */
bool& Inside() {
  static thread_local bool inside = false;
  return inside;
}

class Pool {
 public:
  explicit Pool(int threads) : forks_(Forks().load()), claimed_(threads) {
    Callers().fetch_add(1);
    CPU_ZERO(&allowed_);
    sched_getaffinity(0, sizeof(allowed_), &allowed_);
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { Serve(i); });
  }

  ~Pool() {
    leaving_.store(true);
    region_.Add(1);
    region_.Wake();
    for (std::thread& worker : workers_) worker.join();
    Callers().fetch_sub(1);
  }

  int size() const { return static_cast<int>(claimed_.size()); }
  bool forked() const { return forks_ != Forks().load(); }

  int Run(ParallelTask task, void* closure, int tasks) {
    task_ = task;
    closure_ = closure;
    env_ = {&barrier_, tasks};
    status_ = 0;
    for (auto& claimed : claimed_) claimed.store(false, std::memory_order_relaxed);
    LeaveCallersProcessor();
    users_.Add(kOpen);
    region_.Add(1);
    region_.Wake();
    Work(0);
    users_.Add(-kOpen);
    users_.Await(kCallerHolds, kNever, [](uint32_t users) { return users == 0; });
    if (error_ != nullptr) TVMFFIErrorSetRaised(error_);
    if (error_ != nullptr) TVMFFIObjectDecRef(error_);
    error_ = nullptr;
    return status_;
  }

 private:
  static constexpr int32_t kOpen = 1 << 30;
  static constexpr int kAnywhere = -1;

  void Serve(int self) {
    Inside() = true;
    for (uint32_t seen = 0;;) {
      seen = region_.Await(kWorkerHolds, kWorkerOffers, [&](uint32_t now) { return now != seen; });
      if (leaving_.load()) return;
      if (users_.Add(1) >= static_cast<uint32_t>(kOpen)) Work(self);  // else the region is over: it is not touched
      if (users_.Add(-1) == 1) users_.Wake();
    }
  }

  /*! Workers may run on every processor but this one, where there is one for each thread and nobody else calls. */
  void LeaveCallersProcessor() {
    int here = Callers().load() > 1 ? kAnywhere : sched_getcpu();
    if (here == caller_at_ || CPU_COUNT(&allowed_) < size()) return;
    caller_at_ = here;
    cpu_set_t others = allowed_;
    if (here != kAnywhere) CPU_CLR(here, &others);
    for (std::thread& worker : workers_) pthread_setaffinity_np(worker.native_handle(), sizeof(others), &others);
  }

  /*! This thread's own task first, then those that nobody has begun. */
  void Work(int self) {
    for (int i = 0; i < env_.num_task; ++i) {
      int id = (self + i) % env_.num_task;
      if (self >= env_.num_task || claimed_[id].load() || claimed_[id].exchange(true)) continue;
      if (task_(id, &env_, closure_) == 0) continue;
      std::lock_guard<std::mutex> lock(mutex_);
      status_ = -1;
      if (error_ == nullptr) TVMFFIErrorMoveFromRaised(&error_);
    }
  }

  int forks_;
  std::vector<std::atomic<bool>> claimed_;
  alignas(64) Signal region_;
  alignas(64) Signal users_;
  std::atomic<bool> leaving_{false};
  ParallelTask task_ = nullptr;
  void* closure_ = nullptr;
  ParallelEnvironment env_{};
  Barrier barrier_;
  std::mutex mutex_;
  int status_ = 0;
  TVMFFIObjectHandle error_ = nullptr;
  cpu_set_t allowed_;
  int caller_at_ = kAnywhere;
  std::vector<std::thread> workers_;
};

/*! The pool of the calling thread, of this many threads at least. */
Pool* OwnPool(int threads) {
  static thread_local std::unique_ptr<Pool> pool;
  if (pool != nullptr && pool->forked()) (void)pool.release();  // its threads are in the other process
  if (pool == nullptr || pool->size() < threads) pool = std::make_unique<Pool>(threads);
  return pool.get();
}

/*! As `TVMBackendParallelLaunch`: calls `task` for each of `count` tasks, by default as many as there are threads. */
int Launch(ParallelTask task, void* closure, int count) {
  bool& inside = Inside();
  int threads = inside ? 1 : tvm::runtime::threading::NumThreads();
  if (count == 0 || count > threads) count = threads;
  if (count == 1) {
    ParallelEnvironment alone{nullptr, 1};
    return task(0, &alone, closure);
  }
  inside = true;
  int status = OwnPool(threads)->Run(task, closure, count);
  inside = false;
  return status;
}

/*! As `TVMBackendParallelBarrier`. */
int Wait(int, ParallelEnvironment* env) {
  if (env->num_task > 1) static_cast<Barrier*>(env->sync_handle)->Wait(env->num_task);
  return 0;
}

}  // namespace
}  // namespace threads
}  // namespace collage

#endif  // COLLAGE_RUNTIME_THREAD_POOL_H_
