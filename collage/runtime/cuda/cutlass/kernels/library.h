/*!
 * The entry points of a kernel library, made of one C++ class.
 *
 * COLLAGE_CUTLASS_LIBRARY(Kernel) defines them. Kernel is constructed of a Problem and has
 *   bool supported() const;                                             the problem can be run
 *   int64_t workspace() const;                                          bytes
 *   const char* run(const Operands&, void* workspace, Stream stream);   null, or what went wrong
 */
#pragma once

#include "kernel.h"

#define COLLAGE_CUTLASS_EXPORT extern "C" __attribute__((visibility("default")))

#define COLLAGE_CUTLASS_LIBRARY(...)                                                                                    \
  COLLAGE_CUTLASS_EXPORT int collage_cutlass_interface() { return collage_cutlass::kInterface; }                       \
  COLLAGE_CUTLASS_EXPORT void* collage_cutlass_create(const collage_cutlass::Problem* problem) {                       \
    auto* plan = new __VA_ARGS__(*problem);                                                                            \
    if (plan->supported()) return plan;                                                                                \
    delete plan;                                                                                                       \
    return nullptr;                                                                                                    \
  }                                                                                                                    \
  COLLAGE_CUTLASS_EXPORT void collage_cutlass_destroy(void* plan) { delete static_cast<__VA_ARGS__*>(plan); }          \
  COLLAGE_CUTLASS_EXPORT int64_t collage_cutlass_workspace(void* plan) {                                               \
    return static_cast<__VA_ARGS__*>(plan)->workspace();                                                               \
  }                                                                                                                    \
  COLLAGE_CUTLASS_EXPORT const char* collage_cutlass_run(void* plan, const collage_cutlass::Operands* operands,        \
                                                         void* workspace, void* stream) {                              \
    return static_cast<__VA_ARGS__*>(plan)->run(*operands, workspace, stream);                                         \
  }
