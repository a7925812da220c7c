/*!
 * 2-D convolution of NHWC images with OHWI filters as an implicit GEMM, by CUTLASS 2.x: tensor operations or SIMT.
 */
#pragma once

#include "activation.h"
#include "cutlass/array.h"
#include "cutlass/conv/conv2d_problem_size.h"
#include "cutlass/conv/conv3d_problem_size.h"
#include "cutlass/conv/device/implicit_gemm_convolution.h"
#include "cutlass/conv/kernel/default_conv2d_fprop_with_broadcast.h"
#include "cutlass/cutlass.h"
#include "cutlass/numeric_conversion.h"
#include "launch_sm80.cuh"
#include "library.h"

namespace collage_cutlass {

/*!
 * The elementwise end of a convolution, post(pre(accumulator + bias) + residual), for CUTLASS's EpilogueWithBroadcast:
 * that loads the bias (zeros where there is none) and the residual. Concept: LinearCombinationResidualBlock.
 */
template <class Element, int Access>
class ConvolutionOutput {
 public:
  static bool const kIsSingleSource = true;
  static bool const kIsHeavy = true;
  static bool const kStoreZ = true;
  static bool const kStoreT = false;
  static int const kElementsPerAccess = Access;
  static int const kCount = Access;

  using ElementOutput = Element;
  using ElementC = Element;
  using ElementZ = Element;
  using ElementT = Element;
  using ElementVector = Element;
  using ElementAccumulator = float;
  using ElementCompute = float;
  using FragmentAccumulator = cutlass::Array<float, Access>;
  using FragmentCompute = cutlass::Array<float, Access>;
  using FragmentC = cutlass::Array<Element, Access>;
  using FragmentOutput = FragmentC;
  using FragmentZ = FragmentC;
  using FragmentT = FragmentC;

  struct Params {
    Activation pre, post;
    bool residual;
  };

  CUTLASS_HOST_DEVICE explicit ConvolutionOutput(Params const& params) : params_(params) {}
  CUTLASS_HOST_DEVICE bool is_source_needed() const { return params_.residual; }
  CUTLASS_HOST_DEVICE void set_k_partition(int, int) {}

  CUTLASS_HOST_DEVICE void operator()(FragmentZ& z, FragmentT&, FragmentAccumulator const& accumulator,
                                      FragmentC const& residual, FragmentCompute const& bias) const {
    FragmentCompute result = biased(accumulator, bias);
    FragmentCompute const source = cutlass::NumericArrayConverter<float, Element, Access>()(residual);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Access; ++i) result[i] += source[i];
    finish(z, result);
  }

  CUTLASS_HOST_DEVICE void operator()(FragmentZ& z, FragmentT&, FragmentAccumulator const& accumulator,
                                      FragmentCompute const& bias) const {
    FragmentCompute result = biased(accumulator, bias);
    finish(z, result);
  }

 private:
  CUTLASS_HOST_DEVICE FragmentCompute biased(FragmentAccumulator const& accumulator, FragmentCompute const& bias) const {
    FragmentCompute result = accumulator;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Access; ++i) result[i] += bias[i];
    activate<Access>(params_.pre, result);
    return result;
  }
  CUTLASS_HOST_DEVICE void finish(FragmentZ& z, FragmentCompute& result) const {
    activate<Access>(params_.post, result);
    z = cutlass::NumericArrayConverter<Element, float, Access>()(result);
  }

  Params params_;
};

/*! The parts of one kernel; alignments in elements along the channels. */
template <class Element, class OperatorClass, class Operator, class Tile, class Warp, class Instruction, int Stages,
          int AlignIn, int AlignOut>
struct ConvSm80Parts {
  using Layout = cutlass::layout::TensorNHWC;
  using Kernel = typename cutlass::conv::kernel::DefaultConv2dFpropWithBroadcast<
      Element, Layout, Element, Layout, Element, Layout, float, OperatorClass, cutlass::arch::Sm80, Tile, Warp, Instruction,
      ConvolutionOutput<Element, AlignOut>, cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<4>, Stages,
      Operator, cutlass::conv::IteratorAlgorithm::kOptimized, cutlass::conv::StrideSupport::kStrided, AlignIn,
      AlignIn>::Kernel;
};

/*! One problem on that kernel (concept: library.h). */
template <class Parts, class Element>
class ConvSm80 {
 public:
  using Device = cutlass::conv::device::ImplicitGemmConvolution<typename Parts::Kernel>;
  using Arguments = typename Device::Arguments;

  explicit ConvSm80(Problem const& problem) : problem_(problem) {}

  bool supported() const { return Device::can_implement(arguments({})) == cutlass::Status::kSuccess; }

  int64_t workspace() const { return static_cast<int64_t>(Device::get_workspace_size(arguments({}))); }

  char const* run(Operands const& operands, void* workspace, void* stream) {
    return launch(device_, arguments(operands), workspace, stream);
  }

 private:
  static Element* mutable_pointer(void const* address) { return static_cast<Element*>(const_cast<void*>(address)); }

  Arguments arguments(Operands const& operands) const {
    Problem const& p = problem_;
    auto const i = [](int64_t value) { return static_cast<int>(value); };
    cutlass::conv::Conv2dProblemSize const size(
        i(p.images), i(p.height), i(p.width), i(p.channels), i(p.n), i(p.filter_height), i(p.filter_width),
        i(p.out_height), i(p.out_width), i(p.pad_height), i(p.pad_width), i(p.stride_height), i(p.stride_width),
        i(p.dilation_height), i(p.dilation_width), cutlass::conv::Mode::kCrossCorrelation);
    using Layout = typename Parts::Layout;
    Layout const in = Layout::packed({i(p.images), i(p.height), i(p.width), i(p.channels)});
    Layout const filter = Layout::packed({i(p.n), i(p.filter_height), i(p.filter_width), i(p.channels)});
    Layout const out = Layout::packed({i(p.images), i(p.out_height), i(p.out_width), i(p.n)});
    return Arguments(size, {mutable_pointer(operands.a), in}, {mutable_pointer(operands.b), filter},
                     {mutable_pointer(operands.residual), out}, {mutable_pointer(operands.d), out},
                     {p.pre, p.post, operands.residual != nullptr}, cutlass::conv::SplitKMode::kSerial,
                     const_cast<void*>(operands.column_bias), nullptr, 0, p.n);
  }

  Problem problem_;
  Device device_;
};

}  // namespace collage_cutlass
