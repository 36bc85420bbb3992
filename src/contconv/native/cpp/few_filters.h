// Algorithm "filters" where the filters of all classes fit into a cache, forward: the batch passes by once, cell by cell,
// and each cell takes every class.
#pragma once
#include <omp.h>

#include "panels.h"
#include "patches.h"

namespace contconv {
namespace {

constexpr int64_t kFewBytes = 2 << 20;
constexpr int64_t kCellBytes = 192 << 10;   // of input: with filters and output it should stay in the second cache

inline int64_t filter_bytes(const Geometry& g) { return 4 * g.classes * g.taps * g.p.out_channels * g.group_in; }

// Whether that is so. The weights must be filters: those of so few classes are made first (made_filters.h).
inline bool filters_are_few(const Geometry& g) {
  return g.p.rank == 0 && g.out_pixels > 0 && filter_bytes(g) <= kFewBytes;
}

// One run of one filter, of all channels of a group: [window][kWidth] for a panel of output channels, or
// [output channels][kWidth] for a strip of the window (or of all windows, if they have room in one strip).
class FewFilters {
 public:
  FewFilters(const Geometry& geometry, const float* weights_)
      : g(geometry), weights(weights_), panels(g.group_out, g.p.groups),
        windows_at_once(most(1, windows_in_lanes(g))),
        strips(windows_at_once * g.window, g.p.groups) {}

  // Element (tap, output channel, input channel) of a class's filter.
  const float* at(int64_t c, int64_t tap, int64_t out, int64_t in) const {
    return weights + ((c * g.taps + tap) * g.p.out_channels + out) * g.group_in + in;
  }

  // to[window][kWidth] = run r of class c, lanes are the output channels of a panel
  void pack_panel(int64_t c, int64_t r, const Panel& panel, float* to) const {
    const int64_t out = panel.group * g.group_out + panel.first;
    const Strides s{g.joined, g.p.out_channels * g.group_in, g.group_in, 1, g.group_in};
    pack(to, at(c, r * g.joined, out, 0), s, panel.lanes, g.group_in * kWidth);
  }

  // to[output channels of the group][kWidth] = run r of class c, lanes are the elements of a window
  void pack_strip(int64_t c, int64_t r, const Panel& strip, float* to) const {
    for (int64_t o = 0; o < g.group_out; ++o, to += kWidth)
      for (int64_t lane = 0; lane < kWidth; ++lane) {
        const int64_t element = strip.first + lane, tap = r * g.joined + element / g.group_in;
        to[lane] = lane < strip.lanes ? *at(c, tap, strip.group * g.group_out + o, element % g.group_in) : 0;
      }
  }

  const Geometry& g;
  const float* weights;
  const PanelSet panels;
  const int64_t windows_at_once;   // in a strip
  const PanelSet strips;
};

// What every pass over the cells needs: cells, patches, and the scratch of each thread.
class CellPass {
 public:
  explicit CellPass(const Geometry& geometry, int64_t patches_at_once = 1)
      : g(geometry), cells(g, kCellBytes), patches(g, cells), most_floats(patches.most_floats()),
        data(g.p.threads, patches_at_once * most_floats), most_rows(patches.most_rows()), in(g.p.threads, most_rows),
        out(g.p.threads, most_rows),
        starts(g.p.threads, g.runs) {}

  // Calls body(class, rows, where the runs of a pixel begin) for each class that has pixels in the patch.
  template <class Body>
  void for_each_class(const Patch& patch, Body&& body) const {
    const int me = omp_get_thread_num();
    patches.run_starts(patch, starts.of(me));
    PatchRows some{in.of(me), out.of(me), 0};
    for (int64_t c = 0; c < g.classes; ++c) {
      patches.rows_of(patch, g.pixel_class(c, patch.cell.low, patch.cell.high), data.of(me), some);
      if (some.count > 0) body(c, some, starts.of(me));
    }
  }

  // The same, a block of rows at a time.
  template <class Body>
  void for_each_block(const Patch& patch, Body&& body) const {
    for_each_class(patch, [&](int64_t c, const PatchRows& rows, const int64_t* starts) {
      for (int64_t row = 0; row < rows.count; row += g.block_rows)
        body(c, PatchRows{rows.in + row, rows.out + row, least(g.block_rows, rows.count - row)}, starts);
    });
  }

