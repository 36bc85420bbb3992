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

  int64_t longest() const {
    int64_t length = 0;
    for (int64_t i = 0; i < count; ++i) length = most(length, begin[i + 1] - begin[i]);
    return length;
  }
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
        index(g.p.threads, 2 * rows + g.taps), pointers(g.p.threads, most(g.axis[2].in, g.taps) + kRows),
        lines(g.p.threads, runs0.longest() * runs1.longest()) {
    const Strides s{g.p.rank, g.p.out_channels * g.group_in, g.group_in, 1, g.group_in};
#pragma omp parallel for num_threads(g.team(panels.count() * pixel_size * g.group_in)) schedule(static)
    for (int64_t j = 0; j < panels.count(); ++j) {
      const Panel panel = panels[j];
      const float* from = in.mixing + (panel.group * g.group_out + panel.first) * g.group_in;
      pack(mixing.data() + j * pixel_size * g.group_in, from, s, panel.lanes, g.group_in * kWidth);
    }
  }

  // A share is an image, a strip, a panel, and a band of runs along axis 1. Bands repeat the rows of u at their borders,
  // so there are only as many as the threads need. Panels come one after the other: threads that write to the same
  // pixels at the same time would all wait for the same pages of a new y.
  void run() const {
    const int64_t wide = g.p.batch * strips.count * panels.count();
    const int64_t bands = most(1, least(runs1.count / 8, ceil_div(4 * g.p.threads, most(1, wide))));
#pragma omp parallel for num_threads(g.team(g.work)) schedule(dynamic, 1)
    for (int64_t i = 0; i < wide * bands; ++i) {
      const int64_t strip = i % strips.count, band = i / strips.count % bands;
      const int64_t image = i / strips.count / bands % g.p.batch, j = i / strips.count / bands / g.p.batch;
      const Own own = own_of(omp_get_thread_num());
      for (int64_t k = 0; k < rows; ++k) own.held[k] = -1;
      for (int64_t r0 = 0; r0 < runs0.count; ++r0)
        for (int64_t r1 = band * runs1.count / bands; r1 < (band + 1) * runs1.count / bands; ++r1)
          sweep(own, image, j, strips[strip], r0, r1);
    }
  }

 private:
  static constexpr int64_t kStripBytes = 256 << 10;

  // A row of output pixels: where it begins in y, at the panel's first channel, and the basis of its first class.
  struct Line {
    float* y;
    const float* basis;
  };

  // The scratch of a thread.
  struct Own {
    float* u;                // [rows][columns][rank][kWidth]
    int64_t* held;           // [rows]: which input row each slot of u holds
    int64_t* slots;          // [rows]: the slot of each tap along axes 0 and 1
    int64_t* offsets;        // [taps]: where the values of the basis begin for each tap that is no padding
    const float** pointers;  // [columns of x or taps]: pixels of x under a strip, or panels of u under taps
    const float** basis;     // [kRows]: that of the output pixels of a tile
    Line* lines;             // [longest run along axis 0 times that along axis 1]: those of a patch
  };
  // What lies under an output pixel, in the thread's pointers and offsets: so many panels of u, each so deep.
  struct Under {
    int64_t count, depth;
  };
  Own own_of(int thread) const {
    int64_t* keys = index.of(thread);
    const float** x = pointers.of(thread);
    return {u.of(thread), keys, keys + rows, keys + 2 * rows, x, x + most(g.axis[2].in, g.taps), lines.of(thread)};
  }

  // y along one strip, for one run of axis 0 and one of axis 1
  void sweep(const Own& own, int64_t image, int64_t j, const Strip& strip, int64_t r0, int64_t r1) const {
    hold_rows(own, image, j, strip, g.axis[0].sources(runs0.begin[r0]), g.axis[1].sources(runs1.begin[r1]));
    const Panel panel = panels[j];
    const int64_t channel = panel.group * g.group_out + panel.first;
    int64_t count = 0;
    for (int64_t o0 = runs0.begin[r0]; o0 < runs0.begin[r0 + 1]; ++o0) {
      for (int64_t o1 = runs1.begin[r1]; o1 < runs1.begin[r1 + 1]; ++o1) {
        const int64_t pixel = ((image * g.axis[0].out + o0) * g.axis[1].out + o1) * g.axis[2].out;
        own.lines[count++] = {y + pixel * g.p.out_channels + channel,
                              in.weights + g.first_class_of(o0, o1) * g.taps * g.p.rank};
      }
    }
    for (int64_t run = strip.run0; run < strip.run1; ++run)
      write_patch(own, panel, count, runs2.begin[run], runs2.begin[run + 1], under_run(own, run));
  }

  // Makes u for the input rows (s0[k0], s1[k1]) that are not there yet, in place of rows that are not needed now.
  void hold_rows(const Own& own, int64_t image, int64_t j, const Strip& strip, const int32_t* s0,
                 const int32_t* s1) const {
    int64_t *held = own.held, *slots = own.slots;
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
        make_row(own, image, j, strip, key, i);
        held[i] = key, slots[k] = i;
      }
    }
  }

  // u[slot][column][r][lane] = sum over ci of x[row, column, ci] * mixing[r, lane, ci]
  CONTCONV_APART void make_row(const Own& own, int64_t image, int64_t j, const Strip& strip, int64_t row,
                               int64_t slot) const {
    const float** x = own.pointers;
    const float* first = in.x + (image * g.in_pixels + row * g.axis[2].in) * g.p.in_channels;
    for (int64_t c = 0; c < strip.columns; ++c)
      x[c] = first + strip.column[c] * g.p.in_channels + panels[j].group * g.group_in;
    const int64_t depth = g.group_in, pixel = pixel_size, count = strip.columns, rank = g.p.rank;
    const float* packed = mixing.data() + j * pixel * depth;
    float* to = own.u + slot * columns * pixel;
    for (int64_t r = 0; r < rank; ++r, packed += depth * kWidth, to += kWidth) {
      for_each_tile(count, panels[j].vecs(), [&](int64_t c, auto tile_rows, auto vecs) {
        Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
        dot_tile(acc, x + c, 0, 1, 0, depth, packed, 0);
        float* target = to + c * pixel;
        acc.for_each([&](int i, int v, Vec value) { store(target + i * pixel + v * kLanes, value); });
      });
    }
  }

  // Panels of u under the taps of a run that are not padding, and where their values of the basis begin. Taps along the
  // last axis are one panel where they lie side by side, as they do but at the borders.
  Under under_run(const Own& own, int64_t run) const {
    const int64_t taps = g.axis[2].taps, *column = strips.slot.data() + run * taps;
    bool side_by_side = column[0] >= 0;
    for (int64_t k = 1; k < taps; ++k) side_by_side = side_by_side && column[k] == column[0] + k;
    const int64_t joined = side_by_side ? taps : 1;
    Under under{0, joined * g.p.rank};
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = 0; k < taps && own.slots[row] >= 0; k += joined) {
        if (column[k] < 0) continue;
        own.offsets[under.count] = (row * taps + k) * g.p.rank;
        own.pointers[under.count++] = own.u + (own.slots[row] * columns + column[k]) * pixel_size;
      }
    }
    return under;
  }

  // y[a patch, lanes of the panel] = bias + sum over taps and r of basis * u, kRows pixels at a time. The patch is
  // columns low .. high - 1 of some lines.
  void write_patch(const Own& own, const Panel& panel, int64_t lines_count, int64_t low, int64_t high,
                   const Under& under) const {
    const int64_t class_size = g.taps * g.p.rank, pitch = g.p.out_channels;
    float* to[kRows];
    int64_t filled = 0;
    for (int64_t n = 0; n < lines_count; ++n) {
      const Line line = own.lines[n];
      for (int64_t o = low; o < high; ++o) {
        own.basis[filled] = line.basis + g.axis[2].phase(o) * class_size;
        to[filled] = line.y + o * pitch;
        expect_write(to[filled++]);
        if (filled == kRows) write_tile(own, panel, under, to, filled), filled = 0;
      }
    }
    if (filled > 0) write_tile(own, panel, under, to, filled);
  }

  CONTCONV_APART void write_tile(const Own& own, const Panel& panel, const Under& under, float* const* to,
                                 int64_t count) const {
    const int64_t lanes = panel.lanes, pieces = under.count, depth = under.depth, *offsets = own.offsets;
    const float *const *basis = own.basis, *const *u_under = own.pointers;
    Vec added[kVecs] = {};
    for (int v = 0; v < kVecs && in.bias; ++v)
      added[v] = load_lanes(in.bias + panel.group * g.group_out + panel.first + v * kLanes, lanes - v * kLanes);
    for_each_tile(count, panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
      constexpr int Rows = decltype(tile_rows)::value;
      Tile<Rows, decltype(vecs)::value> acc;
      dot_panels_tile(acc, basis + first, pieces, offsets, depth, u_under);
      float* target[Rows];
      for (int i = 0; i < Rows; ++i) target[i] = to[first + i];
      acc.for_each([&](int i, int v, Vec value) {
        store_lanes(target[i] + v * kLanes, value + added[v], lanes - v * kLanes);
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
  const PerThread<float> u;          // the scratch of each thread
  const PerThread<int64_t> index;
  const PerThread<const float*> pointers;
  const PerThread<Line> lines;
};

}  // namespace
}  // namespace contconv
