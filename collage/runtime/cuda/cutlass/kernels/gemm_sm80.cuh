/*!
 * GEMM by CUTLASS 2.x: cp.async pipelines with mma.sync tensor operations, or SIMT in full float32. Runs on sm_80 and all
 * that came after.
 *
 * With StreamK, work is divided over all multiprocessors along k as well (Osama et al., "Stream-K", PPoPP 2023): for
 * products with few output tiles, as networks at batch size 1 have them.
 */
#pragma once

#include "cutlass/cutlass.h"
#include "cutlass/epilogue/thread/linear_combination.h"
#include "cutlass/epilogue/threadblock/epilogue_base.h"
#include "cutlass/epilogue/threadblock/epilogue_base_streamk.h"
#include "cutlass/epilogue/threadblock/epilogue_with_visitor_callbacks.h"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/default_gemm_universal.h"
#include "cutlass/gemm/kernel/default_gemm_universal_with_visitor.h"
#include "cutlass/gemm/kernel/gemm_universal_with_visitor.h"
#include "cutlass/gemm/kernel/gemm_universal_with_visitor_streamk.h"
#include "cutlass/gemm/threadblock/threadblock_swizzle.h"
#include "cutlass/gemm/threadblock/threadblock_swizzle_streamk.h"
#include "epilogue_sm80.cuh"
#include "launch_sm80.cuh"
#include "library.h"

namespace collage_cutlass {

/*! The parts of one GEMM kernel; alignments in elements, shapes as cutlass::gemm::GemmShape. */
template <class Element, class LayoutB, class OperatorClass, class Operator, class Tile, class Warp, class Instruction,
          int Stages, int AlignA, int AlignB, int AlignD, bool StreamK>
struct GemmSm80Parts {
  using Row = cutlass::layout::RowMajor;
  using Swizzle = cute::conditional_t<StreamK, cutlass::gemm::threadblock::ThreadblockSwizzleStreamK,
                                      cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>>;
  using Plain = typename cutlass::gemm::kernel::DefaultGemmUniversal<
      Element, Row, cutlass::ComplexTransform::kNone, AlignA, Element, LayoutB, cutlass::ComplexTransform::kNone, AlignB,
      Element, Row, float, OperatorClass, cutlass::arch::Sm80, Tile, Warp, Instruction,
      cutlass::epilogue::thread::LinearCombination<Element, AlignD, float, float>, Swizzle, Stages,
      Operator>::GemmKernel;
  using ThreadMap = typename Plain::Epilogue::OutputTileIterator::ThreadMap;
  using Output = FusedOutput<Tile, ThreadMap, Element>;
  using Epilogue = cutlass::epilogue::threadblock::EpilogueWithVisitorCallbacks<typename Plain::Epilogue, Output, 1>;
  static_assert(Output::Walk::kRows * Output::Walk::kColumns == Epilogue::kAccumulatorFragmentCount,
                "the epilogue's walk and CUTLASS's differ");
  using Mma = typename Plain::Mma;
  using Kernel = cute::conditional_t<StreamK, cutlass::gemm::kernel::GemmWithEpilogueVisitorStreamk<Mma, Epilogue, Swizzle>,
                                     cutlass::gemm::kernel::GemmWithEpilogueVisitor<Mma, Epilogue, Swizzle>>;
};

/*! One problem on that kernel (concept: library.h). */
template <class Parts, bool StreamK>
class GemmSm80 {
 public:
  using Device = cutlass::gemm::device::GemmUniversalAdapter<typename Parts::Kernel>;
  using Arguments = typename Device::Arguments;

  explicit GemmSm80(Problem const& problem) : problem_(problem) {}

  bool supported() const {
    if (StreamK && problem_.batch != 1) return false;
    return Device::can_implement(arguments({})) == cutlass::Status::kSuccess;
  }

  int64_t workspace() const { return static_cast<int64_t>(Device::get_workspace_size(arguments({}))); }

  char const* run(Operands const& operands, void* workspace, void* stream) {
    return launch(device_, arguments(operands), workspace, stream);
  }

 private:
  Arguments arguments(Operands const& operands) const {
    Problem const& p = problem_;
    auto const mode =
        p.batch > 1 ? cutlass::gemm::GemmUniversalMode::kBatched : cutlass::gemm::GemmUniversalMode::kGemm;
    typename Parts::Output::Arguments output{operands, p.ldr, p.ldd, p.batch_r, p.batch_d, p.pre, p.post};
    return Arguments(mode, {static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k)},
                     static_cast<int>(p.batch), output, operands.a, operands.b, nullptr, nullptr, p.batch_a, p.batch_b,
                     0, 0, p.lda, p.ldb, p.ldd, p.ldd);
  }

  Problem problem_;
  Device device_;
};

}  // namespace collage_cutlass
