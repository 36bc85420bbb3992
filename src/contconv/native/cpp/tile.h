// The register tiles: the only loops that have to be fast. A tile is `Rows` x `Vecs` accumulators; rows are read one
// float at a time and broadcast, panels are read by vectors. Everything else arranges data so that these can run.
#pragma once
#include "vec.h"

namespace contconv {
namespace {

// The accumulators of a register tile.
template <int Rows, int Vecs>
struct Tile {
  Vec at[Rows][Vecs];

  CONTCONV_INLINE Tile() {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) at[i][v] = Vec{};
  }

  // Calls body(row, vector index, value) for each accumulator.
  template <class Body>
  CONTCONV_INLINE void for_each(Body&& body) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) body(i, v, at[i][v]);
  }
};

template <int Value>
struct Constant {
  static constexpr int value = Value;
};

// Tails are smaller tiles and not masked ones, but every size takes its time to compile: of those above 6 there are the
// even ones, and 9, the taps of 3x3 and more than half of an internal net's 17 functions.
constexpr bool is_size(int64_t n) { return n <= 6 || n % 2 == 0 || n == 9; }

// Calls body(Constant<n>) for a run-time n in [1, Most] that is a size.
template <int Most, class Body>
inline void with_constant(int64_t n, Body&& body) {
  if constexpr (Most > 1) {
    if (n < Most) return with_constant<(is_size(Most - 1) ? Most - 1 : Most - 2)>(n, body);
  }
  body(Constant<Most>{});
}

// Splits `count` into pieces of `Most`, the last two about equal (8 over 6 is 4 + 4, not 6 + 2: a small tile cannot hide
// the latency of its multiply-adds), and calls body(first, Constant<size>) for each.
template <int Most, class Body>
inline void for_each_piece(int64_t count, Body&& body) {
  for (int64_t first = 0, size; first < count; first += size) {
    const int64_t left = count - first;
    size = left >= 2 * Most ? Most : left > Most ? (left + 1) / 2 : left;
    if (!is_size(size)) size = size < left ? size + 1 : (size + 1) / 2;
    with_constant<Most>(size, [&](auto rows) { body(first, rows); });
  }
}

// Longer sums are made of sums of this many terms: rounding errors grow with the length of a running sum.
constexpr int64_t kLongestSum = 1024;

// to[i][v] += sum over r < runs, k < depth of
//             rows[r * row_step + i][offset + k] * panel[r * panel_step + k * pitch + v]
template <int Rows, int Vecs>
CONTCONV_INLINE void dot_tile(Tile<Rows, Vecs>& to, const float* const* rows, int64_t row_step, int64_t runs,
                              int64_t offset, int64_t depth, const float* panel, int64_t panel_step,
                              int64_t pitch = kWidth) {
  Tile<Rows, Vecs> acc = to;  // a local copy cannot alias what the loop reads, so it stays in registers
  for (int64_t t = 0; t < runs; ++t, rows += row_step, panel += panel_step) {
    const float* row[Rows];
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) row[i] = rows[i] + offset + depth;
    const float* b = panel;
#pragma GCC unroll 1
    for (int64_t k = -depth; k < 0; ++k, b += pitch) {  // up to zero: one register less
      Vec lanes[Vecs];
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) lanes[v] = load(b + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) {
        const Vec a = broadcast(row[i][k]);
#pragma GCC unroll 4
        for (int v = 0; v < Vecs; ++v) acc.at[i][v] += a * lanes[v];
      }
    }
  }
  to = acc;
}

