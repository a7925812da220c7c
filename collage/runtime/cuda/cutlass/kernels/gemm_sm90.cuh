/*!
 * GEMM by CUTLASS 3.x for Hopper (sm_90a): tiles come by TMA, warp groups multiply by wgmma, and the epilogue overlaps
 * with the next tile's main loop. For 16-bit floats, all rows aligned to 16 bytes.
 *
 * CUTLASS's own adapter and its headers of everything would double the time to compile, so kernels are launched here.
 */
#pragma once

#include <vector>

#include "activation.h"
#include "cute/tensor.hpp"
#include "cutlass/cluster_launch.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/device_kernel.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/functional.h"
#include "cutlass/gemm/collective/builders/sm90_gmma_builder.inl"
#include "cutlass/gemm/collective/sm90_mma_tma_gmma_ss_warpspecialized.hpp"
#include "cutlass/gemm/kernel/gemm_universal_decl.h"
#include "cutlass/gemm/kernel/tile_scheduler.hpp"
#include "cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_cooperative.hpp"
#include "cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_pingpong.hpp"
#include "cutlass/kernel_hardware_info.h"
#include "library.h"

namespace collage_cutlass {

/*! The activation of activation.h as a node of CUTLASS's epilogue trees: for one float, and for a fragment. */
template <class T>
struct ActivationNode {
  using Arguments = Activation;
  CUTLASS_DEVICE T operator()(T const& value, Activation const& activation) const {
    return activated(activation, value);
  }
};
template <int Count>
struct ActivationNode<cutlass::Array<float, Count>> {
  using Fragment = cutlass::Array<float, Count>;
  using Arguments = Activation;
  CUTLASS_DEVICE Fragment operator()(Fragment value, Activation const& activation) const {
    activate<Count>(activation, value);
    return value;
  }
};

/*! The same after both biases are added. One node for three: the types of a tree are as long as it is deep, squared. */
template <class T>
struct BiasedActivationNode {
  using Arguments = Activation;
  CUTLASS_DEVICE T operator()(T const& sum, T const& column, T const& row, Activation const& activation) const {
    return activated(activation, sum + column + row);
  }
};
template <int Count>
struct BiasedActivationNode<cutlass::Array<float, Count>> {
  using Fragment = cutlass::Array<float, Count>;
  using Arguments = Activation;
  CUTLASS_DEVICE Fragment operator()(Fragment sum, Fragment const& column, Fragment const& row,
                                     Activation const& activation) const {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Count; ++i) sum[i] += column[i] + row[i];
    activate<Count>(activation, sum);
    return sum;
  }
};

/*! The parts of one kernel; Tile and Cluster as cute::Shape, LayoutB row- or column-major. */
template <class Element, class LayoutB, class Tile, class Cluster, class MainSchedule, class OutputSchedule, class Scheduler>
struct GemmSm90Parts {
  template <template <class> class Function, class Out, class... Children>
  using Node = cutlass::epilogue::fusion::Sm90EVT<
      cutlass::epilogue::fusion::Sm90Compute<Function, Out, float, cutlass::FloatRoundStyle::round_to_nearest>,
      Children...>;
  using ColumnBias = cutlass::epilogue::fusion::Sm90RowBroadcast<0, Tile, Element, float>;
  using RowBias = cutlass::epilogue::fusion::Sm90ColBroadcast<0, Tile, Element, float>;
  using Pre = Node<BiasedActivationNode, float, cutlass::epilogue::fusion::Sm90AccFetch, ColumnBias, RowBias>;
  // CUTLASS loads the residual only where this factor of it is not zero.
  using Sum = Node<cutlass::homogeneous_multiply_add, float, cutlass::epilogue::fusion::Sm90ScalarBroadcast<float>,
                   cutlass::epilogue::fusion::Sm90SrcFetch<Element>, Pre>;
  using Output = Node<ActivationNode, Element, Sum>;

  using Row = cutlass::layout::RowMajor;
  static int const kAlignment = 128 / cutlass::sizeof_bits<Element>::value;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto,
      float, float, Element, Row, kAlignment, Element, Row, kAlignment, OutputSchedule, Output>::CollectiveOp;
  using Stages = cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
      sizeof(typename Epilogue::SharedStorage))>;
  using Main = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, Row, kAlignment, Element, LayoutB, kAlignment, float,
      Tile, Cluster, Stages, MainSchedule>::CollectiveOp;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Main, Epilogue, Scheduler>;
};

/*! One problem on that kernel (concept: library.h). */
template <class Parts>
class GemmSm90 {
 public:
  using Kernel = typename Parts::Kernel;
  using Arguments = typename Kernel::Arguments;

  explicit GemmSm90(Problem const& problem) : problem_(problem) {
    cudaGetDevice(&hardware_.device_id);
    hardware_.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(hardware_.device_id);
    ready_ = cudaFuncSetAttribute(cutlass::device_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(Kernel::SharedStorageSize));
  }