  const Geometry& g;
  const Cells cells;
  const Patches patches;
  const int64_t most_floats;      // of a patch
  const PerThread<float> data;    // patches, most_floats apart
  const int64_t most_rows;        // of a class in a cell

 private:
  const PerThread<float*> in;
  const PerThread<int64_t> out, starts;
};

class alignas(kLine) FewForward {
 public:
  FewForward(const Geometry& geometry, const ContconvInputs& inputs, float* y_)
      : g(geometry), in(inputs), y(y_), f(g, inputs.weights), pass(g), run_size(g.window * kWidth + kLanes),
        packed(g.classes * f.panels.count() * g.runs * run_size), runs_of(g.p.threads, g.runs) {
#pragma omp parallel for num_threads(g.team(4 * g.classes * f.panels.count() * g.runs * run_size)) schedule(static)
    for (int64_t i = 0; i < g.classes * f.panels.count() * g.runs; ++i) {
      const int64_t r = i % g.runs, j = i / g.runs % f.panels.count(), c = i / g.runs / f.panels.count();
      f.pack_panel(c, r, f.panels[j], packed.data() + i * run_size);
    }
  }

  void run() const {
#pragma omp parallel for num_threads(g.team(g.work)) schedule(dynamic, 1)
    for (int64_t i = 0; i < pass.cells.count(); ++i) {
      const int me = omp_get_thread_num();
      const Patch patch = pass.patches.of(pass.cells[i]);
      pass.patches.read(patch, in.x, pass.data.of(me));
      pass.for_each_class(patch, [&](int64_t c, const PatchRows& rows, const int64_t* starts) {
        const int64_t at_once = most(1, kLongestSum / g.window);
        for (int64_t j = 0; j < f.panels.count(); ++j)
          for (int64_t r = 0; r < g.runs; r += at_once) apply(c, j, rows, starts, r, least(g.runs, r + at_once));
      });
    }
  }

 private:
  // y[rows, lanes of the panel] = filter . x over some runs + (bias or, where runs were added before, y)
  CONTCONV_APART void apply(int64_t c, int64_t j, const PatchRows& rows, const int64_t* starts, int64_t run0,
                            int64_t run1) const {
    // Local variables for what is needed after the sums: as far as the compiler knows, a store to y changes all others.
    const Panel panel = f.panels[j];
    const int64_t channel = panel.group * g.group_out + panel.first, offset = panel.group * g.group_in;
    const int64_t lanes = panel.lanes, pitch = g.p.out_channels, *out = rows.out, window = g.window;
    float* const* from = rows.in;
    float* result = y + channel;
    const float** filters = runs_of.of(omp_get_thread_num());
    const float* filter = packed.data() + (c * f.panels.count() + j) * g.runs * run_size;
    for (int64_t r = run0; r < run1; ++r) filters[r - run0] = filter + r * run_size;
    const bool is_first = run0 == 0;
    Vec added[kVecs] = {};
    for (int v = 0; v < kVecs && in.bias && is_first; ++v)
      added[v] = load_lanes(in.bias + channel + v * kLanes, lanes - v * kLanes);
    for_each_tile(rows.count, panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
      constexpr int Rows = decltype(tile_rows)::value;
      const float* row[Rows];
      float* to[Rows];
      for (int i = 0; i < Rows; ++i) row[i] = from[first + i] + offset;
      for (int i = 0; i < Rows; ++i) to[i] = result + out[first + i] * pitch;
      for (int i = 0; i < Rows; ++i) expect_write(to[i]);
      Tile<Rows, decltype(vecs)::value> acc;
      dot_panels_tile(acc, row, run1 - run0, starts + run0, window, filters);
      acc.for_each([&](int i, int v, Vec value) {
        const int64_t rest = lanes - v * kLanes;
        float* target = to[i] + v * kLanes;
        store_lanes(target, value + (is_first ? added[v] : load_lanes(target, rest)), rest);
      });
    });
  }

  const Geometry& g;
  const ContconvInputs& in;
  float* y;
  const FewFilters f;
  const CellPass pass;
  const int64_t run_size;           // floats of a run, padded: runs should not all fall into one set of the cache
  const Buffer<float> packed;       // [classes][panels][runs][run_size]
  const PerThread<const float*> runs_of;
};

}  // namespace
}  // namespace contconv
