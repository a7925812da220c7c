/*!
 * Matrix products by cuBLASLt: D = act(alpha * lhs x rhs + bias + residual), batched, one partition per product.
 *
 * cuBLASLt's heuristic proposes algorithms; the first ones are timed when the partition's function is made, unless the
 * header brings a "choice" of this library version (choices.py remembers them). After that a call allocates nothing.
 */
#include "problem.h"

#include "../timing.h"

#include <algorithm>

#include <tvm/ffi/reflection/registry.h>

namespace collage {
namespace cublas {

using Preference = Owned<cublasLtMatmulPreference_t>;

/*! What cuBLAS itself takes on Hopper. */
constexpr size_t kWorkspace = size_t{32} << 20;
/*! How many of the heuristic's proposals are timed. */
constexpr int kProposals = 32;
/*! Alignment that arguments have to have; weights have cudaMalloc's. */
constexpr uint32_t kArgumentAlignment = 16, kWeightAlignment = 256;

/*! The algorithm of a problem, and what the timing of the proposals gave. */
struct Choice {
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;
  std::vector<float> microseconds, errors;

  std::string Json() const {
    static const char* digits = "0123456789abcdef";
    std::string text;
    const auto* bytes = reinterpret_cast<const unsigned char*>(&algorithm);
    for (size_t i = 0; i < sizeof(algorithm); ++i) text += {digits[bytes[i] >> 4], digits[bytes[i] & 15]};
    json::Array times, uncertain;
    for (float value : microseconds) times.push_back(static_cast<double>(value));
    for (float value : errors) uncertain.push_back(static_cast<double>(value));
    json::Object object;
    object.Set(ffi::String("algorithm"), ffi::String(text));
    object.Set(ffi::String("version"), static_cast<int64_t>(COLLAGE_FUNCTION(kLibrary, cublasLtGetVersion)()));
    object.Set(ffi::String("microseconds"), times);
    object.Set(ffi::String("errors"), uncertain);
    ffi::String result = json::Stringify(object);
    return std::string(result.data(), result.size());
  }

  /*! The algorithm of a header's "choice"; none when another version of the library made it. */
  static std::optional<cublasLtMatmulAlgo_t> Read(const json::Object& header) {
    if (!cuda::Has(header, "choice")) return std::nullopt;
    json::Object object = cuda::Child(header, "choice");
    if (Int(object, "version") != static_cast<int64_t>(COLLAGE_FUNCTION(kLibrary, cublasLtGetVersion)())) return std::nullopt;
    std::string text = Text(object, "algorithm");
    cublasLtMatmulAlgo_t algorithm;
    if (text.size() != 2 * sizeof(algorithm)) TVM_FFI_THROW(ValueError) << "the header's choice is no cuBLASLt algorithm";
    auto* bytes = reinterpret_cast<unsigned char*>(&algorithm);
    for (size_t i = 0; i < sizeof(algorithm); ++i) {
      bytes[i] = static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
    }
    return algorithm;
  }
};

cublasLtHandle_t Handle(int device) {
  return cuda::OnePerDevice<cublasLtHandle_t>(device, [](cublasLtHandle_t* handle) { COLLAGE_CUBLAS(cublasLtCreate, handle); });
}

/*! A partition on a device, ready to be called. */
class Product {
 public:
  Product(const Blob& blob, int device)
      : problem_(blob.header),
        descriptions_(problem_),
        device_(device),
        count_(Int(blob.header, "arguments")),
        constants_(blob, device),
        lhs_(cuda::Operand::Read(problem_.lhs.reference, constants_)),
        rhs_(cuda::Operand::Read(problem_.rhs.reference, constants_)),
        output_(cuda::Operand::Read(problem_.output.reference, constants_)) {
    if (problem_.bias) bias_ = cuda::Operand::Read(*problem_.bias, constants_);
    if (problem_.residual) residual_ = cuda::Operand::Read(*problem_.residual, constants_);
    cuda::DeviceGuard guard(device);
    choice_ = Choose(blob);
    cuda::Workspace::Reserve(device, choice_.workspace);
  }

  const Choice& choice() const { return choice_; }

  void Run(ffi::PackedArgs args) {
    cuda::Arguments arguments(args, count_, device_);
    Pointers at{Aligned(lhs_, arguments, Alignment(lhs_, 0)), Aligned(rhs_, arguments, Alignment(rhs_, 1)),
                Aligned(output_, arguments, Alignment(output_, 2)), nullptr, nullptr};
    if (residual_) at.residual = Aligned(*residual_, arguments, Alignment(*residual_, 2));
    if (bias_) at.bias = Aligned(*bias_, arguments, kArgumentAlignment);
    cuda::DeviceGuard guard(device_);
    cudaStream_t stream = cuda::Stream(device_);
    Launch(at, choice_.algorithm, choice_.workspace == 0 ? nullptr : cuda::Workspace::Pointer(device_, stream), choice_.workspace,
           stream);
  }

 private:
  struct Pointers {
    void *lhs, *rhs, *output, *residual, *bias;
  };

