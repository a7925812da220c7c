/*!
 * A stand-in for the CUDA runtime on host memory, for the engines' tests: one device, whose streams are synchronous.
 * Memory starts at odd multiples of 256 bytes, no better aligned than cudaMalloc promises.
 */
#ifndef COLLAGE_TESTS_EMULATION_CUDA_RUNTIME_API_H_
#define COLLAGE_TESTS_EMULATION_CUDA_RUNTIME_API_H_

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#define CUDART_VERSION 13000

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInvalidDevice = 101 };
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = std::chrono::steady_clock::time_point*;

inline const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    default: return "invalid argument";
  }
}

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

inline cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

/*! The device is of compute capability 9.0. */
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return cudaSuccess;
}

inline cudaError_t cudaMalloc(void** pointer, size_t bytes) {
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

inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}

inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new std::chrono::steady_clock::time_point();
  return cudaSuccess;
}

inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  *event = std::chrono::steady_clock::now();
  return cudaSuccess;
}

inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  *milliseconds = std::chrono::duration<float, std::milli>(*stop - *start).count();
  return cudaSuccess;
}

#endif  // COLLAGE_TESTS_EMULATION_CUDA_RUNTIME_API_H_
