/*!
 * What a partition computes, ready to run: the interface of products and convolutions, and what is done to their sums.
 */
#ifndef COLLAGE_RUNTIME_ONEDNN_OPERATION_H_
#define COLLAGE_RUNTIME_ONEDNN_OPERATION_H_

#include <functional>
#include <vector>

#include "epilogue.h"

namespace collage {
namespace onednn {

/*! One call's arguments; null where a partition has none. Convolutions read `x`, products `lhs` and `rhs`. */
struct Tensors {
  const float *x, *lhs, *rhs, *bias, *residual;
  float* y;
};

/*! Intermediate results, for one call at a time: what tasks share, and what each has for itself. */
struct Workspace {
  Buffer shared;
  std::vector<Buffer> own;

  void Reserve(int64_t all, int64_t each, int64_t tasks) {
    shared.Reserve(all);
    own.resize(std::max<size_t>(own.size(), tasks));
    for (int64_t i = 0; i < tasks; ++i) own[i].Reserve(each);
  }
};

/*! y = act(op + bias + residual), in phases between which tasks wait for each other. */
class Operation {
 public:
  virtual ~Operation() = default;

  /*! How many tasks can be of use at most, and how often each waits. */
  virtual int64_t tasks() const = 0;
  virtual int barriers() const = 0;
  virtual void Reserve(Workspace* workspace) const = 0;

  /*! The share of one task; `barrier` waits for all of them. */
  virtual void Run(const Tensors& tensors, const Workspace& workspace, Agenda* agenda, int64_t task,
                   const std::function<void()>& barrier) const = 0;
};

/*! Pieces per thread that the work is cut into, so that one that wakes late does less. */
constexpr int64_t kPiecesPerThread = 2;

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int64_t Count(const Extents& extents, size_t from = 0) {
  int64_t product = 1;
  for (size_t i = from; i < extents.size(); ++i) product *= extents[i];
  return product;
}

/*! Where `parts` nearly equal parts of `units` begin and end, each of `size` things, of which there are `all`. */
inline std::vector<std::pair<int64_t, int64_t>> Parts(int64_t all, int64_t size, int64_t parts) {
  std::vector<std::pair<int64_t, int64_t>> found;
  int64_t units = CeilDiv(all, size);
  parts = std::max<int64_t>(1, std::min(parts, units));
  for (int64_t i = 0; i < parts; ++i) found.emplace_back(units * i / parts * size, std::min(all, units * (i + 1) / parts * size));
  return found;
}

}  // namespace onednn
}  // namespace collage

#endif  // COLLAGE_RUNTIME_ONEDNN_OPERATION_H_
