/*!
 * Which of several ways to compute one thing is the fastest: timed as replays of CUDA graphs, in turns.
 *
 * At batch 1 a kernel takes less time than its launch, so that launches on an idle stream time the host. Here so many bytes
 * are written before every sample that the host has queued all of it when the device gets there. The writes empty the
 * last-level cache as well; a way that reads weights is timed after them, because those of a whole network do not stay in
 * the cache from one call to the next, but with its inputs written again, as their producers would have.
 */
#ifndef COLLAGE_RUNTIME_CUDA_TIMING_H_
#define COLLAGE_RUNTIME_CUDA_TIMING_H_

#include <cmath>

#include "partition.h"

namespace collage {
namespace cuda {

/*! What a way that does not run takes. */
constexpr float kNever = std::numeric_limits<float>::infinity();

/*! Microseconds of one run: the median of some samples, and the standard error of that median. */
struct Timing {
  float microseconds = kNever;
  float error = 0;

  static Timing Of(std::vector<float> samples) {
    float middle = Median(&samples);
    for (float& sample : samples) sample = std::fabs(sample - middle);
    // 1.4826 makes a deviation of a normal distribution of the median one; a median is 1.2533 times as uncertain as a mean.
    return {middle, 1.4826f * 1.2533f * Median(&samples) / std::sqrt(static_cast<float>(samples.size()))};
  }

 private:
  static float Median(std::vector<float>* values) {
    auto middle = values->begin() + static_cast<std::ptrdiff_t>(values->size() / 2);
    std::nth_element(values->begin(), middle, values->end());
    return *middle;
  }
};

/*!
 * The first of those ways that are not told apart from the fastest: by twice the errors, or by a hundredth. So the choice
 * is the library's own where the clock does not decide.
 */
inline size_t Fastest(const std::vector<Timing>& timings) {
  size_t best = 0;
  for (size_t i = 1; i < timings.size(); ++i) {
    if (timings[i].microseconds < timings[best].microseconds) best = i;
  }
  for (size_t i = 0; i < best; ++i) {
    float margin = std::max(0.01f * timings[best].microseconds, 2 * (timings[i].error + timings[best].error));
    if (timings[i].microseconds <= timings[best].microseconds + margin) return i;
  }
  return best;
}

enum class Floats { kFloat32, kFloat16, kBfloat16 };

/*! Fill memory with random numbers of magnitudes from 1/16 to 1: zeros and constants would save power, and time. */
inline void FillRandom(void* memory, size_t bytes, Floats format, cudaStream_t stream) {
  constexpr size_t kWords = size_t{1} << 15;
  std::vector<uint16_t> words(kWords);
  uint32_t state = 2463534242u;
  for (size_t i = 0; i < kWords; ++i) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    uint32_t sign = state & 0x8000u, exponent = state >> 16 & 3u, mantissa = state >> 18;
    uint32_t half = sign | (11u + exponent) << 10 | (mantissa & 0x3ffu), wide = sign | (123u + exponent) << 7 | (mantissa & 0x7fu);
    // The upper half of a float32 has the format of a bfloat16; numbers lie with their lower half first.
    uint32_t word = format == Floats::kFloat16 ? half : format == Floats::kBfloat16 || i % 2 == 1 ? wide : mantissa;
    words[i] = static_cast<uint16_t>(word);
  }
  size_t done = std::min(bytes, kWords * sizeof(uint16_t));
  if (done > 0) COLLAGE_CUDA(cudaMemcpyAsync, memory, words.data(), done, cudaMemcpyHostToDevice, stream);
  COLLAGE_CUDA(cudaStreamSynchronize, stream);
  while (done < bytes) {
    size_t more = std::min(done, bytes - done);
    COLLAGE_CUDA(cudaMemcpyAsync, static_cast<char*>(memory) + done, memory, more, cudaMemcpyDeviceToDevice, stream);
    done += more;
  }
}

/*! Random data on the device, which can be written again. */
class Operands {
 public:
  Operands(int device, cudaStream_t stream) : device_(device), stream_(stream) {}

  /*! Memory that a run reads, or writes; `fresh` data comes from a run before, so that the cache has it. */
  void* Add(size_t bytes, Floats format, bool fresh) {
    buffers_.push_back(std::make_unique<DeviceBuffer>(bytes, device_));
    void* memory = buffers_.back()->data();
    FillRandom(memory, bytes, format, stream_);
    if (fresh && bytes > 0) {
      copies_.push_back({memory, std::make_unique<DeviceBuffer>(bytes, device_), bytes});
      COLLAGE_CUDA(cudaMemcpyAsync, copies_.back().from->data(), memory, bytes, cudaMemcpyDeviceToDevice, stream_);
    }
    return memory;
  }

  /*! As its producers would, write what is fresh. */
  void Refresh() const {
    for (const Copy& copy : copies_) {
      COLLAGE_CUDA(cudaMemcpyAsync, copy.to, copy.from->data(), copy.bytes, cudaMemcpyDeviceToDevice, stream_);
    }
  }

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }

 private:
  struct Copy {
    void* to;
    std::unique_ptr<DeviceBuffer> from;
    size_t bytes;
  };
  int device_;
  cudaStream_t stream_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::vector<Copy> copies_;
};

