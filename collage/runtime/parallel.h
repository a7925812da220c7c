/*!
 * Parallel regions, as TVM's tvm/runtime/c_backend_api.h declares them.
 */
#ifndef COLLAGE_RUNTIME_PARALLEL_H_
#define COLLAGE_RUNTIME_PARALLEL_H_

#include <cstdint>

namespace collage {

struct ParallelEnvironment {
  void* sync_handle;
  int32_t num_task;
};

using ParallelTask = int (*)(int id, ParallelEnvironment* env, void* closure);

/*! What a pool of threads is to those who call it. */
struct ParallelCalls {
  int (*launch)(ParallelTask task, void* closure, int count);
  int (*barrier)(int id, ParallelEnvironment* env);
};

/*! A global function that gives the address of the process's `ParallelCalls`. */
constexpr const char* kParallelCalls = "collage.runtime.parallel_calls";

}  // namespace collage

#endif  // COLLAGE_RUNTIME_PARALLEL_H_
