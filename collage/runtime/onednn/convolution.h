/*!
 * Convolutions, and transposed ones, by oneDNN's primitives in the layouts that these choose: images are copied to them
 * first, and results back. The work is parted by images, groups and filters into pieces that are convolutions of their own.
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_CONVOLUTION_H_
#define COLLAGE_RUNTIME_ONEDNN_CONVOLUTION_H_

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "channels_last.h"
#include "operation.h"

namespace collage {
namespace onednn {

/*! Floats of a block of channels in oneDNN's layouts, whatever the vectors. */
constexpr int64_t kBlock = 16;

/*! Extents of x and y are images x channels x axes; those of the kernel are its axes only. */
struct Shape {
  bool transposed;
  Extents x, y, kernel, stride, dilation, before, after;
  int64_t groups;
  Precision precision;
  bool residual;

  /*!
   * Whether oneDNN applies the epilogue. In transposed convolutions its version 3.2 does so to partial sums (AVX-512;
   * strides, many channels), which gives wrong numbers. A residual would have to be copied to its layout first.
   */
  bool fused() const { return !transposed && (precision.is_float() || !residual); }
};

inline Extents With(int64_t first, int64_t second, const Extents& axes) {
  Extents all{first, second};
  all.insert(all.end(), axes.begin() + 2, axes.end());
  return all;
}

