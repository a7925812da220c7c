// How long two processors take to pass a cache line back and forth.

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

namespace {

constexpr int kBatches = 5;
constexpr int kRoundTrips = 200;
// A partner that is not running would be waited for without end.
constexpr std::chrono::milliseconds kPatience{5};
using Clock = std::chrono::steady_clock;

struct Line {
  alignas(64) std::atomic<long> value{0};
};

bool Pin(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

// Whether the line has the wanted value before the time is up.
bool Await(const Line& line, long wanted, Clock::time_point until) {
  for (int spins = 0; line.value.load(std::memory_order_acquire) != wanted; ++spins) {
    if (spins % 1024 == 1023 && Clock::now() > until) return false;
  }
  return true;
}

}  // namespace

// Nanoseconds of a round trip, the fastest of a few batches; infinite where the processors did not run at a time.
extern "C" double collage_core_to_core_ns(int first, int second) {
  Line line;
  const long trips = static_cast<long>(kBatches) * kRoundTrips;
  const auto until = Clock::now() + kPatience;
  double fastest = std::numeric_limits<double>::infinity();
  std::thread partner([&] {
    if (!Pin(second)) return;
    for (long i = 0; i < trips; ++i) {
      if (!Await(line, 2 * i + 1, until)) return;
      line.value.store(2 * i + 2, std::memory_order_release);
    }
  });
  std::thread self([&] {
    if (!Pin(first)) return;
    auto begin = Clock::now();
    for (long i = 0; i < trips; ++i) {
      line.value.store(2 * i + 1, std::memory_order_release);
      if (!Await(line, 2 * i + 2, until)) return;
      if ((i + 1) % kRoundTrips == 0) {
        const auto now = Clock::now();
        fastest = std::min(fastest, std::chrono::duration<double, std::nano>(now - begin).count() / kRoundTrips);
        begin = now;
      }
    }
  });
  self.join();
  partner.join();
  return fastest;
}