  void Launch(const Pointers& at, const cublasLtMatmulAlgo_t& algorithm, void* workspace, size_t bytes, cudaStream_t stream) {
    if (bias_ && at.bias != bias_set_) SetBias(at.bias);
    float beta = residual_ ? 1.0f : 0.0f;
    for (const std::vector<int64_t>& offset : problem_.offsets) {
      const void* lhs = Shift(at.lhs, offset[0], problem_.in);
      const void* rhs = Shift(at.rhs, offset[1], problem_.in);
      void* output = Shift(at.output, offset[2], problem_.out);
      const void* residual = residual_ ? Shift(at.residual, offset[2], problem_.out) : output;
      COLLAGE_CUBLAS(cublasLtMatmul, Handle(device_), descriptions_.product->get(), &problem_.alpha, rhs, descriptions_.a->get(),
                     lhs, descriptions_.b->get(), &beta, residual, descriptions_.d->get(), output, descriptions_.d->get(),
                     &algorithm, workspace, bytes, stream);
    }
  }

  void SetBias(void* pointer) {
    descriptions_.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer);
    bias_set_ = pointer;
  }

  static void* Shift(void* start, int64_t elements, cudaDataType_t type) {
    return static_cast<char*>(start) + elements * ItemSize(type);
  }

  /*! What every pointer of an operand is a multiple of; `position` is its place in the triples of offsets. */
  uint32_t Alignment(const cuda::Operand& operand, size_t position) const {
    uint32_t alignment = operand.argument >= 0 ? kArgumentAlignment : kWeightAlignment;
    int64_t size = ItemSize(position == 2 ? problem_.out : problem_.in);
    for (const std::vector<int64_t>& offset : problem_.offsets) {
      while (offset[position] * size % alignment != 0) alignment /= 2;
    }
    return alignment;
  }

  void* Aligned(const cuda::Operand& operand, const cuda::Arguments& arguments, uint32_t alignment) const {
    void* pointer = operand.pointer(arguments);
    if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) {
      TVM_FFI_THROW(ValueError) << "cuBLASLt: argument " << operand.argument << " is not aligned to " << alignment << " bytes";
    }
    return pointer;
  }

  Choice Choose(const Blob& blob) {
    std::optional<cublasLtMatmulAlgo_t> given = Choice::Read(blob.header);
    if (given) {
      // The library refuses an epilogue with a bias that is nowhere; of an argument the address comes with the call.
      if (bias_) SetBias(bias_->constant != nullptr ? bias_->constant : reinterpret_cast<void*>(uintptr_t{kArgumentAlignment}));
      cublasLtMatmulHeuristicResult_t result{};
      cublasStatus_t status = COLLAGE_FUNCTION(kLibrary, cublasLtMatmulAlgoCheck)(
          Handle(device_), descriptions_.product->get(), descriptions_.a->get(), descriptions_.b->get(), descriptions_.d->get(),
          descriptions_.d->get(), &*given, &result);
      if (status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS) return {*given, result.workspaceSize, {}, {}};
    }
    static std::mutex mutex;
    static std::map<std::pair<int, std::string>, Choice> known;
    std::lock_guard<std::mutex> lock(mutex);
    auto found = known.find({device_, blob.text});
    if (found == known.end()) found = known.emplace(std::make_pair(device_, blob.text), Timed()).first;
    return found->second;
  }

  /*! The fastest of the heuristic's proposals, on scratch memory. One that the library then refuses costs itself only. */
  Choice Timed() {
    cuda::Operands operands(device_, cuda::Stream(device_));
    bool reads_weights = lhs_.argument < 0 || rhs_.argument < 0;
    cuda::Floats in = FormatOf(problem_.in), out = FormatOf(problem_.out);
    size_t result = Bytes(problem_.output, problem_.out, problem_.m, problem_.n, 2);
    Pointers at{operands.Add(Bytes(problem_.lhs, problem_.in, problem_.m, problem_.k, 0), in, lhs_.argument >= 0),
                operands.Add(Bytes(problem_.rhs, problem_.in, problem_.k, problem_.n, 1), in, rhs_.argument >= 0),
                operands.Add(result, out, false), nullptr, nullptr};
    if (residual_) at.residual = operands.Add(result, out, true);
    if (bias_) at.bias = operands.Add(static_cast<size_t>(problem_.n * ItemSize(problem_.out)), out, false);
    if (bias_) SetBias(at.bias);

    std::vector<cublasLtMatmulHeuristicResult_t> proposals = Proposals();
    size_t most = 0;
    for (const auto& proposal : proposals) most = std::max(most, proposal.workspaceSize);
    cuda::DeviceBuffer workspace(most, device_);
    std::string reasons;
    std::vector<cuda::Timing> timings = cuda::TakeTurns(
        operands, proposals.size(), reads_weights,
        [&](size_t i, cudaStream_t stream) {
          Launch(at, proposals[i].algo, workspace.data(), proposals[i].workspaceSize, stream);
        },
        [&](size_t, const char* reason) { reasons += "; " + cuda::OneLine(reason); });
    bias_set_ = nullptr;
    size_t winner = cuda::Fastest(timings);
    if (timings[winner].microseconds == cuda::kNever) {
      TVM_FFI_THROW(RuntimeError) << "cuBLASLt runs none of its algorithms for this product" << reasons;
    }
    Choice choice{proposals[winner].algo, proposals[winner].workspaceSize, {}, {}};
    for (const cuda::Timing& timing : timings) {
      if (timing.microseconds == cuda::kNever) continue;
      choice.microseconds.push_back(timing.microseconds);
      choice.errors.push_back(timing.error);
    }
    return choice;
  }

