/*!
 * A matrix product as the blob's header has it, and in cuBLASLt's terms.
 *
 * The header speaks of row-major matrices, lhs M x K, rhs K x N, D M x N, cuBLASLt of column-major ones. A row-major
 * matrix is its own transpose in column-major order, so D^T = rhs^T x lhs^T is computed: rhs is cuBLASLt's A and lhs its B,
 * its m is N and its n is M, and the bias along the last axis is its bias along the rows.
 */
#ifndef COLLAGE_RUNTIME_CUDA_CUBLAS_PROBLEM_H_
#define COLLAGE_RUNTIME_CUDA_CUBLAS_PROBLEM_H_

#include "../partition.h"

#include <cublasLt.h>

#include <optional>

#define COLLAGE_CUBLAS(name, ...) \
  ::collage::cublas::Check(COLLAGE_FUNCTION(::collage::cublas::kLibrary, name)(__VA_ARGS__), #name)

namespace collage {
namespace cublas {
namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;
using cuda::Blob;
using cuda::Int;
using cuda::Text;

constexpr const char* kLibrary = "libcublasLt.so." COLLAGE_TEXT(CUBLAS_VER_MAJOR);
inline void Check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  TVM_FFI_THROW(RuntimeError) << call << ": " << COLLAGE_FUNCTION(kLibrary, cublasLtGetStatusString)(status);
}

inline cudaDataType_t DataType(const std::string& name) {
  if (name == "float32") return CUDA_R_32F;
  if (name == "float16") return CUDA_R_16F;
  if (name == "bfloat16") return CUDA_R_16BF;
  TVM_FFI_THROW(ValueError) << "cuBLASLt products of " << name << " are not supported";
}

inline int64_t ItemSize(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

/*! An object of the library, destroyed with it. */
template <typename Handle>
class Owned {
 public:
  using Destroy = void (*)(Handle);
  Owned(Handle handle, Destroy destroy) : handle_(handle), destroy_(destroy) {}
  ~Owned() { destroy_(handle_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Handle get() const { return handle_; }

 private:
  Handle handle_;
  Destroy destroy_;
};

using Layout = Owned<cublasLtMatrixLayout_t>;
using Description = Owned<cublasLtMatmulDesc_t>;

/*! An operand as the header has it: where it is, and how its matrices lie there, in elements. */
struct Matrix {
  json::Object reference;
  bool transposed;
  int64_t ld, stride;

  static Matrix Read(const json::Object& header, const char* key) {
    json::Object entry = cuda::Child(header, key);
    return {cuda::Child(entry, "at"), cuda::Flag(entry, "transposed"), Int(entry, "ld"), Int(entry, "stride")};
  }
};

/*! What is to be computed. Offsets are elements from the operands' starts, one triple per call of the library. */
struct Problem {
  explicit Problem(const json::Object& header)
      : m(Int(header, "m")),
        n(Int(header, "n")),
        k(Int(header, "k")),
        batch(Int(header, "batch")),
        in(DataType(Text(header, "dtype"))),
        out(DataType(Text(header, "out_dtype"))),
        alpha(static_cast<float>(cuda::Real(header, "alpha"))),
        lhs(Matrix::Read(header, "lhs")),
        rhs(Matrix::Read(header, "rhs")),
        output(Matrix::Read(header, "output")) {
    std::string precision = Text(header, "precision"), activation = Text(header, "activation");
    // Only operands of float32 are rounded; the library takes no others with this type of computation.
    compute = precision == "tf32" && in == CUDA_R_32F ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    bool with_bias = cuda::Has(header, "bias");
    if (with_bias) bias = cuda::Child(header, "bias");
    if (cuda::Has(header, "residual")) residual = cuda::Child(header, "residual");
    if (activation == "relu") {
      epilogue = with_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    } else if (activation == "gelu_tanh") {
      epilogue = with_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    } else if (activation == "none") {
      epilogue = with_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    } else {
      TVM_FFI_THROW(ValueError) << "cuBLASLt has no epilogue " << activation;
    }
    for (const ffi::Any& triple : cuda::Get(header, "offsets").cast<json::Array>()) offsets.push_back(cuda::Ints(triple));
  }

  int64_t m, n, k, batch;
  cudaDataType_t in, out;
  float alpha;
  Matrix lhs, rhs, output;
  cublasComputeType_t compute;
  cublasLtEpilogue_t epilogue;
  std::optional<json::Object> bias, residual;
  std::vector<std::vector<int64_t>> offsets;
};

/*! A column-major matrix, or a batch of them, with op(matrix) of rows x cols. */
inline std::unique_ptr<Layout> MakeLayout(cudaDataType_t type, int64_t rows, int64_t cols, const Matrix& matrix, int64_t batch) {
  if (matrix.transposed) std::swap(rows, cols);
  cublasLtMatrixLayout_t handle = nullptr;
  COLLAGE_CUBLAS(cublasLtMatrixLayoutCreate, &handle, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), matrix.ld);
  auto layout = std::make_unique<Layout>(
      handle, [](cublasLtMatrixLayout_t h) { COLLAGE_FUNCTION(kLibrary, cublasLtMatrixLayoutDestroy)(h); });
  int32_t count = static_cast<int32_t>(batch);
  COLLAGE_CUBLAS(cublasLtMatrixLayoutSetAttribute, handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
  COLLAGE_CUBLAS(cublasLtMatrixLayoutSetAttribute, handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &matrix.stride,
                 sizeof(matrix.stride));
  return layout;
}

/*! The problem in the library's terms. Needs the library, but no device. */
struct Descriptions {
  explicit Descriptions(const Problem& p) {
    cublasLtMatmulDesc_t handle = nullptr;
    COLLAGE_CUBLAS(cublasLtMatmulDescCreate, &handle, p.compute, CUDA_R_32F);
    product = std::make_unique<Description>(
        handle, [](cublasLtMatmulDesc_t h) { COLLAGE_FUNCTION(kLibrary, cublasLtMatmulDescDestroy)(h); });
    Set(CUBLASLT_MATMUL_DESC_TRANSA, Operation(p.rhs));
    Set(CUBLASLT_MATMUL_DESC_TRANSB, Operation(p.lhs));
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    a = MakeLayout(p.in, p.n, p.k, p.rhs, p.batch);
    b = MakeLayout(p.in, p.k, p.m, p.lhs, p.batch);
    d = MakeLayout(p.out, p.n, p.m, p.output, p.batch);
  }

  template <typename Value>
  void Set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    COLLAGE_CUBLAS(cublasLtMatmulDescSetAttribute, product->get(), attribute, &value, sizeof(value));
  }

  std::unique_ptr<Description> product;
  std::unique_ptr<Layout> a, b, d;  // The residual lies like D.

 private:
  static cublasOperation_t Operation(const Matrix& matrix) { return matrix.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }
};

}  // namespace cublas
}  // namespace collage

#endif  // COLLAGE_RUNTIME_CUDA_CUBLAS_PROBLEM_H_