/*! Runs in a row, captured as one CUDA graph. */
class Replay {
 public:
  template <typename Run>
  Replay(int runs, Run&& run) {
    cudaStream_t made = nullptr;
    COLLAGE_CUDA(cudaStreamCreateWithFlags, &made, cudaStreamNonBlocking);
    std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamEnd> stream(made);
    COLLAGE_CUDA(cudaStreamBeginCapture, made, cudaStreamCaptureModeRelaxed);
    std::exception_ptr failed;
    try {
      for (int i = 0; i < runs; ++i) run(made);
    } catch (...) {
      failed = std::current_exception();
    }
    cudaGraph_t captured = nullptr;
    cudaError_t status = COLLAGE_FUNCTION(kRuntimeLibrary, cudaStreamEndCapture)(made, &captured);
    std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphEnd> graph(captured);
    if (failed) std::rethrow_exception(failed);
    Check(status, "cudaStreamEndCapture");
    cudaGraphExec_t executable = nullptr;
    COLLAGE_CUDA(cudaGraphInstantiate, &executable, captured, 0);
    executable_.reset(executable);
  }

  void Launch(cudaStream_t stream) const { COLLAGE_CUDA(cudaGraphLaunch, executable_.get(), stream); }

 private:
  struct StreamEnd {
    void operator()(cudaStream_t stream) const { COLLAGE_FUNCTION(kRuntimeLibrary, cudaStreamDestroy)(stream); }
  };
  struct GraphEnd {
    void operator()(cudaGraph_t graph) const { COLLAGE_FUNCTION(kRuntimeLibrary, cudaGraphDestroy)(graph); }
  };
  struct ExecutableEnd {
    void operator()(cudaGraphExec_t graph) const { COLLAGE_FUNCTION(kRuntimeLibrary, cudaGraphExecDestroy)(graph); }
  };
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, ExecutableEnd> executable_;
};

/*! Takes samples on a stream. */
class Stopwatch {
 public:
  explicit Stopwatch(const Operands& operands)
      : operands_(operands), filler_bytes_(FillerBytes(operands.device())), filler_(filler_bytes_, operands.device()) {
    COLLAGE_CUDA(cudaEventCreate, &start_);
    COLLAGE_CUDA(cudaEventCreate, &stop_);
  }
  ~Stopwatch() {
    COLLAGE_FUNCTION(kRuntimeLibrary, cudaEventDestroy)(start_);
    COLLAGE_FUNCTION(kRuntimeLibrary, cudaEventDestroy)(stop_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  /*! Microseconds that `launch` takes the device: `cold` directly after the writes, otherwise after it ran once. */
  template <typename Launch>
  float Sample(bool cold, Launch&& launch) {
    COLLAGE_CUDA(cudaMemsetAsync, filler_.data(), ++value_ & 0xff, filler_bytes_, operands_.stream());
    operands_.Refresh();
    if (!cold) launch();
    COLLAGE_CUDA(cudaEventRecord, start_, operands_.stream());
    launch();
    COLLAGE_CUDA(cudaEventRecord, stop_, operands_.stream());
    COLLAGE_CUDA(cudaEventSynchronize, stop_);
    float milliseconds = 0;
    COLLAGE_CUDA(cudaEventElapsedTime, &milliseconds, start_, stop_);
    return milliseconds * 1000;
  }

 private:
  /*! Twice the last-level cache, and so much that the host has issued a sample before they are written. */
  static size_t FillerBytes(int device) {
    int cache = 0;
    COLLAGE_CUDA(cudaDeviceGetAttribute, &cache, cudaDevAttrL2CacheSize, device);
    return std::max(2 * static_cast<size_t>(cache), size_t{128} << 20);
  }

  const Operands& operands_;
  size_t filler_bytes_;
  DeviceBuffer filler_;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  int value_ = 0;
};

/*!
 * What each of several ways takes, which take turns. One that fails costs itself only: `note(i, reason)` is told. One that
 * cannot be captured is launched instead.
 *
 * `run(i, stream)` runs one way; `cold` says that it reads weights. A sample of ways that are not cold has several runs,
 * because events resolve half a microsecond.
 */
template <typename Run, typename Note>
std::vector<Timing> TakeTurns(const Operands& operands, size_t count, bool cold, Run&& run, Note&& note) {
  constexpr int kRounds = 9, kRuns = 8;
  constexpr float kLong = 200;
  cudaStream_t stream = operands.stream();
  Stopwatch stopwatch(operands);
  std::vector<std::unique_ptr<Replay>> replays(count);
  std::vector<int> runs(count, 1);
  std::vector<std::vector<float>> samples(count);
  std::vector<bool> failed(count, false);
  auto guarded = [&](size_t i, auto&& action) {
    if (failed[i]) return;
    try {
      action();
    } catch (const std::exception& error) {
      failed[i] = true;
      note(i, error.what());
    }
  };
  for (size_t i = 0; i < count; ++i) {
    guarded(i, [&] {
      run(i, stream);  // loads its kernels, which may allocate
      float once = stopwatch.Sample(cold, [&] { run(i, stream); });
      runs[i] = cold || once > kLong ? 1 : kRuns;
      try {
        replays[i] = std::make_unique<Replay>(runs[i], [&](cudaStream_t captured) { run(i, captured); });
      } catch (const std::exception&) {
        replays[i] = nullptr;
      }
    });
  }
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < count; ++i) {
      guarded(i, [&] {
        float time = stopwatch.Sample(cold, [&] {
          if (replays[i]) return replays[i]->Launch(stream);
          for (int n = 0; n < runs[i]; ++n) run(i, stream);
        });
        samples[i].push_back(time / static_cast<float>(runs[i]));
      });
    }
  }
  std::vector<Timing> timings(count);
  for (size_t i = 0; i < count; ++i) {
    if (!failed[i]) timings[i] = Timing::Of(samples[i]);
  }
  return timings;
}

}  // namespace cuda
}  // namespace collage

#endif  // COLLAGE_RUNTIME_CUDA_TIMING_H_