  std::vector<cublasLtMatmulHeuristicResult_t> Proposals() {
    cublasLtMatmulPreference_t handle = nullptr;
    COLLAGE_CUBLAS(cublasLtMatmulPreferenceCreate, &handle);
    Preference preference(
        handle, [](cublasLtMatmulPreference_t h) { COLLAGE_FUNCTION(kLibrary, cublasLtMatmulPreferenceDestroy)(h); });
    auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      COLLAGE_CUBLAS(cublasLtMatmulPreferenceSetAttribute, handle, attribute, &value, sizeof(value));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspace));
    // Partial sums stay in float32 when K is split, whatever D's dtype is: in place they have D's.
    int schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (problem_.out == CUDA_R_32F) schemes |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(schemes));
    uint32_t at_output = Alignment(output_, 2);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Alignment(rhs_, 1));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Alignment(lhs_, 0));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, residual_ ? Alignment(*residual_, 2) : at_output);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, at_output);
    std::vector<cublasLtMatmulHeuristicResult_t> results(kProposals);
    int count = 0;
    COLLAGE_CUBLAS(cublasLtMatmulAlgoGetHeuristic, Handle(device_), descriptions_.product->get(), descriptions_.a->get(),
                   descriptions_.b->get(), descriptions_.d->get(), descriptions_.d->get(), handle, kProposals, results.data(),
                   &count);
    results.resize(static_cast<size_t>(count));
    results.erase(std::remove_if(results.begin(), results.end(),
                                 [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; }),
                  results.end());
    if (results.empty()) TVM_FFI_THROW(RuntimeError) << "cuBLASLt has no algorithm for this product";
    return results;
  }

  static cuda::Floats FormatOf(cudaDataType_t type) {
    return type == CUDA_R_32F ? cuda::Floats::kFloat32 : type == CUDA_R_16F ? cuda::Floats::kFloat16 : cuda::Floats::kBfloat16;
  }

  /*! How far an operand of rows x cols (row-major terms) reaches. */
  size_t Bytes(const Matrix& matrix, cudaDataType_t type, int64_t rows, int64_t cols, size_t position) const {
    if (matrix.transposed) std::swap(rows, cols);
    int64_t last = (problem_.batch - 1) * matrix.stride + (rows - 1) * matrix.ld + cols, furthest = 0;
    for (const std::vector<int64_t>& offset : problem_.offsets) furthest = std::max(furthest, offset[position]);
    return static_cast<size_t>((furthest + last) * ItemSize(type));
  }

  Problem problem_;
  Descriptions descriptions_;
  int device_;
  int64_t count_;
  cuda::Constants constants_;
  cuda::Operand lhs_, rhs_, output_;
  std::optional<cuda::Operand> bias_, residual_;
  void* bias_set_ = nullptr;
  Choice choice_;
};

int DeviceOf(const ffi::String& options) {
  json::Object object = cuda::ParseObject(std::string(options.data(), options.size()));
  return cuda::Has(object, "device") ? static_cast<int>(Int(object, "device")) : 0;
}

/*! The partition's function: input tensors, then the output. */
ffi::Function Create(const ffi::Bytes& bytes, const ffi::String& options) {
  auto product = std::make_shared<Product>(Blob(bytes), DeviceOf(options));
  return ffi::Function::FromPacked([product](ffi::PackedArgs args, ffi::Any*) { product->Run(args); });
}

/*! The algorithm that a partition runs, as JSON: goes into the header as "choice" to be kept. */
ffi::String ChoiceOf(const ffi::Bytes& bytes, const ffi::String& options) {
  return ffi::String(Product(Blob(bytes), DeviceOf(options)).choice().Json());
}

/*! Whether the library takes the descriptions of a partition; throws its reason when it does not. Needs no device. */
void Describe(const ffi::Bytes& bytes) { Descriptions descriptions{Problem(Blob(bytes).header)}; }

/*! Several loaded models may carry a copy of this; the first one registers. */
void Register() {
  if (ffi::Function::GetGlobal("collage.cuda.cublas.create").has_value()) return;
  tvm::ffi::reflection::GlobalDef()
      .def("collage.cuda.cublas.create", Create)
      .def("collage.cuda.cublas.choice", ChoiceOf)
      .def("collage.cuda.cublas.describe", Describe)
      .def("collage.cuda.cublas.version",
           []() { return static_cast<int64_t>(COLLAGE_FUNCTION(kLibrary, cublasLtGetVersion)()); });
}

}  // namespace cublas
}  // namespace collage

TVM_FFI_STATIC_INIT_BLOCK() { collage::cublas::Register(); }
