/*!
 * What measuring needs next to the virtual machine: a stopwatch around its call instructions, and a way to empty the caches.
 *
 * The stopwatch is a VM instrument (VirtualMachine.set_instrument). It takes a time stamp before and after every call that is not
 * one of the VM's own builtins, so that a partition is timed where it will run: inside the VM, without Python around it. Copies
 * between devices are builtins that count.
 */
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

// Both stopwatches may be in one process: nothing here may be found by the other one.
namespace collage {
namespace {
namespace ffi = tvm::ffi;

/*! What copies a tensor to another device. */
constexpr std::string_view kCopy = "vm.builtin.to_device";

struct Span {
  std::string symbol;
  int64_t begin;
  int64_t end;
};

std::vector<Span>& Spans() {
  static std::vector<Span> spans;
  return spans;
}

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Arguments: function, symbol, before_run, return value, call arguments...; returning 0 lets the call go on.
void Tick(const ffi::AnyView* args, int32_t num_args, ffi::Any* rv) {
  int64_t now = Now();
  *rv = 0;
  ffi::String symbol = args[1].cast<ffi::String>();
  std::string_view name(symbol.data(), symbol.size());
  if (name.substr(0, 11) == "vm.builtin." && name != kCopy) return;
  std::vector<Span>& spans = Spans();
  if (args[2].cast<bool>()) {
    spans.push_back({std::string(symbol.data(), symbol.size()), 0, 0});
    spans.back().begin = Now();
  } else {
    spans.back().end = now;
  }
}

ffi::Function Stopwatch() { return ffi::Function::FromPacked(Tick); }

void Reset() { Spans().clear(); }

// One line per call: symbol, begin and end in nanoseconds, separated by tabs.
ffi::String Read() {
  std::ostringstream out;
  for (const Span& span : Spans()) out << span.symbol << '\t' << span.begin << '\t' << span.end << '\n';
  return ffi::String(out.str());
}

// In four places at once: one stream does not use all of the memory's bandwidth.
void Sweep(std::vector<int64_t>* buffer) {
  int64_t* data = buffer->data();
  size_t quarter = buffer->size() / 4;
  for (size_t i = 0; i < quarter; i += 8) {
    data[i] += 1;
    data[i + quarter] += 1;
    data[i + 2 * quarter] += 1;
    data[i + 3 * quarter] += 1;
  }
}

// Writes to one buffer per thread, of the given size, so that what the caches held before is gone from every core.
void Evict(int64_t bytes_per_thread, int64_t threads) {
  static std::vector<std::vector<int64_t>> buffers;
  if (buffers.size() != static_cast<size_t>(threads) || buffers[0].size() != static_cast<size_t>(bytes_per_thread / 8)) {
    buffers.assign(threads, std::vector<int64_t>(bytes_per_thread / 8, 0));
  }
  std::vector<std::thread> workers;
  for (int64_t i = 1; i < threads; ++i) workers.emplace_back([i]() { Sweep(&buffers[i]); });
  Sweep(&buffers[0]);
  for (std::thread& worker : workers) worker.join();
}

// Reads a tensor into this core's cache, as if its producer had just written it.
int64_t Touch(ffi::TensorView tensor) {
  int64_t bytes = (tensor.dtype().bits * tensor.dtype().lanes + 7) / 8;
  for (int i = 0; i < tensor.ndim(); ++i) bytes *= tensor.size(i);
  const volatile char* data = static_cast<const volatile char*>(tensor.data_ptr());
  int64_t sum = 0;
  for (int64_t i = 0; i < bytes; i += 64) sum += data[i];
  return sum;
}

}  // namespace
}  // namespace collage

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def("collage.measure.stopwatch", collage::Stopwatch)
      .def("collage.measure.reset", collage::Reset)
      .def("collage.measure.read", collage::Read)
      .def("collage.measure.evict", collage::Evict)
      .def("collage.measure.touch", collage::Touch);
}
