/*!
 * Convolutions of NCHW images, and of NCDHW volumes, with kernels of 3 x 3 (per tap along the depth), without strides or
 * dilation, by Winograd's minimal filtering.
 *
 * The result is cut into tiles of M x M. A tile's input, M + 2 positions wide, is transformed for every channel; each of
 * the (M + 2)^2 transformed positions is a matrix product of its own, rows (tiles) x channels by channels x filters; and
 * the sums are transformed back. Taps along the depth add up in the products. Vectors run along channels and filters, so
 * rows of images are transposed on their way in and out.
 *
 * Tiles are dealt out to threads in pieces whose intermediate results stay in a core's cache. Where there are too few
 * tiles for that, weights are most of the traffic: threads then share all tiles and part the products.
 */
#ifndef COLLAGE_RUNTIME_WINOGRAD_CONVOLUTION_H_
#define COLLAGE_RUNTIME_WINOGRAD_CONVOLUTION_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "../host_engine.h"
#include "lanes.h"
#include "products.h"
#include "transforms.h"

namespace collage {
namespace winograd {

/*! Bytes of intermediate results of one piece, and the most rows that are worth having in one. */
constexpr int64_t kPieceBytes = int64_t{2} << 20, kPieceRows = 128;
/*! With fewer rows per thread than this, threads part the products instead of the tiles. */
constexpr int64_t kFewRows = 20;
/*! As many rows of products take the time in which one weight comes from the last-level cache or from memory. */
constexpr int64_t kRowsPerWeight = 32;

/*! Axes are depth, height, width; a convolution over two axes has depth 1 everywhere and one tap. */
struct Shape {
  int64_t batch, channels, filters, taps;
  int64_t image[3], result[3], before[3];
};

/*! What is done to the sums: bias is added by the convolution, then the residual, then slope and bounds apply. */
struct Epilogue {
  const float* residual = nullptr;
  float slope = 1.0f;
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();

  Vec operator()(Vec value) const {
    value = value < 0.0f ? value * slope : value;
    value = value < low ? Vec{} + low : value;
    return value > high ? Vec{} + high : value;
  }
};

/*! Intermediate results, for one call at a time: one set per task, grown by whoever needs more. */
struct Workspace {
  struct Task {
    Buffer data, sums, slab;
  };
  std::vector<Task> tasks;
};

/*! A convolution that is ready to run. */
class Convolution {
 public:
  virtual ~Convolution() = default;

  /*! How many tasks can be of use at most. */
  virtual int64_t tasks() const = 0;
  /*! How often each task waits for the others. */
  virtual int barriers() const = 0;
  virtual void Reserve(Workspace* workspace) const = 0;

  /*! The share of one task; `barrier` waits for all of them. */
  virtual void Run(const float* x, float* y, const Epilogue& epilogue, Workspace* workspace, Agenda* agenda, int64_t task,
                   const std::function<void()>& barrier) const = 0;
};

/*! By tiles of M x M. */
template <int M>
class TiledConvolution : public Convolution {
 public:
  TiledConvolution(const Shape& shape, const float* weights, const float* bias, int64_t threads)
      : shape_(shape),
        blocks_((shape.channels + kLanes - 1) / kLanes),
        panels_((shape.filters + kPanel - 1) / kPanel),
        rows_((shape.result[1] + M - 1) / M),
        columns_((shape.result[2] + M - 1) / M),
        weights_(kProducts * panels_ * shape.taps * channels() * kPanel),
        bias_(filters()) {
    std::fill_n(bias_.data(), filters(), 0.0f);
    if (bias != nullptr) std::copy_n(bias, shape.filters, bias_.data());
    TransformWeights(weights);
    DealOut(threads);
  }

  int64_t tasks() const final { return parted_ ? kProducts * panels_ : static_cast<int64_t>(pieces_.size()); }

  int barriers() const final { return parted_ ? 2 : 0; }

  void Reserve(Workspace* workspace) const final {
    int64_t data = 0, sums = 0;
    for (const Piece& piece : pieces_) {
      data = std::max(data, piece.tiles() * piece.units() * planes_in());
      sums = std::max(sums, piece.tiles() * piece.units() * planes_out());
    }
    for (size_t i = 0; i < workspace->tasks.size(); ++i) {
      Workspace::Task& task = workspace->tasks[i];
      if (i == 0 || !parted_) task.data.Reserve(kProducts * data * channels());
      if (i == 0 || !parted_) task.sums.Reserve(kProducts * sums * filters());
      task.slab.Reserve(kWindow * slab_width() * kLanes);
    }
  }

