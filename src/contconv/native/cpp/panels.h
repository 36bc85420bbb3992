// Panels: a matrix of weights cut into strips of kWidth columns ("lanes"), each strip stored contiguously and padded
// with zeros, so that a register tile streams through it.
#pragma once
#include "geometry.h"
#include "tile.h"

namespace contconv {
namespace {

// One strip: `lanes` channels of a group, from `first` on (counted within the group).
struct Panel {
  int64_t group, first, lanes;
  int64_t vecs() const { return lanes > kLanes ? 2 : 1; }
};

// All strips over the channels of one side (input or output) of the layer.
struct PanelSet {
  int64_t group_channels, groups, per_group;
  PanelSet(int64_t group_channels_, int64_t groups_)
      : group_channels(group_channels_), groups(groups_), per_group(ceil_div(group_channels_, kWidth)) {}
  int64_t count() const { return groups * per_group; }
  Panel operator[](int64_t i) const {
    const int64_t first = i % per_group * kWidth;
    return {i / per_group, first, least(kWidth, group_channels - first)};
  }
};

// How many windows of a filter have room side by side in the lanes of a panel: all of them, one or none.
inline int64_t windows_in_lanes(const Geometry& g) {
  if (g.p.groups > 1 || g.window > kWidth) return 0;
  return g.taps * g.group_in <= kWidth ? g.runs : 1;
}

// Element (i, j, lane) of a strip lies at source[i * outer_step + j * inner_step + lane * lane_step].
struct Strides {
  int64_t outer, outer_step, inner, inner_step, lane_step;
};

// to[outer][inner][kWidth] = the strip, padded with zeros
inline void pack(float* to, const float* from, const Strides& s, int64_t lanes, int64_t outer_pitch) {
  for (int64_t i = 0; i < s.outer; ++i) {
    float* row = to + i * outer_pitch;
    for (int64_t j = 0; j < s.inner; ++j, row += kWidth) {
      const float* source = from + i * s.outer_step + j * s.inner_step;
      for (int64_t lane = 0; lane < lanes; ++lane) row[lane] = source[lane * s.lane_step];
      for (int64_t lane = lanes; lane < kWidth; ++lane) row[lane] = 0;
    }
  }
}

// The way back, without the padding.
inline void unpack(float* to, const float* from, const Strides& s, int64_t lanes, int64_t outer_pitch) {
  for (int64_t i = 0; i < s.outer; ++i) {
    const float* row = from + i * outer_pitch;
    for (int64_t j = 0; j < s.inner; ++j, row += kWidth) {
      float* target = to + i * s.outer_step + j * s.inner_step;
      for (int64_t lane = 0; lane < lanes; ++lane) target[lane * s.lane_step] = row[lane];
    }
  }
}

// data[count] = 0, by all threads of a team
inline void fill_zero_together(float* data, int64_t count) {
  constexpr int64_t kPiece = 4096;
#pragma omp for schedule(static)
  for (int64_t i = 0; i < ceil_div(count, kPiece); ++i) fill_zero(data + i * kPiece, least(kPiece, count - i * kPiece));
}

// to[size] = sum over parts of parts[count][size], in order; `to` may be the first part
inline void add_parts(float* to, const float* parts, int64_t size, int64_t count, int threads) {
  constexpr int64_t kPiece = 4096;   // stays in the first cache while parts are added
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t piece = 0; piece < ceil_div(size, kPiece); ++piece) {
    const int64_t first = piece * kPiece, length = least(kPiece, size - first);
    if (to != parts) std::memcpy(to + first, parts + first, static_cast<size_t>(length) * sizeof(float));
    for (int64_t j = 1; j < count; ++j)
      for (int64_t i = first; i < first + length; ++i) to[i] += parts[j * size + i];
  }
}

// The lanes of a tile's rows from anywhere on, by a permutation or by way of memory.
template <int Rows, int Vecs>
class RowLanes {
 public:
#if defined(CONTCONV_PERMUTES)
  CONTCONV_INLINE explicit RowLanes(const Tile<Rows, Vecs>& tile_) : tile(tile_) {}
  CONTCONV_INLINE Vec from(int i, int64_t first) const { return lanes_from(first, tile.at[i][0], tile.at[i][Vecs - 1]); }

 private:
  const Tile<Rows, Vecs>& tile;
#else
  CONTCONV_INLINE explicit RowLanes(Tile<Rows, Vecs>& tile) {
    tile.for_each([&](int i, int v, Vec value) { store(lanes + i * kWidth + v * kLanes, value); });
  }
  CONTCONV_INLINE Vec from(int i, int64_t first) const { return load(lanes + i * kWidth + first); }

 private:
  alignas(kLine) float lanes[Rows * kWidth + kLanes];
#endif
};

// to(i, part)[k] += lane part * length + k of row i of a tile, for all parts and k < length, one row after the other
template <int Rows, int Vecs, class To>
CONTCONV_INLINE void add_lanes(Tile<Rows, Vecs>& tile, int64_t parts, int64_t length, To&& to) {
  const RowLanes<Rows, Vecs> lanes(tile);
  if (length < kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
      for (int64_t part = 0, first = 0; part < parts; ++part, first += length) {
        float* target = to(i, part);
        store_partial(target, load_partial(target, length) + lanes.from(i, first), length);
      }
    return;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
    for (int64_t part = 0; part < parts; ++part) {
      float* target = to(i, part);
      for (int64_t k = 0; k < length; k += kLanes)
        store_lanes(target + k, load_lanes(target + k, length - k) + lanes.from(i, part * length + k), length - k);
    }
}

// Calls body(first, Constant<rows>, Constant<vecs>) for the register tiles that cover `count` rows of a panel.
template <class Body>
inline void for_each_tile(int64_t count, int64_t vecs, Body&& body) {
  with_constant<kVecs>(vecs, [&](auto v) {
    for_each_piece<kRows>(count, [&](int64_t first, auto rows) { body(first, rows, v); });
  });
}

}  // namespace
}  // namespace contconv
