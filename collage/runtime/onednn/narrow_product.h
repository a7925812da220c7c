/*!
 * Sums of a matrix product whose operands are held in less than 32 bits, by oneDNN's primitive. Constant right-hand sides are
 * converted, and copied to the layout that the primitive chooses, once; all else when it is read.
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_NARROW_PRODUCT_H_
#define COLLAGE_RUNTIME_ONEDNN_NARROW_PRODUCT_H_

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "channels_last.h"
#include "operation.h"

namespace collage {
namespace onednn {

/*! A matrix in memory: its rows, or where it is transposed its columns, are contiguous and `ld` apart. */
struct Lines {
  const float* data;
  bool transposed;
  int64_t ld;
};

class NarrowProduct {
 public:
  /*! A constant right-hand side, ready for the primitive: of some columns. */
  struct Weights {
    Buffer data;
    std::vector<float> scales, bias;
  };

  NarrowProduct(const Precision& precision, int64_t k, float alpha) : precision_(precision), k_(k), alpha_(alpha) {}

  /*! Makes known that parts of this size are computed, and how their operands lie. */
  void Prepare(int64_t rows, int64_t columns, bool lhs_transposed, bool rhs_transposed, bool constant_rhs) {
    if (kernels_.count({rows, columns})) return;
    Descriptor& layout = layouts_[columns];
    Descriptor wanted = layout != nullptr ? layout
                        : constant_rhs    ? Any({k_, columns}, precision_.weights)
                                          : Compact(k_, columns, rhs_transposed, precision_.weights);
    Kernel kernel;
    if (constant_rhs) kernel.row = Strided({1, columns}, {columns, 1});
    kernel.lhs = Compact(rows, k_, lhs_transposed, precision_.data);
    kernel.result = Compact(rows, columns, false, dnnl_f32);
    Attributes attributes = MakeAttributes();
    if (precision_.is_int8()) {
      kernel.scales = Strided({columns}, {1});
      COLLAGE_ONEDNN_CALL(dnnl_primitive_attr_set_scales_mask, attributes.get(), DNNL_ARG_WEIGHTS, 2);
    }
    dnnl_primitive_desc_t made;
    COLLAGE_ONEDNN_CALL(dnnl_matmul_primitive_desc_create, &made, Engine(), kernel.lhs.get(), wanted.get(), kernel.row.get(),
                        kernel.result.get(), attributes.get());
    PrimitiveDescriptor descriptor = Own(made);
    RefuseReference(made);
    layout = Chosen(descriptor, dnnl_query_weights_md);
    kernel.rhs = layout;
    kernel.scratchpad = Chosen(descriptor, dnnl_query_scratchpad_md);
    kernel.primitive = Make(descriptor);
    left_ = std::max(left_, Lined(Floats(kernel.lhs)));
    right_ = std::max(right_, constant_rhs ? 0 : Lined(Floats(kernel.rhs)));
    sums_ = std::max(sums_, Lined(Floats(kernel.result)));
    scratch_ = std::max(scratch_, Floats(kernel.scratchpad));
    kernels_[{rows, columns}] = std::move(kernel);
  }

  /*! A constant right-hand side of parts that are known; a null bias is none. */
  Weights MakeWeights(const Lines& rhs, int64_t columns, const float* bias) const {
    Weights made;
    made.bias.assign(columns, 0.0f);
    if (bias != nullptr) std::copy_n(bias, columns, made.bias.data());
    const Descriptor& layout = layouts_.at(columns);
    made.data.Reserve(Floats(layout));
    auto stride = [&](int64_t row) { return rhs.transposed ? Extents{1, row} : Extents{row, 1}; };
    if (!precision_.is_int8()) {
      Copy(Strided({k_, columns}, stride(rhs.ld)), layout, rhs.data, made.data.data());
      return made;
    }
    Buffer compact(k_ * columns);
    for (int64_t k = 0; k < k_; ++k) {
      for (int64_t j = 0; j < columns; ++j) compact.data()[k * columns + j] = rhs.data[rhs.transposed ? j * rhs.ld + k : k * rhs.ld + j];
    }
    Int8Weights bytes(compact.data(), k_ * columns, columns, [&](int64_t i) { return i % columns; });
    Copy(Strided({k_, columns}, {columns, 1}, dnnl_s8), layout, bytes.steps.data(), made.data.data());
    for (int64_t j = 0; j < columns; ++j) {
      int64_t sum = 0;  // what the steps of zero would give
      for (int64_t k = 0; k < k_; ++k) sum += bytes.steps[k * columns + j];
      made.scales.push_back(bytes.scales[j] * precision_.scale * alpha_);
      made.bias[j] -= made.scales[j] * static_cast<float>(precision_.zero * sum);
    }
    return made;
  }