/*! A part of images and channels of a compact tensor of these extents; where there is one image it is compact, too. */
inline Descriptor Planes(const Extents& whole, int64_t images, int64_t channels) {
  Extents strides(whole.size(), 1);
  for (size_t i = whole.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * whole[i + 1];
  if (images == 1) strides[0] = channels * strides[1];
  return Strided(With(images, channels, whole), strides);
}

/*! Rows of channels, whole and compact. */
inline Descriptor Rows(const Extents& extents, dnnl_data_type_t type) {
  Extents strides(extents.size(), extents[1]);
  for (size_t i = extents.size() - 1; i-- > 2;) strides[i] = strides[i + 1] * extents[i + 1];
  strides[0] = Count(extents, 1);
  strides[1] = 1;
  return Strided(extents, strides, type);
}

/*! oneDNN's convolution of some images, groups and filters. */
class Kernel {
 public:
  /*! `source` is the layout of x that other kernels chose; null leaves the choice to this one. */
  Kernel(const Shape& shape, int64_t images, int64_t groups, int64_t filters, const Activation& activation, const Descriptor& source)
      : zero_(shape.precision.zero) {
    channels = shape.x[1] / shape.groups * groups;
    plain_source = Planes(shape.x, images, channels);
    plain_result = Planes(shape.y, images, filters);
    Extents kernel{filters / groups, channels / groups};
    if (shape.groups > 1) kernel.insert(kernel.begin(), groups);
    kernel.insert(kernel.end(), shape.kernel.begin(), shape.kernel.end());
    dnnl_post_ops_t steps;
    COLLAGE_ONEDNN_CALL(dnnl_post_ops_create, &steps);
    std::shared_ptr<dnnl_post_ops> owned(steps, [](dnnl_post_ops_t p) { COLLAGE_ONEDNN(dnnl_post_ops_destroy)(p); });
    if (shape.fused() && shape.residual) COLLAGE_ONEDNN_CALL(dnnl_post_ops_append_sum, steps, 1.0f, 0, dnnl_f32);
    if (shape.fused() && activation.kind != dnnl_alg_kind_undef) {
      COLLAGE_ONEDNN_CALL(dnnl_post_ops_append_eltwise, steps, activation.kind, activation.alpha, activation.beta);
    }
    Attributes attributes = MakeAttributes();
    COLLAGE_ONEDNN_CALL(dnnl_primitive_attr_set_post_ops, attributes.get(), steps);
    if (shape.precision.is_int8()) {
      scales_ = Strided({filters}, {1});
      COLLAGE_ONEDNN_CALL(dnnl_primitive_attr_set_scales_mask, attributes.get(), DNNL_ARG_WEIGHTS, shape.groups > 1 ? 3 : 1);
      COLLAGE_ONEDNN_CALL(dnnl_primitive_attr_set_zero_points_mask, attributes.get(), DNNL_ARG_SRC, 0);
    }
    Descriptor x = source == nullptr ? Any(With(images, channels, shape.x), shape.precision.data) : source;
    Descriptor w = Any(kernel, shape.precision.weights);
    Descriptor bias = shape.fused() ? Strided({filters}, {1}) : nullptr, y = Any(With(images, filters, shape.y));
    dnnl_primitive_desc_t made;
    if (shape.transposed) {
      COLLAGE_ONEDNN_CALL(dnnl_deconvolution_forward_primitive_desc_create, &made, Engine(), dnnl_forward_inference,
                          dnnl_deconvolution_direct, x.get(), w.get(), bias.get(), y.get(), shape.stride.data(),
                          shape.dilation.data(), shape.before.data(), shape.after.data(), attributes.get());
    } else {
      COLLAGE_ONEDNN_CALL(dnnl_convolution_forward_primitive_desc_create, &made, Engine(), dnnl_forward_inference,
                          dnnl_convolution_direct, x.get(), w.get(), bias.get(), y.get(), shape.stride.data(),
                          shape.dilation.data(), shape.before.data(), shape.after.data(), attributes.get());
    }
    PrimitiveDescriptor descriptor = Own(made);
    RefuseReference(made);
    this->source = Chosen(descriptor, dnnl_query_src_md);
    weights = Chosen(descriptor, dnnl_query_weights_md);
    this->bias = bias;
    result = Chosen(descriptor, dnnl_query_dst_md);
    scratchpad = Chosen(descriptor, dnnl_query_scratchpad_md);
    primitive = Make(descriptor);
    bool narrow = !shape.precision.is_float();
    reads_rows = narrow && Same(this->source, Rows(With(images, channels, shape.x), shape.precision.data));
    writes_rows = narrow && Same(result, Rows(With(images, filters, shape.y), dnnl_f32));
    if (!Same(result, plain_result)) {
      out = Reorder(result, plain_result);
      in = Reorder(plain_result, result);
    }
  }

  /*! `scales` are those of the results in eight bits. */
  void Run(const float* x, const float* w, const float* bias, const float* scales, float* y, float* scratch) const {
    Memory read(source, x), kernel(weights, w), target(result, y), room(scratchpad, scratch);
    std::vector<dnnl_exec_arg_t> arguments{
        {DNNL_ARG_SRC, read.get()}, {DNNL_ARG_WEIGHTS, kernel.get()}, {DNNL_ARG_DST, target.get()}, {DNNL_ARG_SCRATCHPAD, room.get()}};
    std::unique_ptr<Memory> added, factors, zero;
    if (this->bias != nullptr) {
      added = std::make_unique<Memory>(this->bias, bias);
      arguments.push_back({DNNL_ARG_BIAS, added->get()});
    }
    if (scales_ != nullptr) {
      factors = std::make_unique<Memory>(scales_, scales);
      zero = std::make_unique<Memory>(Strided({1}, {1}, dnnl_s32), &zero_);
      arguments.push_back({DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, factors->get()});
      arguments.push_back({DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, zero->get()});
    }
    Execute(primitive, arguments);
  }

  bool copies_source() const { return !Same(source, plain_source); }
  bool copies_result() const { return !Same(result, plain_result); }

  int64_t channels;
  Descriptor plain_source, plain_result, source, weights, bias, result, scratchpad;
  Primitive primitive;
  /*! From its layout of the result, and of a residual to it. */
  Reorder out, in;
  /*! Whether these are rows of channels, which are copied without oneDNN. */
  bool reads_rows, writes_rows;

 private:
  Descriptor scales_;
  int32_t zero_;
};

class Convolution : public Operation {
 public:
  /*! Weights are filters x channels of a group x axes, of transposed convolutions channels x filters of a group x axes. */
  Convolution(const Shape& shape, const float* weights, const float* bias, Activation activation, int64_t threads)
      : shape_(shape), bias_(shape.y[1]), activation_(activation), nonlinear_(activation) {
    std::fill_n(bias_.data(), shape.y[1], 0.0f);
    if (bias != nullptr) std::copy_n(bias, shape.y[1], bias_.data());
    std::unique_ptr<Int8Weights> bytes = ToBytes(weights);
    const char* given = bytes == nullptr ? reinterpret_cast<const char*>(weights) : reinterpret_cast<const char*>(bytes->steps.data());
    int64_t wanted = threads == 1 ? 1 : kPiecesPerThread * threads;
    for (auto images : Parts(shape.x[0], 1, wanted)) {
      sources_.push_back({images.first, images.second, sources_.empty() ? 0 : sources_.back().offset + sources_.back().floats, 0});
      for (auto filters : FilterParts(CeilDiv(wanted, std::min(wanted, shape.x[0])), threads)) {
        AddPiece(images, filters, given);
      }
      if (shared_source()) AddCopies(wanted);
    }
  }

  int64_t tasks() const final { return static_cast<int64_t>(std::max(pieces_.size(), copies_.size())); }
  int barriers() const final { return copies_.empty() ? 0 : 1; }
  void Reserve(Workspace* workspace) const final {
    workspace->Reserve(sources_.back().offset + sources_.back().floats, source_ + result_ + scratch_, tasks());
  }

  void Run(const Tensors& tensors, const Workspace& workspace, Agenda* agenda, int64_t task,
           const std::function<void()>& barrier) const final {
    float* own = workspace.own[task].data();
    if (!copies_.empty()) {
      agenda->Work(0, static_cast<int64_t>(copies_.size()), [&](int64_t i) {
        const Copy& copy = copies_[i];
        const Source& part = sources_[copy.source];
        const float* x = tensors.x + part.image * Count(shape_.x, 1);
        if (copy.positions == 0) {
          copy.reorder.Run(x, workspace.shared.data() + part.offset, own);
        } else {
          CopyRows(x, shape_.x[1], copy.image, copy.position, copy.positions, workspace.shared.data() + part.offset);
        }
      });
      barrier();
    }
    agenda->Work(1, static_cast<int64_t>(pieces_.size()), [&](int64_t i) { Convolve(pieces_[i], tensors, workspace, own); });
  }

 private:
  /*! Images in the layout that the kernels read, at an offset of the shared memory. */
  struct Source {
    int64_t image, last_image, offset, floats;
  };
  /*! Of some channels, or of positions of one image. */
  struct Copy {
    size_t source;
    Reorder reorder;
    int64_t image, position, positions;
  };
  struct Piece {
    size_t source;
    int64_t group, filter, filters;
    std::shared_ptr<Kernel> kernel;
    std::shared_ptr<Buffer> weights;
    Reorder copy;
  };

  /*! With groups, each piece reads channels of its own, and copies them itself. */
  bool shared_source() const { return shape_.groups == 1; }

  /*! Whole groups, or blocks of filters: large ones unless threads would have nothing to do. */
  std::vector<std::pair<int64_t, int64_t>> FilterParts(int64_t wanted, int64_t threads) const {
    int64_t filters = shape_.y[1], group = filters / shape_.groups;
    if (shape_.groups > 1) return Parts(filters, CeilDiv(kBlock, group) * group, wanted);
    for (int64_t unit : {4 * kBlock, 2 * kBlock}) {
      if (filters / unit * shape_.x[0] >= threads) return Parts(filters, unit, wanted);
    }
    return Parts(filters, kBlock, wanted);
  }

  void AddPiece(std::pair<int64_t, int64_t> images, std::pair<int64_t, int64_t> filters, const char* weights) {
    int64_t per_group = shape_.y[1] / shape_.groups, count = filters.second - filters.first;
    int64_t groups = shape_.groups == 1 ? 1 : count / per_group, batch = images.second - images.first;
    int64_t group = shape_.groups == 1 ? 0 : filters.first / per_group;
    Piece piece{sources_.size() - 1, group, filters.first, count, nullptr, nullptr, {}};
    std::shared_ptr<Kernel>& kernel = kernels_[{batch, count}];
    if (kernel == nullptr) {
      Descriptor& layout = layouts_[batch];  // one for all kernels of these images
      kernel = std::make_shared<Kernel>(shape_, batch, groups, count, activation_, shared_source() ? layout : nullptr);
      layout = kernel->source;
    }
    piece.kernel = kernel;
    std::shared_ptr<Buffer>& own = weights_[{batch, filters.first}];
    if (own == nullptr) own = MakeWeights(*kernel, piece.group, groups, filters.first, count, weights);
    piece.weights = own;
    scratch_ = std::max(scratch_, Floats(kernel->scratchpad));
    if (kernel->copies_result()) {
      result_ = std::max(result_, CeilDiv(Floats(kernel->result), kBlock) * kBlock);
      scratch_ = std::max({scratch_, kernel->in.scratch(), kernel->out.scratch()});
    }
    if (!shared_source() && kernel->copies_source()) {
      if (!kernel->reads_rows) piece.copy = Copied(kernel->plain_source, kernel->source);
      source_ = std::max(source_, CeilDiv(Floats(kernel->source), kBlock) * kBlock);
      if (!kernel->reads_rows) scratch_ = std::max(scratch_, piece.copy.scratch());
    }
    if (!shape_.fused()) nonlinear_.Prepare(count * Count(shape_.y, 2));
    pieces_.push_back(std::move(piece));
  }

  /*! The weights in eight bits, if they are to be so, and the scales of the results. */
  std::unique_ptr<Int8Weights> ToBytes(const float* weights) {
    if (!shape_.precision.is_int8()) return nullptr;
    int64_t filters = shape_.y[1], taps = Count(shape_.kernel), count = shape_.x[1] / shape_.groups * filters * taps;
    int64_t per_group = filters / shape_.groups, channels = shape_.x[1] / shape_.groups;
    auto made = std::make_unique<Int8Weights>(weights, count, filters, [&](int64_t i) {
      if (!shape_.transposed) return i / (channels * taps);
      return i / (channels * per_group * taps) * per_group + i / taps % per_group;
    });
    scales_.Reserve(filters);
    for (int64_t f = 0; f < filters; ++f) scales_.data()[f] = made->scales[f] * shape_.precision.scale;
    return made;
  }

  /*! Data in the layout and the type that a kernel reads. */
  Reorder Copied(const Descriptor& from, const Descriptor& to) const {
    Steps steps = shape_.precision.steps();
    return Reorder(from, to, shape_.precision.is_int8() ? &steps : nullptr);
  }

  std::shared_ptr<Buffer> MakeWeights(const Kernel& kernel, int64_t group, int64_t groups, int64_t filter, int64_t filters,
                                      const char* weights) const {
    int64_t taps = Count(shape_.kernel), channels = shape_.x[1] / shape_.groups, per_group = shape_.y[1] / shape_.groups;
    int64_t own = filters / groups;  // of each group
    Extents extents{groups, own, channels}, strides{per_group * channels * taps, channels * taps, taps};
    int64_t first = group * strides[0];
    if (shape_.transposed) strides = {channels * per_group * taps, taps, per_group * taps};
    if (shape_.groups == 1) first += filter * strides[1];
    bool bytes = shape_.precision.is_int8();
    if (shape_.groups == 1) {
      extents.erase(extents.begin());
      strides.erase(strides.begin());
    }
    for (size_t axis = 0; axis < shape_.kernel.size(); ++axis) {
      extents.push_back(shape_.kernel[axis]);
      strides.push_back(Count(shape_.kernel, axis + 1));
    }
    auto made = std::make_shared<Buffer>(Floats(kernel.weights));
    Reorder reorder(Strided(extents, strides, bytes ? dnnl_s8 : dnnl_f32), kernel.weights);
    Buffer scratch(reorder.scratch() + 1);
    reorder.Run(weights + first * (bytes ? 1 : sizeof(float)), made->data(), scratch.data());
    return made;
  }

  /*! Copies of the latest source, a block of channels or more each. */
  void AddCopies(int64_t wanted) {
    Source& part = sources_.back();
    int64_t batch = part.last_image - part.image;
    const Kernel& kernel = *pieces_.back().kernel;
    if (!kernel.copies_source()) return;
    part.floats = CeilDiv(Floats(kernel.source), kBlock) * kBlock;
    if (kernel.reads_rows) {
      for (auto positions : Parts(Count(shape_.x, 2), kBlock, CeilDiv(wanted, shape_.x[0]))) {
        for (int64_t i = 0; i < batch; ++i) {
          copies_.push_back({sources_.size() - 1, {}, i, positions.first, positions.second - positions.first});
        }
      }
      return;
    }
    for (auto channels : Parts(shape_.x[1], kBlock, CeilDiv(wanted, shape_.x[0]))) {
      Extents extents = With(batch, channels.second - channels.first, shape_.x), offsets(extents.size(), 0);
      offsets[1] = channels.first;
      Reorder reorder = Copied(Part(kernel.plain_source, extents, offsets), Part(kernel.source, extents, offsets));
      copies_.push_back({sources_.size() - 1, std::move(reorder), 0, 0, 0});
      scratch_ = std::max(scratch_, copies_.back().reorder.scratch());
    }
  }

  void Convolve(const Piece& piece, const Tensors& tensors, const Workspace& workspace, float* own) const {
    const Kernel& kernel = *piece.kernel;
    const Source& part = sources_[piece.source];
    float *result = own + source_, *scratch = result + result_;
    int64_t channels = shape_.x[1] / shape_.groups, plane = Count(shape_.y, 2);
    int64_t first = part.image * Count(shape_.y, 1) + piece.filter * plane;
    const float* x = tensors.x + part.image * Count(shape_.x, 1) + piece.group * channels * Count(shape_.x, 2);
    if (kernel.copies_source()) {
      if (shared_source()) {
        x = workspace.shared.data() + part.offset;
      } else {
        for (int64_t i = 0; kernel.reads_rows && i < part.last_image - part.image; ++i) {
          CopyRows(x, kernel.channels, i, 0, Count(shape_.x, 2), own);
        }
        if (!kernel.reads_rows) piece.copy.Run(x, own, scratch);
        x = own;
      }
    }
    if (!kernel.copies_result()) result = tensors.y + first;
    if (tensors.residual != nullptr && shape_.fused()) {
      if (kernel.copies_result()) {
        kernel.in.Run(tensors.residual + first, result, scratch);
      } else {
        CopyPlanes(tensors.residual + first, result, part.last_image - part.image, piece.filters * plane);
      }
    }
    kernel.Run(x, piece.weights->data(), bias_.data() + piece.filter, scales_.data() + piece.filter, result, scratch);
    for (int64_t i = 0; kernel.writes_rows && i < part.last_image - part.image; ++i) {
      ToPlanes(result + i * piece.filters * plane, piece.filters, plane, tensors.y + first + i * Count(shape_.y, 1), plane);
    }
    if (kernel.copies_result() && !kernel.writes_rows) kernel.out.Run(result, tensors.y + first, scratch);
    if (shape_.fused()) return;
    for (int64_t image = 0; image < part.last_image - part.image; ++image) {
      int64_t place = first + image * Count(shape_.y, 1);
      const float* residual = tensors.residual == nullptr ? nullptr : tensors.residual + place;
      FinishFilters(activation_, tensors.y + place, residual, bias_.data() + piece.filter, piece.filters, plane, plane);
      nonlinear_.Run(tensors.y + place, piece.filters * plane);
    }
  }

  /*! Positions of an image's channels into their place among rows of channels. */
  void CopyRows(const float* x, int64_t channels, int64_t image, int64_t position, int64_t positions, float* rows) const {
    int64_t plane = Count(shape_.x, 2), bytes = shape_.precision.is_int8() ? 1 : 2;
    auto at = [](int64_t i) { return i; };
    const float* from = x + image * Count(shape_.x, 1) + position;
    char* to = reinterpret_cast<char*>(rows) + (image * plane + position) * channels * bytes;
    ToRows(shape_.precision, from, plane, channels, positions, true, at, to);
  }

  void CopyPlanes(const float* from, float* to, int64_t images, int64_t floats) const {
    int64_t image = Count(shape_.y, 1);
    for (int64_t i = 0; i < images; ++i) std::memcpy(to + i * image, from + i * image, floats * sizeof(float));
  }

  Shape shape_;
  Buffer bias_, scales_;
  Activation activation_;
  Nonlinear nonlinear_;
  std::vector<Source> sources_;
  std::vector<Copy> copies_;
  std::vector<Piece> pieces_;
  std::map<std::pair<int64_t, int64_t>, std::shared_ptr<Kernel>> kernels_;
  std::map<std::pair<int64_t, int64_t>, std::shared_ptr<Buffer>> weights_;
  std::map<int64_t, Descriptor> layouts_;
  /*! Floats that each task needs for its copies of x and y, and for oneDNN. */
  int64_t source_ = 0, result_ = 0, scratch_ = 0;
};

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_CONVOLUTION_H_
