/*!
 * The epilogue of the CUTLASS 2.x kernels: D = post(pre(accumulator + column bias + row bias) + residual).
 *
 * CUTLASS 2.x has epilogues with a bias along the columns and a residual, none with a bias along the rows, which a 1x1
 * convolution in NCHW needs. This is one node for EpilogueWithVisitorCallbacks that does it all. It walks the output tile
 * as CUTLASS's own PredicatedTileIterator does, by the same thread map, so it serves tensor-op and SIMT kernels alike.
 */
#pragma once

#include "activation.h"
#include "cutlass/arch/memory.h"
#include "cutlass/array.h"
#include "cutlass/gemm/gemm.h"
#include "cutlass/matrix_coord.h"
#include "cutlass/numeric_conversion.h"

namespace collage_cutlass {

/*!
 * Where in the output tile a thread's fragments lie. `step` counts the passes of the epilogue through shared memory,
 * `row` and `column` the accesses of a thread within one.
 */
template <class ThreadMap>
struct TileWalk {
  using Shape = typename ThreadMap::Shape;
  using Count = typename ThreadMap::Count;
  using Iterations = typename ThreadMap::Iterations;
  using Delta = typename ThreadMap::Delta;

  static_assert(Count::kCluster == 1, "no thread map of CUTLASS's default epilogues walks over clusters");
  static int const kColumns = Iterations::kColumn;
  static int const kRows = Iterations::kRow * Iterations::kGroup * Iterations::kCluster;

  /*! Rows from a thread's first row to where it is in step `step`; PredicatedTileIterator::operator++ in closed form. */
  CUTLASS_HOST_DEVICE static int step_row(int step) {
    return step % Count::kRow * Shape::kRow + step / Count::kRow * Shape::kGroup * Count::kRow * Shape::kRow;
  }

  /*! Rows from there to the thread's access number `row`; PredicatedTileIterator::load's order. */
  CUTLASS_HOST_DEVICE static int access_row(int row) {
    return row % Iterations::kRow * Delta::kRow + row / Iterations::kRow % Iterations::kGroup * Delta::kGroup +
           row / (Iterations::kRow * Iterations::kGroup) * Delta::kCluster;
  }

  /*! Columns from a thread's first column to its access number `column`. */
  CUTLASS_HOST_DEVICE static int access_column(int column) { return column * Delta::kColumn; }
};

/*!
 * The node. Tile is the threadblock's GemmShape, Element the type of D, residual and biases; computed in float.
 * Concept: FusionCallbacks of cutlass/epilogue/threadblock/epilogue_with_visitor_callbacks.h.
 */
template <class Tile, class ThreadMap, class Element>
class FusedOutput {
 public:
  using Walk = TileWalk<ThreadMap>;
  static int const kAccess = ThreadMap::kElementsPerAccess;
  using Access = cutlass::AlignedArray<Element, kAccess>;
  using Fragment = cutlass::Array<float, kAccess>;

  struct Arguments {
    Operands operands;
    int64_t ldr, ldd, batch_r, batch_d;
    Activation pre, post;
  };
  using Params = Arguments;
  struct SharedStorage {};

  template <class Shape>
  static Params to_underlying_arguments(Shape const&, Arguments const& arguments, void*) {
    return arguments;
  }

  CUTLASS_HOST_DEVICE FusedOutput() : params_(nullptr) {}
  CUTLASS_HOST_DEVICE FusedOutput(Params const& params, SharedStorage const&) : params_(&params) {}

  struct Callbacks {
    Params const& params;
    int rows, columns, first_row, first_column, step_row;
    int64_t matrix;
    Access column_bias[Walk::kColumns];
    Access residual[Walk::kRows * Walk::kColumns];
    float row_bias;

    CUTLASS_DEVICE Callbacks(Params const& params, int rows, int columns, int first_row, int first_column,
                             int64_t matrix)
        : params(params), rows(rows), columns(columns), first_row(first_row), first_column(first_column),
          step_row(first_row), matrix(matrix), row_bias(0) {}

    CUTLASS_DEVICE int column(int index) const { return first_column + Walk::access_column(index); }

    CUTLASS_DEVICE void begin_epilogue() {
      auto const* bias = static_cast<Element const*>(params.operands.column_bias);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Walk::kColumns; ++i) {
        column_bias[i].clear();
        load(column_bias[i], bias + column(i), bias != nullptr && column(i) < columns);
      }
    }

    CUTLASS_DEVICE void begin_step(int step) {
      step_row = first_row + Walk::step_row(step);
      auto const* source = static_cast<Element const*>(params.operands.residual);
      if (source == nullptr) return;
      CUTLASS_PRAGMA_UNROLL
      for (int r = 0; r < Walk::kRows; ++r) {
        int const row = step_row + Walk::access_row(r);
        Element const* start = source + matrix * params.batch_r + row * params.ldr;
        CUTLASS_PRAGMA_UNROLL
        for (int c = 0; c < Walk::kColumns; ++c) {
          load(residual[r * Walk::kColumns + c], start + column(c), row < rows && column(c) < columns);
        }
      }
    }

    CUTLASS_DEVICE void begin_row(int row_index) {
      auto const* bias = static_cast<Element const*>(params.operands.row_bias);
      int const row = step_row + Walk::access_row(row_index);
      row_bias = bias != nullptr && row < rows ? static_cast<float>(bias[row]) : 0.0f;
    }

    template <class Accumulator>
    CUTLASS_DEVICE void visit(int, int row_index, int column_index, int index,
                              cutlass::Array<Accumulator, kAccess> const& accumulator) {
      using ToFloat = cutlass::NumericArrayConverter<float, Element, kAccess>;
      Fragment result = cutlass::NumericArrayConverter<float, Accumulator, kAccess>()(accumulator);
      Fragment const bias = ToFloat()(column_bias[column_index]);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kAccess; ++i) result[i] += bias[i] + row_bias;
      activate<kAccess>(params.pre, result);
      if (params.operands.residual != nullptr) {
        Fragment const source = ToFloat()(residual[index]);
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kAccess; ++i) result[i] += source[i];
      }
      activate<kAccess>(params.post, result);
      store(cutlass::NumericArrayConverter<Element, float, kAccess>()(result), row_index, column(column_index));
    }

    CUTLASS_DEVICE void end_row(int) {}
    CUTLASS_DEVICE void end_step(int) {}
    CUTLASS_DEVICE void end_epilogue() {}

   private:
    CUTLASS_DEVICE static void load(Access& value, Element const* from, bool guard) {
      cutlass::arch::global_load<Access, sizeof(Access)>(value, from, guard);
    }

    CUTLASS_DEVICE void store(cutlass::Array<Element, kAccess> const& value, int row_index, int column) {
      int const row = step_row + Walk::access_row(row_index);
      Element* to = static_cast<Element*>(params.operands.d) + matrix * params.batch_d + row * params.ldd + column;
      cutlass::arch::global_store<Access, sizeof(Access)>(reinterpret_cast<Access const&>(value), to,
                                                          row < rows && column < columns);
    }
  };

  /*! `offset` counts tiles; its k() is the matrix of the batch. */
  template <class ProblemShape>
  CUTLASS_DEVICE Callbacks get_callbacks(cutlass::gemm::GemmCoord offset, int thread, ProblemShape shape) {
    cutlass::MatrixCoord const start = ThreadMap::initial_offset(thread);
    return Callbacks(*params_, cute::get<0>(shape), cute::get<1>(shape), offset.m() * Tile::kM + start.row(),
                     offset.n() * Tile::kN + start.column(), offset.k());
  }

 private:
  Params const* params_;
};

}  // namespace collage_cutlass
