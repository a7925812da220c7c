/*!
 * Time on an accelerator: events on TVM's current stream, and what measuring needs to queue there.
 *
 * The functions of the CUDA runtime are looked up in the library that TVM itself uses, when `open` names it, so that this file needs
 * neither NVIDIA's headers nor a device to be compiled. Their signatures are those of the CUDA Runtime API 12 and 13.
 *
 * Calls can be captured as a graph, on a stream of this file's own, and replayed on TVM's: that is how the kernels of a plan
 * run, without a launch by the host for each.
 */
#include <dlfcn.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

// Both stopwatches may be in one process: nothing here may be found by the other one.
namespace collage {
namespace {
namespace ffi = tvm::ffi;

using Event = void*;
using Stream = void*;
using Graph = void*;
constexpr int kDeviceToDevice = 3;           // cudaMemcpyDeviceToDevice
constexpr int kRelaxed = 2;                  // cudaStreamCaptureModeRelaxed
constexpr unsigned int kNonBlocking = 1;     // cudaStreamNonBlocking

struct Runtime {
  int (*event_create)(Event*);
  int (*event_record)(Event, Stream);
  int (*event_elapsed)(float*, Event, Event);
  int (*memset_async)(void*, int, size_t, Stream);
  int (*memcpy_async)(void*, const void*, size_t, int, Stream);
  int (*stream_synchronize)(Stream);
  int (*device_synchronize)();
  int (*allocate)(void**, size_t);
  int (*stream_create)(Stream*, unsigned int);
  int (*begin_capture)(Stream, int);
  int (*end_capture)(Stream, Graph*);
  int (*graph_instantiate)(Graph*, Graph, unsigned long long);
  int (*graph_launch)(Graph, Stream);
  int (*graph_destroy)(Graph);
  int (*executable_destroy)(Graph);
  int (*last_error)();
  const char* (*error_string)(int);
};

struct Call {
  std::string symbol;
  size_t begin, end;            // events
  int64_t host_begin, host_end; // nanoseconds
};

Runtime* runtime = nullptr;
std::vector<Event> events;
std::vector<Call> calls;
size_t next_event = 0;

int64_t HostNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Check(int error, const char* what) {
  if (error != 0) TVM_FFI_THROW(CUDAError) << what << " failed: " << runtime->error_string(error);
}

template <typename F>
void Find(void* library, F* function, const char* name) {
  *reinterpret_cast<void**>(function) = dlsym(library, name);
  if (*function == nullptr) TVM_FFI_THROW(RuntimeError) << "the CUDA runtime has no function " << name;
}

void Open(ffi::String path) {
  if (runtime != nullptr) return;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) TVM_FFI_THROW(RuntimeError) << "the CUDA runtime does not load: " << dlerror();
  static Runtime found;
  Find(library, &found.event_create, "cudaEventCreate");
  Find(library, &found.event_record, "cudaEventRecord");
  Find(library, &found.event_elapsed, "cudaEventElapsedTime");
  Find(library, &found.memset_async, "cudaMemsetAsync");
  Find(library, &found.memcpy_async, "cudaMemcpyAsync");
  Find(library, &found.stream_synchronize, "cudaStreamSynchronize");
  Find(library, &found.device_synchronize, "cudaDeviceSynchronize");
  Find(library, &found.allocate, "cudaMalloc");
  Find(library, &found.stream_create, "cudaStreamCreateWithFlags");
  Find(library, &found.begin_capture, "cudaStreamBeginCapture");
  Find(library, &found.end_capture, "cudaStreamEndCapture");
  Find(library, &found.graph_instantiate, "cudaGraphInstantiate");
  Find(library, &found.graph_launch, "cudaGraphLaunch");
  Find(library, &found.graph_destroy, "cudaGraphDestroy");
  Find(library, &found.executable_destroy, "cudaGraphExecDestroy");
  Find(library, &found.last_error, "cudaGetLastError");
  Find(library, &found.error_string, "cudaGetErrorString");
  runtime = &found;
}

Stream Current() { return TVMFFIEnvGetStream(kDLCUDA, 0); }

// Puts an event into the stream; its number.
int64_t Record() {
  if (next_event == events.size()) {
    Event event = nullptr;
    Check(runtime->event_create(&event), "cudaEventCreate");
    events.push_back(event);
  }
  Check(runtime->event_record(events[next_event], Current()), "cudaEventRecord");
  return static_cast<int64_t>(next_event++);
}

double Elapsed(int64_t from, int64_t to) {
  float milliseconds = 0;
  Check(runtime->event_elapsed(&milliseconds, events[from], events[to]), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

void Synchronize() { Check(runtime->stream_synchronize(Current()), "cudaStreamSynchronize"); }

// Forgets all events; their numbers are used again.
void Reset() {
  next_event = 0;
  calls.clear();
}

// Writes to a buffer of the device, so that what its last-level cache held before is gone.
void Evict(int64_t bytes) {
  static void* buffer = nullptr;
  static int64_t size = 0;
  static int value = 0;
  if (size < bytes) {
    Check(runtime->allocate(&buffer, static_cast<size_t>(bytes)), "cudaMalloc");
    size = bytes;
  }
  Check(runtime->memset_async(buffer, ++value & 0xff, static_cast<size_t>(bytes), Current()), "cudaMemsetAsync");
}

// Copies one tensor of the device over another, as if a producer had just written it.
void Restore(ffi::TensorView to, ffi::TensorView from) {
  size_t bytes = (to.dtype().bits * to.dtype().lanes + 7) / 8;
  for (int i = 0; i < to.ndim(); ++i) bytes *= static_cast<size_t>(to.size(i));
  if (bytes == 0) return;
  Check(runtime->memcpy_async(to.data_ptr(), from.data_ptr(), bytes, kDeviceToDevice, Current()), "cudaMemcpyAsync");
}

// What `calls` does on TVM's current stream, as a graph; the number to launch it by. What is thrown ends the capture.
int64_t Capture(ffi::Function calls) {
  static Stream stream = nullptr;
  if (stream == nullptr) Check(runtime->stream_create(&stream, kNonBlocking), "cudaStreamCreateWithFlags");
  TVMFFIStreamHandle before = nullptr;
  Check(runtime->begin_capture(stream, kRelaxed), "cudaStreamBeginCapture");
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIEnvSetStream(kDLCUDA, 0, stream, &before));
  std::exception_ptr failed;
  try {
    calls();
  } catch (...) {
    failed = std::current_exception();
  }
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIEnvSetStream(kDLCUDA, 0, before, nullptr));
  Graph captured = nullptr, executable = nullptr;
  int status = runtime->end_capture(stream, &captured);
  if (failed) {
    runtime->last_error();
    std::rethrow_exception(failed);
  }
  Check(status, "cudaStreamEndCapture");
  status = runtime->graph_instantiate(&executable, captured, 0);
  runtime->graph_destroy(captured);
  Check(status, "cudaGraphInstantiate");
  return reinterpret_cast<int64_t>(executable);
}

void Launch(int64_t graph) { Check(runtime->graph_launch(reinterpret_cast<Graph>(graph), Current()), "cudaGraphLaunch"); }

void Drop(int64_t graph) { runtime->executable_destroy(reinterpret_cast<Graph>(graph)); }

// What is wrong with the device, "" when nothing is: after an illegal address every call fails until the process ends.
ffi::String Trouble() {
  int error = runtime->device_synchronize();
  runtime->last_error();
  if (error != 0) error = runtime->device_synchronize();
  return error == 0 ? ffi::String("") : ffi::String(runtime->error_string(error));
}

// Arguments: function, symbol, before_run, return value, call arguments...; returning 0 lets the call go on.
void Tick(const ffi::AnyView* args, int32_t num_args, ffi::Any* rv) {
  *rv = 0;
  ffi::String symbol = args[1].cast<ffi::String>();
  if (symbol.size() >= 11 && std::memcmp(symbol.data(), "vm.builtin.", 11) == 0) return;
  if (args[2].cast<bool>()) {
    int64_t now = HostNow();
    calls.push_back({std::string(symbol.data(), symbol.size()), static_cast<size_t>(Record()), 0, now, now});
  } else {
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
      if (call->end != 0) continue;  // an inner call, which has ended
      call->host_end = HostNow();
      call->end = static_cast<size_t>(Record());
      return;
    }
  }
}

