/*!
 * oneDNN's primitives on one thread: tensors as layout and memory, and what runs on them.
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_PRIMITIVE_H_
#define COLLAGE_RUNTIME_ONEDNN_PRIMITIVE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "../host_engine.h"
#include "library.h"

namespace collage {
namespace onednn {

using Extents = std::vector<int64_t>;

/*! A tensor whose elements lie by strides. */
inline Descriptor Strided(const Extents& extents, const Extents& strides, dnnl_data_type_t type = dnnl_f32) {
  dnnl_memory_desc_t made;
  COLLAGE_ONEDNN_CALL(dnnl_memory_desc_create_with_strides, &made, extents.size(), extents.data(), type, strides.data());
  return Own(made);
}

/*! A tensor whose layout the primitive chooses. */
inline Descriptor Any(const Extents& extents, dnnl_data_type_t type = dnnl_f32) {
  dnnl_memory_desc_t made;
  COLLAGE_ONEDNN_CALL(dnnl_memory_desc_create_with_tag, &made, extents.size(), extents.data(), type, dnnl_format_tag_any);
  return Own(made);
}

/*! Part of a tensor, which starts where the whole does: offsets are in the descriptor. */
inline Descriptor Part(const Descriptor& whole, const Extents& extents, const Extents& offsets) {
  dnnl_memory_desc_t made;
  COLLAGE_ONEDNN_CALL(dnnl_memory_desc_create_submemory, &made, whole.get(), extents.data(), offsets.data());
  return Own(made);
}

inline bool Same(const Descriptor& a, const Descriptor& b) {
  return COLLAGE_ONEDNN(dnnl_memory_desc_equal)(a.get(), b.get()) != 0;
}

/*! What a tensor, or a scratchpad, takes in floats, whatever its type. */
inline int64_t Floats(const Descriptor& descriptor) {
  return (static_cast<int64_t>(COLLAGE_ONEDNN(dnnl_memory_desc_get_size)(descriptor.get())) + 3) / 4;
}

/*! The layout that a primitive chose for an argument. */
inline Descriptor Chosen(const PrimitiveDescriptor& primitive, dnnl_query_t what) {
  dnnl_memory_desc_t made;
  COLLAGE_ONEDNN_CALL(dnnl_memory_desc_clone, &made, COLLAGE_ONEDNN(dnnl_primitive_desc_query_md)(primitive.get(), what, 0));
  return Own(made);
}

inline Primitive Make(const PrimitiveDescriptor& descriptor) {
  dnnl_primitive_t made;
  COLLAGE_ONEDNN_CALL(dnnl_primitive_create, &made, descriptor.get());
  return Own(made);
}

/*! Attributes with the caller's memory for intermediate results. */
inline Attributes MakeAttributes() {
  dnnl_primitive_attr_t made;
  COLLAGE_ONEDNN_CALL(dnnl_primitive_attr_create, &made);
  Attributes attributes = Own(made);
  COLLAGE_ONEDNN_CALL(dnnl_primitive_attr_set_scratchpad_mode, made, dnnl_scratchpad_mode_user);
  return attributes;
}

/*! A layout and memory, as one call's argument. */
class Memory {
 public:
  Memory(const Descriptor& descriptor, const void* data) {
    COLLAGE_ONEDNN_CALL(dnnl_memory_create, &made_, descriptor.get(), Engine(), const_cast<void*>(data));
  }
  ~Memory() { COLLAGE_ONEDNN(dnnl_memory_destroy)(made_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  dnnl_memory_t get() const { return made_; }

 private:
  dnnl_memory_t made_ = nullptr;
};

inline void Execute(const Primitive& primitive, const std::vector<dnnl_exec_arg_t>& arguments) {
  COLLAGE_ONEDNN_CALL(dnnl_primitive_execute, primitive.get(), Stream(), static_cast<int>(arguments.size()), arguments.data());
}

/*! How floats become steps of eight bits. */
struct Steps {
  float factor;
  int32_t zero;
};

/*! Copies from one layout, and type, to another. */
class Reorder {
 public:
  Reorder() = default;
  /*! Floats may become the steps of eight bits: the nearest to value * factor + zero that there is. */
  Reorder(const Descriptor& from, const Descriptor& to, const Steps* steps = nullptr) : from_(from), to_(to) {
    dnnl_primitive_desc_t made;
    Attributes attributes = MakeAttributes();
    if (steps != nullptr) {
      steps_ = std::make_shared<Runtime>(*steps);
      COLLAGE_ONEDNN_CALL(dnnl_primitive_attr_set_scales_mask, attributes.get(), DNNL_ARG_SRC, 0);
      COLLAGE_ONEDNN_CALL(dnnl_primitive_attr_set_zero_points_mask, attributes.get(), DNNL_ARG_DST, 0);
    }
    COLLAGE_ONEDNN_CALL(dnnl_reorder_primitive_desc_create, &made, from.get(), Engine(), to.get(), Engine(), attributes.get());
    PrimitiveDescriptor descriptor = Own(made);
    scratch_ = Chosen(descriptor, dnnl_query_scratchpad_md);
    primitive_ = Make(descriptor);
  }
  int64_t scratch() const { return Floats(scratch_); }
  void Run(const void* from, void* to, float* scratch) const {
    Memory source(from_, from), target(to_, to), room(scratch_, scratch);
    std::vector<dnnl_exec_arg_t> arguments{{DNNL_ARG_FROM, source.get()}, {DNNL_ARG_TO, target.get()}, {DNNL_ARG_SCRATCHPAD, room.get()}};
    if (steps_ != nullptr) {
      arguments.push_back({DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, steps_->factor.get()});
      arguments.push_back({DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST, steps_->zero.get()});
    }
    Execute(primitive_, arguments);
  }

 private:
  /*! Attributes whose values oneDNN reads when it runs. */
  struct Runtime {
    explicit Runtime(const Steps& steps)
        : values(steps), factor(Strided({1}, {1}), &values.factor), zero(Strided({1}, {1}, dnnl_s32), &values.zero) {}
    Steps values;
    Memory factor, zero;
  };

  Descriptor from_, to_, scratch_;
  Primitive primitive_;
  std::shared_ptr<Runtime> steps_;
};

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_PRIMITIVE_H_
