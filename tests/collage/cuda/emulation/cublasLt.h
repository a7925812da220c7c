/*!
 * A stand-in for cuBLASLt on host memory, after its documentation: column-major matrices with leading dimensions, strided
 * batches, transposes, epilogues with a bias along D's rows, beta * C, float32 accumulation. It refuses what the library
 * refuses: attributes of the wrong size, leading dimensions that are too small, operands that do not fit together, TF32 of
 * operands that are not float32, pointers less aligned than was promised, a workspace that is too small, algorithms that it
 * has not proposed, and one that it has. Where it may, it splits K and adds up in place, which is in D's type.
 */
#ifndef COLLAGE_TESTS_EMULATION_CUBLASLT_H_
#define COLLAGE_TESTS_EMULATION_CUBLASLT_H_

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define CUBLAS_VER_MAJOR 13

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_NOT_SUPPORTED = 15 };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasLtEpilogue_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_RELU = 2,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_RELU_BIAS = 6,
  CUBLASLT_EPILOGUE_GELU = 32,
  CUBLASLT_EPILOGUE_GELU_BIAS = 36
};
enum cublasLtMatmulDescAttributes_t {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8
};
enum cublasLtMatrixLayoutAttribute_t {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6
};
enum cublasLtMatmulPreferenceAttributes_t {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
};
enum { CUBLASLT_REDUCTION_SCHEME_INPLACE = 1, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2 };

struct EmulatedHandle {};
struct EmulatedProduct {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
};
struct EmulatedLayout {
  cudaDataType_t type;
  uint64_t rows, cols;
  int64_t ld;
  int32_t count = 1;
  int64_t stride = 0;
};
struct EmulatedPreference {
  uint32_t alignment[4] = {256, 256, 256, 256};
  uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
};
using cublasLtHandle_t = EmulatedHandle*;
using cublasLtMatmulDesc_t = EmulatedProduct*;
using cublasLtMatrixLayout_t = EmulatedLayout*;
using cublasLtMatmulPreference_t = EmulatedPreference*;
/*! data: a mark, the number of the proposal, the alignments of A, B, C and D that it was made for, whether it adds in place. */
struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
};

constexpr uint64_t kEmulatedMark = 0x4c616d65;
constexpr size_t kEmulatedWorkspace = 4096;
/*! The proposal that the library says it cannot run, and the one of which that only turns out. */
constexpr uint64_t kEmulatedUnsupported = 2, kEmulatedRefused = 0;
constexpr int64_t kEmulatedSplit = 8;

inline const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_INVALID_VALUE";
}
inline size_t cublasLtGetVersion() { return 130100; }
inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new EmulatedHandle();
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *product = new EmulatedProduct{compute};
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete product;
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Value>
cublasStatus_t EmulatedSet(Value* target, const void* value, size_t size) {
  if (size != sizeof(Value)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(target, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                                     const void* value, size_t size) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return EmulatedSet(&product->a, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB: return EmulatedSet(&product->b, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return EmulatedSet(&product->epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return EmulatedSet(&product->bias, value, size);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                                 uint64_t cols, int64_t ld) {
  *layout = new EmulatedLayout{type, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                       cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                       size_t size) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return EmulatedSet(&layout->count, value, size);
  return EmulatedSet(&layout->stride, value, size);
}

inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new EmulatedPreference();
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                           cublasLtMatmulPreferenceAttributes_t attribute,
                                                           const void* value, size_t size) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    return size == sizeof(uint64_t) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  }
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) return EmulatedSet(&preference->schemes, value, size);
  return EmulatedSet(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, size);
}

