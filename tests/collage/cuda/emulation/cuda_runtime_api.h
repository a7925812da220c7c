/*!
 * A stand-in for the CUDA runtime on host memory, for the engines' tests: one device, whose streams are synchronous.
 * Memory starts at odd multiples of 256 bytes, no better aligned than cudaMalloc promises.
 *
 * The clock is the host's, and what EmulatedKernel adds to it: a kernel takes its time, and on a stream no less than a
 * launch. What is captured in a graph runs at once; a replay takes the time that it took, without launches.
 */
#ifndef COLLAGE_TESTS_EMULATION_CUDA_RUNTIME_API_H_
#define COLLAGE_TESTS_EMULATION_CUDA_RUNTIME_API_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define CUDART_VERSION 13000

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidDevice = 101,
  cudaErrorStreamCaptureUnsupported = 900
};
enum cudaDeviceAttr { cudaDevAttrL2CacheSize = 38, cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeThreadLocal = 1, cudaStreamCaptureModeRelaxed = 2 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
constexpr unsigned int cudaStreamNonBlocking = 1;
struct CUgraphNode_st;
struct cudaGraphEdgeData;
using cudaGraphNode_t = CUgraphNode_st*;
struct CUstream_st {
  unsigned long long number;
};
struct CUgraph_st {
  double microseconds;
};
using cudaStream_t = CUstream_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraph_st*;
using cudaEvent_t = double*;

/*! What is being captured, what the clock was ahead of the host's, and what this thread may do meanwhile. */
struct EmulatedState {
  cudaStream_t capturing = nullptr;
  double ahead = 0, begun = 0;
  unsigned long long streams = 2;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
};
inline EmulatedState& Emulated() {
  static EmulatedState state;
  return state;
}
inline double EmulatedNow() {
  std::chrono::duration<double, std::micro> host = std::chrono::steady_clock::now().time_since_epoch();
  return host.count() + Emulated().ahead;
}
/*! Microseconds that the host takes for a launch. */
constexpr double kEmulatedLaunch = 1e5;
inline void EmulatedKernel(double microseconds) {
  Emulated().ahead += Emulated().capturing != nullptr ? microseconds : std::max(microseconds, kEmulatedLaunch);
}

inline const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    default: return "invalid argument";
  }
}

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

inline cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

/*! The device is of compute capability 9.0, with a small cache. */
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : attribute == cudaDevAttrL2CacheSize ? 1 << 20 : 0;
  return cudaSuccess;
}

inline cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (Emulated().capturing != nullptr && Emulated().mode != cudaStreamCaptureModeRelaxed) return cudaErrorStreamCaptureUnsupported;
  char* start = static_cast<char*>(std::aligned_alloc(512, (bytes + 1023) / 512 * 512));
  if (start == nullptr) return cudaErrorMemoryAllocation;
  *pointer = start + 256;
  return cudaSuccess;
}

inline cudaError_t cudaFree(void* pointer) {
  if (pointer != nullptr) std::free(static_cast<char*>(pointer) - 256);
  return cudaSuccess;
}

inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}

/*! The beginning only: what empties the cache is large, and nobody reads it. */
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  std::memset(to, value, std::min(bytes, size_t{1} << 20));
  return cudaSuccess;
}

inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  *stream = new CUstream_st{++Emulated().streams};
  return cudaSuccess;
}

inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

/*! The number of a capture is that of its stream, and a million more. */
inline cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* number,
                                            cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  bool captured = stream != nullptr && stream == Emulated().capturing;
  *status = captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (captured) *number = stream->number + 1000000;
  return cudaSuccess;
}

/*! The default stream is number 1. A stream that is captured does not tell its number (seen with CUDA 13.0 on an H200). */
inline cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* number) {
  if (stream != nullptr && stream == Emulated().capturing) return cudaErrorStreamCaptureUnsupported;
  *number = stream == nullptr ? 1 : stream->number;
  return cudaSuccess;
}

inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, Emulated().mode);
  return cudaSuccess;
}

inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || Emulated().capturing != nullptr) return cudaErrorStreamCaptureUnsupported;
  if (std::getenv("COLLAGE_EMULATED_NO_CAPTURE") != nullptr) return cudaErrorStreamCaptureUnsupported;
  Emulated().begun = EmulatedNow();
  Emulated().capturing = stream;
  return cudaSuccess;
}

inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = new CUgraph_st{EmulatedNow() - Emulated().begun};
  Emulated().capturing = nullptr;
  return cudaSuccess;
}

inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraph_st(*graph);
  return cudaSuccess;
}

inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  Emulated().ahead += graph->microseconds;
  return cudaSuccess;
}

inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}

inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new double(0);
  return cudaSuccess;
}

inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  *event = EmulatedNow();
  return cudaSuccess;
}

inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  *milliseconds = static_cast<float>((*stop - *start) / 1000);
  return cudaSuccess;
}

#endif  // COLLAGE_TESTS_EMULATION_CUDA_RUNTIME_API_H_
