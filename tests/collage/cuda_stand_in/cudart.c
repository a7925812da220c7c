/* Stands in for libcudart.so.13 in tests: memory of the device is memory of the host, and events hold the host's time and
   what kernels of stand_in_kernel add to it, on a stream no less than a launch takes. What is captured runs at once; a graph
   takes the time that it took, without launches. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int error = 0;
static long long written = 0, launches = 0;
static double ahead = 0, begun = 0, launch = 0;
static int capturing = 0;

static double milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6 + ahead;
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

int cudaStreamCreateWithFlags(void** stream, unsigned int flags) {
  (void)flags;
  *stream = malloc(1);
  return error;
}

int cudaStreamBeginCapture(void* stream, int mode) {
  (void)stream;
  (void)mode;
  if (error == 0) capturing = 1;
  begun = milliseconds();
  return error;
}

int cudaStreamEndCapture(void* stream, void** graph) {
  (void)stream;
  double* took = malloc(sizeof(double));
  *took = milliseconds() - begun;
  *graph = took;
  capturing = 0;
  return error;
}

int cudaGraphInstantiate(void** executable, void* graph, unsigned long long flags) {
  (void)flags;
  *executable = malloc(sizeof(double));
  memcpy(*executable, graph, sizeof(double));
  return error;
}

int cudaGraphLaunch(void* graph, void* stream) {
  (void)stream;
  ahead += *(double*)graph + launch;
  ++launches;
  return error;
}

int cudaGraphDestroy(void* graph) {
  free(graph);
  return error;
}

int cudaGraphExecDestroy(void* graph) {
  free(graph);
  return error;
}

int cudaStreamSynchronize(void* stream) {
  (void)stream;
  return error;
}

int cudaDeviceSynchronize(void) { return error; }
int cudaGetLastError(void) { return error; }
const char* cudaGetErrorString(int code) { return code == 700 ? "an illegal memory access was encountered" : "no error"; }

/* For tests: what every call answers from now on, how many bytes were written and graphs launched; a kernel, and what the
   launch of one, or of a graph, takes, in milliseconds. */
void stand_in_fails(int code) { error = code; }
long long stand_in_written(void) { return written; }
long long stand_in_launches(void) { return launches; }
void stand_in_launch_takes(double took) { launch = took; }
void stand_in_kernel(double took) { ahead += took + (capturing ? 0 : launch); }