  void Run(const float* x, float* y, const Epilogue& epilogue, Workspace* workspace, Agenda* agenda, int64_t task,
           const std::function<void()>& barrier) const final {
    Workspace::Task& own = workspace->tasks[task];
    Vec* slab = reinterpret_cast<Vec*>(own.slab.data());
    int64_t vectors = filters() / kLanes, products = kProducts * panels_;
    if (parted_) {
      const Piece& piece = pieces_[0];
      float *data = workspace->tasks[0].data.data(), *sums = workspace->tasks[0].sums.data();
      agenda->Work(0, blocks_, [&](int64_t i) { TransformInput(piece, x, data, i, i + 1, slab); });
      barrier();
      agenda->Work(1, products, [&](int64_t i) { Multiply(piece, data, sums, i / panels_, i % panels_); });
      barrier();
      agenda->Work(2, vectors, [&](int64_t i) { TransformResult(piece, sums, y, epilogue, i, i + 1, slab); });
      return;
    }
    agenda->Work(0, static_cast<int64_t>(pieces_.size()), [&](int64_t i) {
      float *data = own.data.data(), *sums = own.sums.data();
      TransformInput(pieces_[i], x, data, 0, blocks_, slab);
      for (int64_t j = 0; j < products; ++j) Multiply(pieces_[i], data, sums, j / panels_, j % panels_);
      TransformResult(pieces_[i], sums, y, epilogue, 0, vectors, slab);
    });
  }

 private:
  static constexpr int kWindow = M + 2, kProducts = kWindow * kWindow;

  /*!
   * Units are planes where there is one tap along the depth, and whole samples, whose planes depend on each other, where
   * there are several. Tiles are counted in a plane, row by row.
   */
  struct Piece {
    int64_t first_unit, end_unit, first_tile, end_tile;
    int64_t units() const { return end_unit - first_unit; }
    int64_t tiles() const { return end_tile - first_tile; }
  };

  /*! Neighbouring tiles in a row of tiles of one plane. */
  struct Strip {
    int64_t batch, plane, row, first, count;
  };

  /*! Channels and filters, with those that fill up the last vectors. */
  int64_t channels() const { return blocks_ * kLanes; }
  int64_t filters() const { return panels_ * kPanel; }
  bool flat() const { return shape_.taps == 1; }
  int64_t units() const { return flat() ? shape_.batch * shape_.result[0] : shape_.batch; }
  int64_t planes_in() const { return flat() ? 1 : shape_.image[0]; }
  int64_t planes_out() const { return flat() ? 1 : shape_.result[0]; }
  int64_t slab_width() const { return columns_ * M + 2 + kLanes; }

  /*! Weights as panels: product x panel x tap x channel x filter, transformed in float64. */
  void TransformWeights(const float* weights) {
    constexpr auto& filter = Transforms<M>::kFilter;
    std::memset(weights_.data(), 0, kProducts * panels_ * shape_.taps * channels() * kPanel * sizeof(float));
    int64_t next = panels_ * shape_.taps * channels() * kPanel;
    for (int64_t f = 0; f < shape_.filters; ++f) {
      for (int64_t c = 0; c < shape_.channels; ++c) {
        for (int64_t t = 0; t < shape_.taps; ++t) {
          const float* w = weights + ((f * shape_.channels + c) * shape_.taps + t) * 9;
          float* to = weights_.data() + ((f / kPanel * shape_.taps + t) * channels() + c) * kPanel + f % kPanel;
          for (int i = 0; i < kWindow; ++i) {
            double row[3];
            for (int b = 0; b < 3; ++b) row[b] = filter[i][0] * w[b] + filter[i][1] * w[3 + b] + filter[i][2] * w[6 + b];
            for (int j = 0; j < kWindow; ++j, to += next) {
              *to = static_cast<float>(filter[j][0] * row[0] + filter[j][1] * row[1] + filter[j][2] * row[2]);
            }
          }
        }
      }
    }
  }

  void DealOut(int64_t threads) {
    int64_t tiles = rows_ * columns_, rows = units() * tiles * planes_out();
    parted_ = rows < threads * kFewRows;
    if (parted_) {
      pieces_ = {{0, units(), 0, tiles}};
      return;
    }
    int64_t row_bytes = kProducts * static_cast<int64_t>(sizeof(float)) * (channels() + filters());
    int64_t wanted = std::clamp<int64_t>(kPieceBytes / row_bytes, 2 * kRows, kPieceRows);
    int64_t count = (rows + wanted - 1) / wanted;
    count = (count + threads - 1) / threads * threads;
    int64_t groups = std::min(count, units());
    int64_t cuts = std::min(tiles, (count + groups - 1) / groups);
    for (int64_t i = 0; i < groups; ++i) {
      for (int64_t j = 0; j < cuts; ++j) {
        pieces_.push_back({units() * i / groups, units() * (i + 1) / groups, tiles * j / cuts, tiles * (j + 1) / cuts});
      }
    }
  }

