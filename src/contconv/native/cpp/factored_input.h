// Algorithm "factored at the input", forward: u = mixing . x once for each input pixel, then y = basis . u.
//
// Output pixels whose taps have the same sources ("a patch": runs of equal rows of the tables) share their reads of u,
// so they are the rows of a register tile. u is kept for the input rows under one patch and one strip of columns only.
#pragma once
#include <omp.h>

#include "panels.h"

namespace contconv {
namespace {

// Runs of consecutive outputs along an axis that read the same sources.
class Runs {
 public:
  explicit Runs(const Axis& axis) : begin(axis.out + 1), count(0) {
    for (int64_t o = 0; o < axis.out; ++o) {
      const size_t bytes = static_cast<size_t>(axis.taps) * sizeof(int32_t);
      if (o == 0 || std::memcmp(axis.sources(o), axis.sources(o - 1), bytes) != 0) begin[count++] = o;
    }
    begin[count] = axis.out;
  }
  Buffer<int64_t> begin;   // [count + 1]
  int64_t count;
};

// A strip of columns: some runs along the last axis, and the input columns that they read.
struct Strip {
  int64_t run0, run1;
  const int64_t* column;   // [columns]
  int64_t columns;
};

class Strips {
 public:
  Strips(const Axis& axis, const Runs& runs, int64_t most_columns)
      : column(runs.count * axis.taps), begin(runs.count + 1), first_run(runs.count + 1), slot(runs.count * axis.taps),
        count(0) {
    int64_t used = 0;
    for (int64_t run = 0; run < runs.count; ++run) {
      const bool full = count > 0 && used - begin[count - 1] + axis.taps > most_columns;
      if (run == 0 || full) begin[count] = used, first_run[count++] = run;
      const int32_t* source = axis.sources(runs.begin[run]);
      for (int64_t k = 0; k < axis.taps; ++k) {
        int64_t at = used - 1;   // a repeated column is most often a recent one
        while (at >= begin[count - 1] && column[at] != source[k]) --at;
        if (at < begin[count - 1] && source[k] >= 0) column[at = used++] = source[k];
        slot[run * axis.taps + k] = source[k] >= 0 ? at - begin[count - 1] : -1;
      }
    }
    begin[count] = used, first_run[count] = runs.count;
  }
  Strip operator[](int64_t i) const {
    return {first_run[i], first_run[i + 1], column.data() + begin[i], begin[i + 1] - begin[i]};
  }

 private:
  Buffer<int64_t> column, begin, first_run;

 public:
  Buffer<int64_t> slot;   // [runs][taps]: which of its strip's columns a tap reads, or -1
  int64_t count;
};

class FactoredInput {
 public:
  FactoredInput(const Geometry& geometry, const ContconvInputs& inputs, float* y_)
      : g(geometry), in(inputs), y(y_), panels(g.group_out, g.p.groups), pixel_size(g.p.rank * kWidth),
        rows(g.axis[0].taps * g.axis[1].taps), columns(most(g.axis[2].taps, kStripBytes / (4 * rows * pixel_size))),
        runs0(g.axis[0]), runs1(g.axis[1]), runs2(g.axis[2]), strips(g.axis[2], runs2, columns),
        mixing(panels.count() * pixel_size * g.group_in), u(g.p.threads, rows * columns * pixel_size),
        keys(g.p.threads, 2 * rows + g.taps), pointers(g.p.threads, most(g.axis[2].in, g.taps) + kRows) {
    const Strides s{g.p.rank, g.p.out_channels * g.group_in, g.group_in, 1, g.group_in};
#pragma omp parallel for num_threads(g.team(panels.count() * pixel_size * g.group_in)) schedule(static)
    for (int64_t j = 0; j < panels.count(); ++j) {
      const Panel panel = panels[j];
      const float* from = in.mixing + (panel.group * g.group_out + panel.first) * g.group_in;
      pack(mixing.data() + j * pixel_size * g.group_in, from, s, panel.lanes, g.group_in * kWidth);
    }
  }