  /*! Floats that a task needs: for the sums of a part, which come first, for its operands, and for oneDNN. */
  int64_t workspace() const { return sums_ + left_ + right_ + scratch_; }

  /*! Where the rows of the left-hand side go, one after the other, unless they are read from a matrix. */
  void* lhs(float* own) const { return own + sums_; }

  void ReadLhs(const Lines& matrix, int64_t rows, float* own) const {
    Convert(matrix, rows, k_, lhs(own), precision_.is_int8() ? 1.0f : alpha_);
  }

  /*! The sums of a part, row by row without gaps: oneDNN's fast kernels write no others. With `weights`, `rhs` is not read. */
  void Run(int64_t rows, int64_t columns, const Lines& rhs, const Weights* weights, float* y, float* own) const {
    const Kernel& kernel = kernels_.at({rows, columns});
    float* right = own + sums_ + left_;
    if (weights == nullptr) Convert(rhs, k_, columns, right, 1.0f);
    Memory a(kernel.lhs, lhs(own)), b(kernel.rhs, weights == nullptr ? right : weights->data.data()), c(kernel.result, y);
    Memory room(kernel.scratchpad, right + right_);
    std::vector<dnnl_exec_arg_t> arguments{
        {DNNL_ARG_SRC, a.get()}, {DNNL_ARG_WEIGHTS, b.get()}, {DNNL_ARG_DST, c.get()}, {DNNL_ARG_SCRATCHPAD, room.get()}};
    if (weights == nullptr) return Execute(kernel.primitive, arguments);
    Memory bias(kernel.row, weights->bias.data());
    arguments.push_back({DNNL_ARG_BIAS, bias.get()});
    if (!precision_.is_int8()) return Execute(kernel.primitive, arguments);
    Memory scales(kernel.scales, weights->scales.data());
    arguments.push_back({DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, scales.get()});
    Execute(kernel.primitive, arguments);
  }

 private:
  struct Kernel {
    Descriptor lhs, rhs, row, result, scales, scratchpad;
    Primitive primitive;
  };

  static int64_t Lined(int64_t floats) { return CeilDiv(floats, 16) * 16; }

  static Descriptor Compact(int64_t rows, int64_t columns, bool transposed, dnnl_data_type_t type) {
    return Strided({rows, columns}, transposed ? Extents{1, rows} : Extents{columns, 1}, type);
  }

  static void Copy(const Descriptor& from, const Descriptor& to, const void* data, float* target) {
    Reorder reorder(from, to);
    Buffer scratch(reorder.scratch() + 1);
    reorder.Run(data, target, scratch.data());
  }

  void Convert(const Lines& matrix, int64_t rows, int64_t columns, void* to, float factor) const {
    int64_t lines = matrix.transposed ? columns : rows, count = matrix.transposed ? rows : columns;
    for (int64_t i = 0; i < lines; ++i) {
      const float* from = matrix.data + i * matrix.ld;
      if (precision_.is_int8()) {
        ToLine(from, count, AsSteps{precision_.steps()}, static_cast<uint8_t*>(to) + i * count);
      } else {
        ToLine(from, count, AsBf16{factor}, static_cast<uint16_t*>(to) + i * count);
      }
    }
  }

  Precision precision_;
  int64_t k_;
  float alpha_;
  std::map<std::pair<int64_t, int64_t>, Kernel> kernels_;
  std::map<int64_t, Descriptor> layouts_;
  int64_t sums_ = 0, left_ = 0, right_ = 0, scratch_ = 0;
};

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_NARROW_PRODUCT_H_
