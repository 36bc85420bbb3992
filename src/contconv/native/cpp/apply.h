// Algorithm "filters" with many of them, forward: make the filter of a class, apply it to every pixel of the class in
// the whole batch.
#pragma once
#include "filters.h"
#include "windows.h"

namespace contconv {
namespace {

// y[rows of the block, lanes of the panel] = filter . x over some runs + (bias or, where runs were added before, y)
CONTCONV_APART void apply_runs(const Filters& f, const Panel& panel, const float* filter, const BlockRows& rows,
                               int64_t run0, int64_t run1, const float* bias, float* y) {
  // What is needed after the sums is in local variables: as far as the compiler knows, a store to y changes all others.
  const int64_t channel = panel.group * f.g.group_out + panel.first, offset = panel.group * f.g.group_in;
  const int64_t lanes = panel.lanes, pitch = f.g.p.out_channels, block_rows = f.g.block_rows, *out = rows.out;
  const int64_t window = f.g.window, run_pitch = f.run_pitch;
  const float* const* in = rows.in + run0 * block_rows;
  const bool is_first = run0 == 0;
  Vec added[kVecs] = {};
  for (int v = 0; v < kVecs && bias && is_first; ++v)
    added[v] = load_lanes(bias + channel + v * kLanes, lanes - v * kLanes);
  for_each_tile(rows.count, panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
    constexpr int Rows = decltype(tile_rows)::value;
    float* to[Rows];
    for (int i = 0; i < Rows; ++i) to[i] = y + out[first + i] * pitch + channel;
    for (int i = 0; i < Rows; ++i)   // the next pixels are the next class's
      for (int v = 0; v < kVecs; ++v) expect_write(to[i] + pitch + v * kLanes);
    Tile<Rows, decltype(vecs)::value> acc;
    dot_tile(acc, in + first, block_rows, run1 - run0, offset, window, filter + run0 * run_pitch, run_pitch);
    acc.for_each([&](int i, int v, Vec value) {
      const int64_t rest = lanes - v * kLanes;
      float* target = to[i] + v * kLanes;
      store_lanes(target, value + (is_first ? added[v] : load_lanes(target, rest)), rest);
    });
  });
}

inline void apply_panel(const Filters& f, const Panel& panel, const float* filter, const BlockRows& rows,
                        const float* bias, float* y) {
  const int64_t runs = f.g.runs, at_once = most(1, kLongestSum / f.g.window);
  for (int64_t r = 0; r < runs; r += at_once) apply_runs(f, panel, filter, rows, r, least(runs, r + at_once), bias, y);
}

class Application {
 public:
  Application(const Geometry& geometry, const Windows& windows, const ContconvInputs& inputs, float* y_)
      : g(geometry), in(inputs), y(y_), f(g, inputs, Lanes::output), cache(f), scratch(g, windows) {}

  void run() const {
    const int64_t parts = most(1, g.p.batch * g.out_pixels / most(1, g.classes) / kRowsPerShare);
    // Neighbouring pixels belong to neighbouring classes: two threads at them would take lines from each other.
    const int64_t at_once = most(1, g.classes / kShares);
#pragma omp parallel for num_threads(g.team(g.work)) schedule(dynamic, at_once)
    for (int64_t s = 0; s < parts * g.classes; ++s) apply_class(s / parts, s % parts, parts);
  }

 private:
  static constexpr int64_t kRowsPerShare = 2048, kShares = 64;

  // Part `part` of `parts` of the blocks of a class.
  void apply_class(int64_t class_index, int64_t part, int64_t parts) const {
    const PixelClass c = g.pixel_class(class_index);
    if (c.pixels == 0) return;
    const int me = omp_get_thread_num();
    const Blocks blocks(g, c, 0, g.p.batch);
    for (int64_t first = 0; first < cache.panels; first += cache.at_once) {
      const float* filter = cache.get(me, class_index, first, cache.panels);
      for (int64_t b = part * blocks.count() / parts; b < (part + 1) * blocks.count() / parts; ++b) {
        const BlockRows rows = scratch.rows_of(me, c, blocks[b], in.x);
        for (int64_t j = first; j < least(cache.panels, first + cache.at_once); ++j)
          apply_panel(f, f.panels[j], filter + (j - first) * f.panel_size(), rows, in.bias, y);
      }
    }
  }

  const Geometry& g;
  const ContconvInputs& in;
  float* y;
  const Filters f;
  const FilterCache cache;
  const RowScratch scratch;
};

}  // namespace
}  // namespace contconv