  // A share is an image, a strip, a panel, and a band of runs along axis 1. Bands repeat the rows of u at their
  // borders, so there are only as many as the threads need.
  void run() const {
    const int64_t wide = g.p.batch * strips.count * panels.count();
    const int64_t bands = most(1, least(runs1.count / 8, ceil_div(4 * g.p.threads, most(1, wide))));
#pragma omp parallel for num_threads(g.team(g.work)) schedule(dynamic, 1)
    for (int64_t i = 0; i < wide * bands; ++i) {
      const int64_t j = i % panels.count(), strip = i / panels.count() % strips.count;
      const int64_t band = i / panels.count() / strips.count % bands, image = i / panels.count() / strips.count / bands;
      forget_rows();
      for (int64_t r0 = 0; r0 < runs0.count; ++r0)
        for (int64_t r1 = band * runs1.count / bands; r1 < (band + 1) * runs1.count / bands; ++r1)
          sweep(image, j, strips[strip], r0, r1);
    }
  }

 private:
  static constexpr int64_t kStripBytes = 256 << 10;

  // Scratch of a thread: which input row each slot of u holds, the slot of each tap along axes 0 and 1, tap offsets.
  int64_t* held_of(int thread) const { return keys.of(thread); }
  int64_t* slots_of(int thread) const { return keys.of(thread) + rows; }
  int64_t* offsets_of(int thread) const { return keys.of(thread) + 2 * rows; }

  void forget_rows() const {
    for (int64_t i = 0; i < rows; ++i) held_of(omp_get_thread_num())[i] = -1;
  }

  // y along one strip, for one run of axis 0 and one of axis 1
  void sweep(int64_t image, int64_t j, const Strip& strip, int64_t r0, int64_t r1) const {
    hold_rows(image, j, strip, g.axis[0].sources(runs0.begin[r0]), g.axis[1].sources(runs1.begin[r1]));
    for (int64_t run = strip.run0; run < strip.run1; ++run) {
      const int64_t taps = taps_of_run(run);
      const int64_t low[3] = {runs0.begin[r0], runs1.begin[r1], runs2.begin[run]};
      const int64_t high[3] = {runs0.begin[r0 + 1], runs1.begin[r1 + 1], runs2.begin[run + 1]};
      write_patch(image, panels[j], low, high, taps);
    }
  }

  // Makes u for the input rows (s0[k0], s1[k1]) that are not there yet, in place of rows that are not needed now.
  void hold_rows(int64_t image, int64_t j, const Strip& strip, const int32_t* s0, const int32_t* s1) const {
    const int me = omp_get_thread_num();
    int64_t *held = held_of(me), *slots = slots_of(me);
    auto key_of = [&](int64_t k) {
      const int64_t a = s0[k / g.axis[1].taps], b = s1[k % g.axis[1].taps];
      return a < 0 || b < 0 ? -1 : a * g.axis[1].in + b;
    };
    auto needed = [&](int64_t key) {
      for (int64_t k = 0; k < rows; ++k)
        if (key_of(k) == key) return true;
      return false;
    };
    for (int64_t k = 0; k < rows; ++k) {
      const int64_t key = key_of(k);
      slots[k] = -1;
      for (int64_t i = 0; i < rows && key >= 0; ++i)
        if (held[i] == key) slots[k] = i;
      for (int64_t i = 0; i < rows && key >= 0 && slots[k] < 0; ++i) {
        if (held[i] >= 0 && needed(held[i])) continue;
        make_row(image, j, strip, key, i);
        held[i] = key, slots[k] = i;
      }
    }
  }

  float* u_at(int thread, int64_t slot, int64_t column) const {
    return u.of(thread) + (slot * columns + column) * pixel_size;
  }

