/*!
 * oneDNN's primitives on one thread: tensors as layout and memory, and what runs on them.
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_PRIMITIVE_H_
#define COLLAGE_RUNTIME_ONEDNN_PRIMITIVE_H_

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "../host_engine.h"
#include "library.h"

namespace collage {
namespace onednn {

using Extents = std::vector<int64_t>;

/*! A tensor of floats whose elements lie by strides. */
inline Descriptor Strided(const Extents& extents, const Extents& strides) {
  dnnl_memory_desc_t made;
  COLLAGE_ONEDNN_CALL(dnnl_memory_desc_create_with_strides, &made, extents.size(), extents.data(), dnnl_f32, strides.data());
  return Own(made);
}

/*! A tensor of floats whose layout the primitive chooses. */
inline Descriptor Any(const Extents& extents) {
  dnnl_memory_desc_t made;
  COLLAGE_ONEDNN_CALL(dnnl_memory_desc_create_with_tag, &made, extents.size(), extents.data(), dnnl_f32, dnnl_format_tag_any);
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

/*! Floats that a tensor takes, or bytes of a scratchpad in floats. */
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
  Memory(const Descriptor& descriptor, const float* data) {
    COLLAGE_ONEDNN_CALL(dnnl_memory_create, &made_, descriptor.get(), Engine(), const_cast<float*>(data));
  }
  ~Memory() { COLLAGE_ONEDNN(dnnl_memory_destroy)(made_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  dnnl_memory_t get() const { return made_; }

 private:
  dnnl_memory_t made_ = nullptr;
};

inline void Execute(const Primitive& primitive, std::initializer_list<dnnl_exec_arg_t> arguments) {
  COLLAGE_ONEDNN_CALL(dnnl_primitive_execute, primitive.get(), Stream(), static_cast<int>(arguments.size()), arguments.begin());
}

/*! Copies from one layout to another. */
class Reorder {
 public:
  Reorder() = default;
  Reorder(const Descriptor& from, const Descriptor& to) : from_(from), to_(to) {
    dnnl_primitive_desc_t made;
    Attributes attributes = MakeAttributes();
    COLLAGE_ONEDNN_CALL(dnnl_reorder_primitive_desc_create, &made, from.get(), Engine(), to.get(), Engine(), attributes.get());
    PrimitiveDescriptor descriptor = Own(made);
    scratch_ = Chosen(descriptor, dnnl_query_scratchpad_md);
    primitive_ = Make(descriptor);
  }
  int64_t scratch() const { return Floats(scratch_); }
  void Run(const float* from, float* to, float* scratch) const {
    Memory source(from_, from), target(to_, to), room(scratch_, scratch);
    Execute(primitive_, {{DNNL_ARG_FROM, source.get()}, {DNNL_ARG_TO, target.get()}, {DNNL_ARG_SCRATCHPAD, room.get()}});
  }

 private:
  Descriptor from_, to_, scratch_;
  Primitive primitive_;
};

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_PRIMITIVE_H_
