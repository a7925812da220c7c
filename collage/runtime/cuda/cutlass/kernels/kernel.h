/*!
 * What the runner (../engine.cc) and a kernel library say to each other.
 *
 * A kernel library is a shared object with one compiled CUTLASS kernel: one tile shape for one combination of dtypes,
 * layouts and alignments. Extents, strides, bias, residual and activations are arguments, so that all partitions of a
 * network share a handful of compilations. The entry points below are plain C: a library built by nvcc on one machine
 * serves runners built by another compiler elsewhere, and `interface` tells apart what was built from other versions of
 * this file.
 */
#pragma once

#include <stdint.h>

namespace collage_cutlass {

/*! Goes up with every change of this file. */
constexpr int kInterface = 1;

enum class Function : int32_t { kNone = 0, kRelu = 1, kGelu = 2, kGeluTanh = 3, kSilu = 4, kClip = 5 };

/*! An elementwise function; `low` and `high` bound kClip. */
struct Activation {
  Function function;
  float low, high;
};

/*!
 * D = post(pre(A B + bias) + residual), for each matrix of a batch, or the same after an implicit GEMM.
 *
 * A is (m, k) row-major, B (k, n) in the layout that the kernel was compiled for, D and the residual (m, n) row-major;
 * `ld*` are the elements from one row (column, for a column-major B) to the next, `batch_*` those from one matrix to the
 * next, 0 where all share one. A convolution has the images (images, height, width, channels) as A, the filters
 * (n, filter_height, filter_width, channels) as B and the result (images, out_height, out_width, n) as D.
 */
struct Problem {
  int64_t m, n, k, batch;
  int64_t lda, ldb, ldr, ldd;
  int64_t batch_a, batch_b, batch_r, batch_d;
  int64_t images, height, width, channels, filter_height, filter_width, out_height, out_width;
  int64_t pad_height, pad_width, stride_height, stride_width, dilation_height, dilation_width;
  Activation pre, post;
};

/*! Addresses on the device; null for a bias or residual that there is not. */
struct Operands {
  const void *a, *b;
  const void* column_bias; /*!< n elements, one per column. */
  const void* row_bias;    /*!< m elements, one per row. */
  const void* residual;
  void* d;
};

inline bool operator==(const Operands& x, const Operands& y) {
  return x.a == y.a && x.b == y.b && x.column_bias == y.column_bias && x.row_bias == y.row_bias &&
         x.residual == y.residual && x.d == y.d;
}

}  // namespace collage_cutlass

extern "C" {
/*! kInterface of the file that the library was built from. */
int collage_cutlass_interface();
/*! A plan for a problem; null when this kernel cannot run it. */
void* collage_cutlass_create(const collage_cutlass::Problem* problem);
void collage_cutlass_destroy(void* plan);
/*! Bytes of device memory that a run needs, the contents arbitrary. */
int64_t collage_cutlass_workspace(void* plan);
/*! Launches on a cudaStream_t; allocates nothing and waits for nothing. Null, or what went wrong. */
const char* collage_cutlass_run(void* plan, const collage_cutlass::Operands* operands, void* workspace, void* stream);
}
