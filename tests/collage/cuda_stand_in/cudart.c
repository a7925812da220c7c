/* Stands in for libcudart.so.13 in tests: events hold the host's time, and memory of the device is memory of the host. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int error = 0;
static long long written = 0;

static double milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

int cudaEventCreate(void** event) {
  *event = calloc(1, sizeof(double));
  return error;
}

int cudaEventRecord(void* event, void* stream) {
  (void)stream;
  *(double*)event = milliseconds();
  return error;
}

int cudaEventElapsedTime(float* elapsed, void* first, void* second) {
  *elapsed = (float)(*(double*)second - *(double*)first);
  return error;
}

int cudaMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  (void)stream;
  memset(to, value, bytes > 4096 ? 4096 : bytes);
  written += (long long)bytes;
  return error;
}

int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  (void)kind;
  (void)stream;
  memcpy(to, from, bytes);
  return error;
}

int cudaMalloc(void** memory, size_t bytes) {
  *memory = malloc(bytes > 4096 ? 4096 : bytes);
  return error;
}

int cudaStreamSynchronize(void* stream) {
  (void)stream;
  return error;
}

int cudaDeviceSynchronize(void) { return error; }
int cudaGetLastError(void) { return error; }
const char* cudaGetErrorString(int code) { return code == 700 ? "an illegal memory access was encountered" : "no error"; }

/* For tests: what every call answers from now on, and how many bytes were written. */
void stand_in_fails(int code) { error = code; }
long long stand_in_written(void) { return written; }