ffi::Function Stopwatch() { return ffi::Function::FromPacked(Tick); }

// One line per call: symbol, begin and end on the device, and what the host took for it, in seconds, separated by tabs.
ffi::String Read() {
  Synchronize();
  std::ostringstream out;
  out << std::setprecision(12);
  for (const Call& call : calls) {
    size_t first = calls.front().begin;
    out << call.symbol << '\t' << Elapsed(first, call.begin) << '\t' << Elapsed(first, call.end) << '\t'
        << static_cast<double>(call.host_end - call.host_begin) * 1e-9 << '\n';
  }
  return ffi::String(out.str());
}

}  // namespace
}  // namespace collage

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def("collage.measure.device.open", collage::Open)
      .def("collage.measure.device.record", collage::Record)
      .def("collage.measure.device.elapsed", collage::Elapsed)
      .def("collage.measure.device.synchronize", collage::Synchronize)
      .def("collage.measure.device.reset", collage::Reset)
      .def("collage.measure.device.evict", collage::Evict)
      .def("collage.measure.device.restore", collage::Restore)
      .def("collage.measure.device.capture", collage::Capture)
      .def("collage.measure.device.launch", collage::Launch)
      .def("collage.measure.device.drop", collage::Drop)
      .def("collage.measure.device.trouble", collage::Trouble)
      .def("collage.measure.device.stopwatch", collage::Stopwatch)
      .def("collage.measure.device.read", collage::Read);
}
