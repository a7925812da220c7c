/*!
 * The activations of every kernel's epilogue, chosen at run time: the branch is the same for all threads and costs
 * nothing beside the loads and stores around it, whereas each activation compiled in would double the number of kernels.
 */
#pragma once

#include <cmath>

#include "kernel.h"

#ifdef __CUDACC__
#define COLLAGE_CUTLASS_BOTH __host__ __device__ __forceinline__
#else
#define COLLAGE_CUTLASS_BOTH inline
#endif

namespace collage_cutlass {

/*! One element, in float. GELU is exact (erf) or the tanh formula, as the operator says. */
COLLAGE_CUTLASS_BOTH float activated(const Activation& activation, float x) {
  switch (activation.function) {
    case Function::kRelu:
      return x < 0.0f ? 0.0f : x;
    case Function::kGelu:
      return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case Function::kGeluTanh:
      return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case Function::kSilu:
      return x / (1.0f + expf(-x));
    case Function::kClip:
      return x < activation.low ? activation.low : (x > activation.high ? activation.high : x);
    default:
      return x;
  }
}

/*! The same for a fragment, an array of floats with operator[]; one branch for all its elements. */
template <int Count, class Fragment>
COLLAGE_CUTLASS_BOTH void activate(const Activation& activation, Fragment& fragment) {
  if (activation.function == Function::kNone) return;
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int i = 0; i < Count; ++i) fragment[i] = activated(activation, fragment[i]);
}

}  // namespace collage_cutlass
