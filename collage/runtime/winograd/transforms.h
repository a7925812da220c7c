/*!
 * The one-dimensional transforms of Winograd's minimal filtering F(M, 3): M results of a filter of 3 taps by M + 2
 * products (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). In two dimensions they are
 * applied to the columns and then to the rows: 3 x 3 taps cost (M + 2)^2 products per M x M results instead of 9 M^2.
 */
#ifndef COLLAGE_RUNTIME_WINOGRAD_TRANSFORMS_H_
#define COLLAGE_RUNTIME_WINOGRAD_TRANSFORMS_H_

#include "lanes.h"

namespace collage {
namespace winograd {

/*!
 * F(M, 3) for one M. `Input` and `Result` read values that are `step` vectors apart, and write `write` vectors apart.
 */
template <int M>
struct Transforms;

/*! Interpolation at 0, 1, -1 and infinity. */
template <>
struct Transforms<2> {
  static constexpr double kFilter[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};

  static inline void Input(const Vec* d, int step, Vec* to, int write) {
    Vec d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step];
    to[0] = d0 - d2;
    to[write] = d1 + d2;
    to[2 * write] = d2 - d1;
    to[3 * write] = d1 - d3;
  }

  static inline void Result(const Vec* m, int step, Vec* to, int write) {
    Vec m1 = m[step], m2 = m[2 * step];
    to[0] = m[0] + (m1 + m2);
    to[write] = (m1 - m2) - m[3 * step];
  }
};

/*! Interpolation at 0, 1, -1, 2, -2 and infinity. */
template <>
struct Transforms<4> {
  static constexpr double kFilter[6][3] = {{1.0 / 4, 0, 0},
                                           {-1.0 / 6, -1.0 / 6, -1.0 / 6},
                                           {-1.0 / 6, 1.0 / 6, -1.0 / 6},
                                           {1.0 / 24, 1.0 / 12, 1.0 / 6},
                                           {1.0 / 24, -1.0 / 12, 1.0 / 6},
                                           {0, 0, 1}};

  static inline void Input(const Vec* d, int step, Vec* to, int write) {
    Vec d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step], d5 = d[5 * step];
    Vec even = d4 - 4.0f * d2, odd = d3 - 4.0f * d1, wide = d4 - d2, twice = 2.0f * (d3 - d1);
    to[0] = 4.0f * d0 - 5.0f * d2 + d4;
    to[write] = even + odd;
    to[2 * write] = even - odd;
    to[3 * write] = wide + twice;
    to[4 * write] = wide - twice;
    to[5 * write] = 4.0f * d1 - 5.0f * d3 + d5;
  }

  static inline void Result(const Vec* m, int step, Vec* to, int write) {
    Vec near = m[step] + m[2 * step], near_odd = m[step] - m[2 * step];
    Vec far = m[3 * step] + m[4 * step], far_odd = m[3 * step] - m[4 * step];
    to[0] = m[0] + near + far;
    to[write] = near_odd + 2.0f * far_odd;
    to[2 * write] = near + 4.0f * far;
    to[3 * write] = near_odd + 8.0f * far_odd + m[5 * step];
  }
};

}  // namespace winograd
}  // namespace collage

#endif  // COLLAGE_RUNTIME_WINOGRAD_TRANSFORMS_H_