// to[i][v] += sum over p < count, k < depth of rows[i][offset[p] + k] * panels[p][k * kWidth + v]
template <int Rows, int Vecs>
CONTCONV_INLINE void dot_panels_tile(Tile<Rows, Vecs>& to, const float* const* rows, int64_t count,
                                     const int64_t* offset, int64_t depth, const float* const* panels) {
  Tile<Rows, Vecs> acc = to;
  for (int64_t p = 0; p < count; ++p) {
    const float* row[Rows];
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) row[i] = rows[i] + offset[p] + depth;
    const float* b = panels[p];
#pragma GCC unroll 1
    for (int64_t k = -depth; k < 0; ++k, b += kWidth) {
      Vec lanes[Vecs];
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) lanes[v] = load(b + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) {
        const Vec a = broadcast(row[i][k]);
#pragma GCC unroll 4
        for (int v = 0; v < Vecs; ++v) acc.at[i][v] += a * lanes[v];
      }
    }
  }
  to = acc;
}

// to[i][v] += sum over p < count of columns[p][offset + i] * panel[p * pitch + v]: both sides run along the reduction.
template <int Rows, int Vecs>
CONTCONV_INLINE void outer_tile(Tile<Rows, Vecs>& to, const float* const* columns, int64_t offset, int64_t count,
                                const float* panel, int64_t pitch = kWidth) {
  Tile<Rows, Vecs> acc = to;  // a local copy cannot alias what the loop reads, so it stays in registers
#pragma GCC unroll 1
  for (int64_t p = 0; p < count; ++p, panel += pitch) {
    const float* column = columns[p] + offset;
    Vec lanes[Vecs];
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) lanes[v] = load(panel + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vec a = broadcast(column[i]);
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) acc.at[i][v] += a * lanes[v];
    }
  }
  to = acc;
}

// to[i][v] += sum over p < count of columns[p][offset + i] * rows[p][v], of which `lanes` are there (all, if `Full`)
template <bool Full, int Rows, int Vecs>
CONTCONV_INLINE void outer_rows_tile(Tile<Rows, Vecs>& to, const float* const* columns, int64_t offset, int64_t count,
                                     const float* const* rows, int64_t lanes) {
  Tile<Rows, Vecs> acc = to;
#pragma GCC unroll 1
  for (int64_t p = 0; p < count; ++p) {
    const float* column = columns[p] + offset;
    Vec right[Vecs];
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) {
      const float* from = rows[p] + v * kLanes;
      right[v] = Full ? load(from) : load_lanes(from, lanes - v * kLanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vec a = broadcast(column[i]);
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) acc.at[i][v] += a * right[v];
    }
  }
  to = acc;
}

// to[i][j] += a[i][lane] * b[j][lane], lane by lane, over `count` vectors: dot products before their last sum.
// Vector n of row i is at a + n * a_step + i * a_row.
template <int RowsA, int RowsB>
CONTCONV_INLINE void lane_dot_tile(Tile<RowsA, RowsB>& to, int64_t count, const float* a, int64_t a_row, int64_t a_step,
                          const float* b, int64_t b_row, int64_t b_step) {
  Tile<RowsA, RowsB> acc = to;  // a local copy cannot alias what the loop reads, so it stays in registers
#pragma GCC unroll 1
  for (int64_t n = 0; n < count; ++n, a += a_step, b += b_step) {
    Vec right[RowsB];
#pragma GCC unroll 4
    for (int j = 0; j < RowsB; ++j) right[j] = load(b + j * b_row);
#pragma GCC unroll 4
    for (int i = 0; i < RowsA; ++i) {
      const Vec left = load(a + i * a_row);
#pragma GCC unroll 4
      for (int j = 0; j < RowsB; ++j) acc.at[i][j] += left * right[j];
    }
  }
  to = acc;
}

// to[start[i] + j] += the sums over lanes of a tile of dot products, at most four to a row
template <int Rows, int Columns>
CONTCONV_INLINE void add_sums(const Tile<Rows, Columns>& tile, float* to, const int64_t* start) {
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) {
    Vec column[4] = {};
    for (int j = 0; j < Columns; ++j) column[j] = tile.at[i][j];
    const Vec4 total = sums(column[0], column[1], column[2], column[3]);
    for (int j = 0; j < Columns; ++j) to[start[i] + j] += total[j];
  }
}

}  // namespace
}  // namespace contconv