  bool supported() const {
    // A tensor map has no stride of zero.
    bool const shared = problem_.batch > 1 && (problem_.batch_a == 0 || problem_.batch_b == 0);
    return ready_ == cudaSuccess && !shared && Kernel::can_implement(arguments({}));
  }

  int64_t workspace() const { return static_cast<int64_t>(Kernel::get_workspace_size(arguments({}))); }

  char const* run(Operands const& operands, void* workspace, void* stream) {
    auto const queue = static_cast<cudaStream_t>(stream);
    Plan const& plan = planned(operands, workspace);
    if (workspace != nullptr) {
      // Other kernels have used it since: the flags by which blocks wait have to be cleared.
      auto const status = Kernel::initialize_workspace(plan.arguments, workspace, queue);
      if (status != cutlass::Status::kSuccess) return cutlass::cutlassGetStatusString(status);
    }
    dim3 const cluster(cute::size<0>(typename Kernel::DispatchPolicy::ClusterShape{}),
                       cute::size<1>(typename Kernel::DispatchPolicy::ClusterShape{}),
                       cute::size<2>(typename Kernel::DispatchPolicy::ClusterShape{}));
    void* parameters[] = {const_cast<void*>(static_cast<void const*>(&plan.parameters))};
    auto const status = cutlass::ClusterLauncher::launch(
        Kernel::get_grid_shape(plan.parameters), cluster, Kernel::get_block_shape(), Kernel::SharedStorageSize, queue,
        reinterpret_cast<void const*>(cutlass::device_kernel<Kernel>), parameters);
    return status == cutlass::Status::kSuccess ? nullptr : cutlass::cutlassGetStatusString(status);
  }

 private:
  struct Plan {
    Operands operands;
    void* workspace;
    Arguments arguments;
    typename Kernel::Params parameters;
  };
  static constexpr size_t kRemembered = 16;

  /*! Making tensor maps costs microseconds, and TVM hands out the same few addresses call after call. */
  Plan const& planned(Operands const& operands, void* workspace) {
    for (Plan const& plan : plans_) {
      if (plan.operands == operands && plan.workspace == workspace) return plan;
    }
    if (plans_.size() >= kRemembered) plans_.clear();
    auto const all = arguments(operands);
    plans_.push_back({operands, workspace, all, Kernel::to_underlying_arguments(all, workspace)});
    return plans_.back();
  }

  template <class Stride>
  static Stride strides(int64_t line, int64_t batch) {
    // One of the first two strides is the static 1 of the layout.
    Stride result{};
    if constexpr (cute::is_static_v<cute::tuple_element_t<0, Stride>>) {
      cute::get<1>(result) = line;
    } else {
      cute::get<0>(result) = line;
    }
    cute::get<2>(result) = batch;
    return result;
  }

  Arguments arguments(Operands const& operands) const {
    using Element = typename Kernel::ElementD;
    Problem const& p = problem_;
    auto const* residual = static_cast<Element const*>(operands.residual);
    auto* result = static_cast<Element*>(operands.d);
    Arguments all{};
    all.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    all.problem_shape = {static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k), static_cast<int>(p.batch)};
    all.mainloop.ptr_A = static_cast<Element const*>(operands.a);
    all.mainloop.dA = strides<typename Kernel::StrideA>(p.lda, p.batch_a);
    all.mainloop.ptr_B = static_cast<Element const*>(operands.b);
    all.mainloop.dB = strides<typename Kernel::StrideB>(p.ldb, p.batch_b);
    // The tensor map of a residual that there is not is made of the result's address, and never used.
    all.epilogue.ptr_C = residual != nullptr ? residual : result;
    all.epilogue.dC = strides<typename Kernel::StrideC>(residual != nullptr ? p.ldr : p.ldd,
                                                               residual != nullptr ? p.batch_r : p.batch_d);
    all.epilogue.ptr_D = result;
    all.epilogue.dD = strides<typename Kernel::StrideD>(p.ldd, p.batch_d);
    all.hw_info = hardware_;
    // The tree of GemmSm90Parts: the arguments of a node's children, in order, and then its own.
    auto& output = all.epilogue.thread;
    auto& sum = output.op_0;
    auto& pre = sum.op_2;
    output.op_1 = p.post;
    sum.op_0.scalars[0] = residual != nullptr ? 1.0f : 0.0f;
    pre.op_1.ptr_row = static_cast<Element const*>(operands.column_bias);
    pre.op_2.ptr_col = static_cast<Element const*>(operands.row_bias);
    pre.op_3 = p.pre;
    return all;
  }

  Problem problem_;
  cutlass::KernelHardwareInfo hardware_;
  cudaError_t ready_;
  std::vector<Plan> plans_;
};

}  // namespace collage_cutlass