inline cublasStatus_t EmulatedCheck(const EmulatedProduct& product, const EmulatedLayout& a, const EmulatedLayout& b,
                                    const EmulatedLayout& c, const EmulatedLayout& d) {
  for (const EmulatedLayout* layout : {&a, &b, &c, &d}) {
    bool strided = layout->ld >= static_cast<int64_t>(layout->rows);
    if (!strided || layout->rows == 0 || layout->cols == 0 || layout->count != d.count) return CUBLAS_STATUS_INVALID_VALUE;
  }
  bool ta = product.a == CUBLAS_OP_T, tb = product.b == CUBLAS_OP_T;
  if ((product.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 && product.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  bool fits = (ta ? a.cols : a.rows) == d.rows && (tb ? b.rows : b.cols) == d.cols;
  bool inner = (ta ? a.rows : a.cols) == (tb ? b.cols : b.rows);
  bool types = a.type == b.type && c.type == d.type && (d.type == a.type || d.type == CUDA_R_32F);
  if (product.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return fits && inner && types && c.rows == d.rows && c.cols == d.cols ? CUBLAS_STATUS_SUCCESS
                                                                         : CUBLAS_STATUS_INVALID_VALUE;
}

inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                                     cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                     cublasLtMatmulPreference_t preference, int requested,
                                                     cublasLtMatmulHeuristicResult_t results[], int* found) {
  cublasStatus_t status = EmulatedCheck(*product, *a, *b, *c, *d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  *found = requested < 4 ? requested : 4;
  const uint32_t* alignment = preference->alignment;
  for (int i = 0; i < *found; ++i) {
    uint64_t number = static_cast<uint64_t>(i);
    uint64_t in_place = preference->schemes & CUBLASLT_REDUCTION_SCHEME_INPLACE;
    results[i].algo = {{kEmulatedMark, number, alignment[0], alignment[1], alignment[2], alignment[3], in_place, 0}};
    results[i].workspaceSize = i == 1 ? kEmulatedWorkspace : 0;
    results[i].state = number == kEmulatedUnsupported ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  result->algo = *algorithm;
  result->workspaceSize = algorithm->data[1] == 1 ? kEmulatedWorkspace : 0;
  result->state = algorithm->data[0] == kEmulatedMark ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  return EmulatedCheck(*product, *a, *b, *c, *d);
}

inline float EmulatedRead(const void* start, int64_t index, cudaDataType_t type) {
  if (type == CUDA_R_32F) return static_cast<const float*>(start)[index];
  if (type == CUDA_R_16F) return static_cast<float>(static_cast<const _Float16*>(start)[index]);
  uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(start)[index]) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline void EmulatedWrite(void* start, int64_t index, cudaDataType_t type, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(start)[index] = value;
  } else if (type == CUDA_R_16F) {
    static_cast<_Float16*>(start)[index] = static_cast<_Float16>(value);
  } else {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    bits += 0x7fff + ((bits >> 16) & 1);
    static_cast<uint16_t*>(start)[index] = static_cast<uint16_t>(bits >> 16);
  }
}

inline float EmulatedRounded(float value, cudaDataType_t type) {
  float memory;
  EmulatedWrite(&memory, 0, type, value);
  return EmulatedRead(&memory, 0, type);
}

/*! The workspace that was used last, and what else tests ask of this library: whether a stream is being captured. */
inline void*& EmulatedWorkspace() {
  static void* workspace = nullptr;
  return workspace;
}
extern "C" __attribute__((used, visibility("default"))) inline void* collage_emulated_workspace() { return EmulatedWorkspace(); }
extern "C" __attribute__((used, visibility("default"))) inline void collage_emulated_capture(void* stream) {
  Emulated().capturing = static_cast<cudaStream_t>(stream);
}

/*! Tests set this to have a library that runs nothing. */
inline bool EmulatedRefusesAll() { return std::getenv("COLLAGE_EMULATED_REFUSES") != nullptr; }

inline float EmulatedActivation(float x, cublasLtEpilogue_t epilogue) {
  if (epilogue & CUBLASLT_EPILOGUE_RELU) return x > 0 ? x : 0;
  if (epilogue & CUBLASLT_EPILOGUE_GELU) return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
  return x;
}

inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                                     cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                                     const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                                     cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                                     size_t workspace_size, cudaStream_t) {
  cublasStatus_t status = EmulatedCheck(*product, *a_layout, *b_layout, *c_layout, *d_layout);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (handle == nullptr || algorithm->data[0] != kEmulatedMark) return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm->data[1] == kEmulatedRefused || EmulatedRefusesAll()) return CUBLAS_STATUS_NOT_SUPPORTED;
  size_t needed = algorithm->data[1] == 1 ? kEmulatedWorkspace : 0;
  if (workspace_size < needed || (needed > 0 && workspace == nullptr)) return CUBLAS_STATUS_INVALID_VALUE;
  const void* pointers[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    if (reinterpret_cast<uintptr_t>(pointers[i]) % algorithm->data[2 + i] != 0) return CUBLAS_STATUS_INVALID_VALUE;
  }
  bool with_bias = (product->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  bool ta = product->a == CUBLAS_OP_T, tb = product->b == CUBLAS_OP_T;
  int64_t m = static_cast<int64_t>(d_layout->rows), n = static_cast<int64_t>(d_layout->cols);
  int64_t k = static_cast<int64_t>(ta ? a_layout->rows : a_layout->cols);
  float scale = *static_cast<const float*>(alpha), residual = *static_cast<const float*>(beta);
  if (needed > 0) std::memset(workspace, 0xff, needed);
  if (needed > 0) EmulatedWorkspace() = workspace;
  EmulatedKernel(algorithm->data[1] == 1 ? 2e4 : 1e4);
  for (int64_t batch = 0; batch < d_layout->count; ++batch) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) {
        float sum = 0;
        for (int64_t p = 0; p < k; ++p) {
          if (algorithm->data[6] != 0 && p % kEmulatedSplit == 0) sum = EmulatedRounded(sum, d_layout->type);
          int64_t at_a = batch * a_layout->stride + (ta ? p + i * a_layout->ld : i + p * a_layout->ld);
          int64_t at_b = batch * b_layout->stride + (tb ? j + p * b_layout->ld : p + j * b_layout->ld);
          sum += EmulatedRead(a, at_a, a_layout->type) * EmulatedRead(b, at_b, b_layout->type);
        }
        float value = scale * sum;
        int64_t at_c = batch * c_layout->stride + i + j * c_layout->ld;
        if (residual != 0) value += residual * EmulatedRead(c, at_c, c_layout->type);
        if (with_bias) value += EmulatedRead(product->bias, i, d_layout->type);
        EmulatedWrite(d, batch * d_layout->stride + i + j * d_layout->ld, d_layout->type,
                      EmulatedActivation(value, product->epilogue));
      }
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

#endif  // COLLAGE_TESTS_EMULATION_CUBLASLT_H_