  /*! Calls `body(strip, row)` for all strips of a piece; `row` counts the tiles before it. */
  template <typename Body>
  void ForStrips(const Piece& piece, int64_t planes, Body&& body) const {
    int64_t row = 0;
    for (int64_t unit = piece.first_unit; unit < piece.end_unit; ++unit) {
      for (int64_t plane = 0; plane < planes; ++plane) {
        for (int64_t tile = piece.first_tile; tile < piece.end_tile;) {
          int64_t column = tile % columns_, count = std::min(columns_ - column, piece.end_tile - tile);
          int64_t depth = flat() ? unit % shape_.result[0] : plane;
          body(Strip{flat() ? unit / shape_.result[0] : unit, depth, tile / columns_, column, count}, row);
          row += count;
          tile += count;
        }
      }
    }
  }

  /*! For a range of blocks of channels: data are product x row x channel. */
  void TransformInput(const Piece& piece, const float* x, float* data, int64_t first, int64_t end, Vec* slab) const {
    int64_t rows = piece.units() * planes_in() * piece.tiles();
    for (int64_t block = first; block < end; ++block) {
      ForStrips(piece, planes_in(), [&](const Strip& strip, int64_t row) {
        ReadSlab(strip, x, block, slab);
        for (int64_t i = 0; i < strip.count; ++i, ++row) {
          Vec half[kProducts], whole[kProducts];
          for (int j = 0; j < kWindow; ++j) Transforms<M>::Input(slab + i * M + j, slab_width(), half + j, kWindow);
          for (int j = 0; j < kWindow; ++j) Transforms<M>::Input(half + j * kWindow, 1, whole + j * kWindow, 1);
          float* to = data + row * channels() + block * kLanes;
          for (int j = 0; j < kProducts; ++j) *reinterpret_cast<Vec*>(to + j * rows * channels()) = whole[j];
        }
      });
    }
  }

  /*! What the tiles of a strip read, for one block of channels: kWindow rows of positions, padded with zeros. */
  void ReadSlab(const Strip& strip, const float* x, int64_t block, Vec* slab) const {
    const int64_t depth = shape_.image[0], height = shape_.image[1], width = shape_.image[2];
    int64_t lanes = std::min<int64_t>(kLanes, shape_.channels - block * kLanes), volume = depth * height * width;
    int64_t plane = flat() ? strip.plane - shape_.before[0] : strip.plane;
    int64_t start = strip.first * M - shape_.before[2], count = strip.count * M + 2;
    int64_t begin = std::max<int64_t>(start, 0), end = std::min(width, start + count);
    for (int i = 0; i < kWindow; ++i) {
      Vec* to = slab + i * slab_width();
      int64_t line = strip.row * M - shape_.before[1] + i;
      if (line < 0 || line >= height || plane < 0 || plane >= depth || begin >= end) {
        std::fill_n(to, count, Vec{});
        continue;
      }
      std::fill_n(to, begin - start, Vec{});
      const float* from = x + (strip.batch * shape_.channels + block * kLanes) * volume + (plane * height + line) * width;
      for (int64_t position = begin; position < end; position += kLanes) {
        Vec square[kLanes];
        int64_t there = std::min<int64_t>(kLanes, end - position);
        if (lanes == kLanes && there == kLanes) {
          for (int c = 0; c < kLanes; ++c) square[c] = Load(from + c * volume + position);
        } else {
          for (int c = 0; c < kLanes; ++c) {
            square[c] = c < lanes ? LoadFirst(from + c * volume + position, static_cast<int>(there)) : Vec{};
          }
        }
        Transpose(square);
        std::copy_n(square, kLanes, to + (position - start));
      }
      std::fill_n(to + (end - start), start + count - end, Vec{});
    }
  }

  /*! One of the products, for one panel of filters: sums are product x row x filter. */
  void Multiply(const Piece& piece, const float* data, float* sums, int64_t product, int64_t panel) const {
    int64_t tiles = piece.tiles(), rows = piece.units() * tiles;
    const float* weights = weights_.data() + (product * panels_ + panel) * shape_.taps * channels() * kPanel;
    const float* from = data + product * rows * planes_in() * channels();
    float* to = sums + product * rows * planes_out() * filters() + panel * kPanel;
    int taps = static_cast<int>(shape_.taps), wide = static_cast<int>(channels());
    if (flat()) {
      PanelProduct(&from, weights, taps, wide, rows, to, filters());
      return;
    }
    for (int64_t unit = 0; unit < piece.units(); ++unit) {
      for (int64_t plane = 0; plane < planes_out(); ++plane) {
        const float* read[kMostTaps];
        for (int t = 0; t < taps; ++t) {
          int64_t at = plane + t - shape_.before[0];
          read[t] = at < 0 || at >= planes_in() ? nullptr : from + (unit * planes_in() + at) * tiles * channels();
        }
        PanelProduct(read, weights, taps, wide, tiles, to + (unit * planes_out() + plane) * tiles * filters(), filters());
      }
    }
  }