  // u[slot][column][r][lane] = sum over ci of x[row, column, ci] * mixing[r, lane, ci]
  CONTCONV_APART void make_row(int64_t image, int64_t j, const Strip& strip, int64_t row, int64_t slot) const {
    const int me = omp_get_thread_num();
    const float** x = pointers.of(me);
    const float* first = in.x + (image * g.in_pixels + row * g.axis[2].in) * g.p.in_channels;
    for (int64_t c = 0; c < strip.columns; ++c)
      x[c] = first + strip.column[c] * g.p.in_channels + panels[j].group * g.group_in;
    const float* packed = mixing.data() + j * pixel_size * g.group_in;
    for (int64_t r = 0; r < g.p.rank; ++r, packed += g.group_in * kWidth) {
      for_each_tile(strip.columns, panels[j].vecs(), [&](int64_t c, auto tile_rows, auto vecs) {
        Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
        dot_tile(acc, x + c, 0, 1, 0, g.group_in, packed, 0);
        acc.for_each([&](int i, int v, Vec value) {
          store(u_at(me, slot, c + i) + r * kWidth + v * kLanes, value);
        });
      });
    }
  }

  // Panels of u under the taps of a run that are not padding, and where their values of the basis begin.
  int64_t taps_of_run(int64_t run) const {
    const int me = omp_get_thread_num();
    const int64_t *slots = slots_of(me), *column = strips.slot.data() + run * g.axis[2].taps;
    int64_t count = 0, basis = 0, *offset = offsets_of(me);
    const float** panel = pointers.of(me);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = 0; k < g.axis[2].taps; ++k, basis += g.p.rank) {
        if (slots[row] < 0 || column[k] < 0) continue;
        offset[count] = basis;
        panel[count++] = u_at(me, slots[row], column[k]);
      }
    }
    return count;
  }

  // y[a patch, lanes of the panel] = bias + sum over taps and r of basis * u, kRows pixels at a time
  void write_patch(int64_t image, const Panel& panel, const int64_t* low, const int64_t* high, int64_t taps) const {
    const float** basis = pointers.of(omp_get_thread_num()) + most(g.axis[2].in, g.taps);
    const int64_t channel = panel.group * g.group_out + panel.first, class_size = g.taps * g.p.rank;
    float* to[kRows];
    int64_t filled = 0;
    for (int64_t o0 = low[0]; o0 < high[0]; ++o0) {
      for (int64_t o1 = low[1]; o1 < high[1]; ++o1) {
        const int64_t line = ((image * g.axis[0].out + o0) * g.axis[1].out + o1) * g.axis[2].out;
        const float* row_basis = in.weights + g.first_class_of(o0, o1) * class_size;
        for (int64_t o2 = low[2]; o2 < high[2]; ++o2) {
          basis[filled] = row_basis + g.axis[2].phase(o2) * class_size;
          to[filled] = y + (line + o2) * g.p.out_channels + channel;
          expect_write(to[filled++]);
          if (filled == kRows) write_tile(panel, taps, basis, to, filled), filled = 0;
        }
      }
    }
    if (filled > 0) write_tile(panel, taps, basis, to, filled);
  }

  CONTCONV_APART void write_tile(const Panel& panel, int64_t taps, const float* const* basis, float* const* to,
                                 int64_t count) const {
    const int me = omp_get_thread_num();
    const int64_t channel = panel.group * g.group_out + panel.first;
    for_each_tile(count, panel.vecs(), [&](int64_t, auto tile_rows, auto vecs) {
      Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
      dot_panels_tile(acc, basis, taps, offsets_of(me), g.p.rank, pointers.of(me));
      acc.for_each([&](int i, int v, Vec value) {
        const int64_t lanes = panel.lanes - v * kLanes;
        if (in.bias) value += load_lanes(in.bias + channel + v * kLanes, lanes);
        store_lanes(to[i] + v * kLanes, value, lanes);
      });
    });
  }

  const Geometry& g;
  const ContconvInputs& in;
  float* y;
  const PanelSet panels;
  const int64_t pixel_size, rows, columns;   // floats of u for a pixel and a panel; input rows, columns of u at hand
  const Runs runs0, runs1, runs2;
  const Strips strips;
  const Buffer<float> mixing;        // [panels][rank][ci][kWidth]
  const PerThread<float> u;          // [rows][columns][rank][kWidth]
  const PerThread<int64_t> keys;
  const PerThread<const float*> pointers;
};

}  // namespace
}  // namespace contconv