  /*! For a range of vectors of filters. */
  void TransformResult(const Piece& piece, const float* sums, float* y, const Epilogue& epilogue, int64_t first, int64_t end,
                       Vec* slab) const {
    int64_t rows = piece.units() * planes_out() * piece.tiles();
    for (int64_t block = first; block < std::min(end, (shape_.filters + kLanes - 1) / kLanes); ++block) {
      Vec bias = *reinterpret_cast<const Vec*>(bias_.data() + block * kLanes);
      ForStrips(piece, planes_out(), [&](const Strip& strip, int64_t row) {
        for (int64_t i = 0; i < strip.count; ++i, ++row) {
          Vec read[kProducts], half[M * kWindow], whole[M * M];
          const float* from = sums + row * filters() + block * kLanes;
          for (int j = 0; j < kProducts; ++j) read[j] = *reinterpret_cast<const Vec*>(from + j * rows * filters());
          for (int j = 0; j < kWindow; ++j) Transforms<M>::Result(read + j, kWindow, half + j, kWindow);
          for (int j = 0; j < M; ++j) Transforms<M>::Result(half + j * kWindow, 1, whole + j * M, 1);
          for (int j = 0; j < M; ++j) {
            for (int k = 0; k < M; ++k) slab[j * slab_width() + i * M + k] = whole[j * M + k] + bias;
          }
        }
        WriteSlab(strip, y, epilogue, block, slab);
      });
    }
  }

  void WriteSlab(const Strip& strip, float* y, const Epilogue& epilogue, int64_t block, const Vec* slab) const {
    const int64_t depth = shape_.result[0], height = shape_.result[1], width = shape_.result[2];
    int64_t lanes = std::min<int64_t>(kLanes, shape_.filters - block * kLanes), volume = depth * height * width;
    int64_t begin = strip.first * M, end = std::min(width, begin + strip.count * M);
    int64_t lines = std::min<int64_t>(M, height - strip.row * M);
    for (int64_t i = 0; i < lines; ++i) {
      int64_t line = (strip.plane * height + strip.row * M + i) * width;
      int64_t start = (strip.batch * shape_.filters + block * kLanes) * volume + line;
      for (int64_t position = begin; position < end; position += kLanes) {
        Vec square[kLanes];
        std::copy_n(slab + i * slab_width() + (position - begin), kLanes, square);
        Transpose(square);
        int there = static_cast<int>(std::min<int64_t>(kLanes, end - position));
        for (int c = 0; c < lanes; ++c) {
          int64_t at = start + c * volume + position;
          if (there == kLanes) {
            Vec residual = epilogue.residual == nullptr ? Vec{} : Load(epilogue.residual + at);
            Store(y + at, epilogue(square[c] + residual));
          } else {
            Vec residual = epilogue.residual == nullptr ? Vec{} : LoadFirst(epilogue.residual + at, there);
            StoreFirst(y + at, epilogue(square[c] + residual), there);
          }
        }
      }
    }
  }

  const Shape shape_;
  /*! Vectors of channels, panels of filters, rows and columns of tiles. */
  const int64_t blocks_, panels_, rows_, columns_;
  Buffer weights_, bias_;
  std::vector<Piece> pieces_;
  bool parted_ = false;
};

/*! The convolution by the tiles that cost less: larger ones need fewer products, and more weights. */
inline std::unique_ptr<Convolution> MakeConvolution(const Shape& shape, const float* weights, const float* bias,
                                                    int64_t threads) {
  auto cost = [&](int64_t m) {
    int64_t tiles = ((shape.result[1] + m - 1) / m) * ((shape.result[2] + m - 1) / m);
    return (m + 2) * (m + 2) * (shape.batch * shape.result[0] * tiles + kRowsPerWeight);
  };
  if (cost(4) < cost(2)) return std::make_unique<TiledConvolution<4>>(shape, weights, bias, threads);
  return std::make_unique<TiledConvolution<2>>(shape, weights, bias, threads);
}

}  // namespace winograd
}  // namespace collage

#endif  // COLLAGE_RUNTIME_WINOGRAD_CONVOLUTION_H_
