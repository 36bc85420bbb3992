// Algorithm "filters" with many of them, gradient of x: every tap of every class scatters grad_y . filter onto the
// input pixels, one tap after the other or, where input channels are few, all taps of a window or of a filter at once.
#pragma once
#include "apply.h"
#include "bands.h"
#include "window_scatter.h"

namespace contconv {
namespace {

// The part of grad_x that one thread owns and nobody else writes: some images, some panels of input channels, and a
// range of indices along one axis. Sums into a pixel must run in an order that is the same whatever the shares are, so
// that the result does not depend on the number of threads.
struct Territory {
  int64_t image0, image1, panel0, panel1;
  int64_t low, high;   // input indices along the banded axis
};

// How grad_x is cut into territories. Cutting by panels or images repeats no work but the making of filters (for
// images); cutting by bands wastes the pixels at the edges, so it comes last.
class Territories {
 public:
  Territories(const Geometry& geometry, int64_t panels_, bool last_axis_too)
      : g(geometry), images(g.p.batch), panels(panels_) {
    const int64_t threads = g.p.threads, rows_per_class = images * g.out_pixels / most(1, g.classes);
    const bool filters_are_cheap = rows_per_class >= 4 * threads * most(1, g.p.rank);
    image_parts = filters_are_cheap ? least(images, threads) : 1;
    panel_parts = image_parts >= threads ? 1 : least(panels, 4 * threads);
    if (image_parts * panel_parts < threads) image_parts = least(images, ceil_div(threads, panel_parts));
    axis = g.p.in[0] > g.p.in[1] ? 0 : 1;
    if (g.p.in[2] > g.p.in[axis] && last_axis_too) axis = 2;
    length = g.p.in[axis];
    bands = least(length, ceil_div(threads, most(1, image_parts * panel_parts)));
  }
  int64_t count() const { return image_parts * panel_parts * bands; }

  Territory operator[](int64_t i) const {
    const int64_t band = i % bands, part = i / bands % panel_parts, image = i / bands / panel_parts;
    return {image * images / image_parts, (image + 1) * images / image_parts, part * panels / panel_parts,
            (part + 1) * panels / panel_parts, band * length / bands, (band + 1) * length / bands};
  }

  bool owns(const Territory& mine, int64_t pixel) const {
    if (bands == 1) return true;
    const int64_t index = axis == 0 ? pixel / (g.p.in[1] * g.p.in[2])
                          : axis == 1 ? pixel / g.p.in[2] % g.p.in[1] : pixel % g.p.in[2];
    return index >= mine.low && index < mine.high;
  }

 private:
  const Geometry& g;
  int64_t images, panels, image_parts, panel_parts, bands, length;
  int axis;   // the banded one
};

// grad_x = 0, by all threads of a team
inline void clear_input_gradient(const Geometry& g, float* grad_x) {
  fill_zero_together(grad_x, g.p.batch * g.in_pixels * g.p.in_channels);
}

// Sets grad_x to zero, then calls body(territory) for each, on the threads of a team.
template <class Body>
void for_each_territory(const Geometry& g, const Territories& territories, float* grad_x, Body&& body) {
#pragma omp parallel num_threads(g.team(g.work))
  {
    clear_input_gradient(g, grad_x);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < territories.count(); ++i) body(territories[i]);
  }
}

// Whether what the pixels of a band send goes to whole windows, and bands can take turns.
inline bool scatters_in_bands(const Geometry& g) {
  if (!WindowScatter::serves(g)) return false;
  const Bands bands(g, g.band_axis, Bands::Of::phases);
  return bands.count > 1 && bands.classes_in_order();
}

// Pairs of an output pixel and the input pixel under one of its taps, one after the other.
struct Pairs {
  const float** from;  // [block_rows]: the output pixel in grad_y
  float** to;          // [block_rows]: the input pixel in grad_x
};

// grad_x[to[i], lanes of the panel] += filter . grad_y[from[i]], in order: pixels of one block may share a source
CONTCONV_APART void scatter_panel(const Filters& f, const Panel& panel, const float* filter, int64_t count,
                                  const Pairs& pairs) {
  // Local variables, as in apply_runs.
  const int64_t channel = panel.group * f.g.group_in + panel.first, offset = panel.group * f.g.group_out;
  const int64_t lanes = panel.lanes, depth = f.g.group_out;
  for_each_tile(count, panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
    constexpr int Rows = decltype(tile_rows)::value, Vecs = decltype(vecs)::value;
    float* to[Rows];
    for (int i = 0; i < Rows; ++i) to[i] = pairs.to[first + i] + channel;
    for (int i = 0; i < Rows; ++i)
      for (int v = 0; v < Vecs; ++v) expect_write(to[i] + v * kLanes);
    Tile<Rows, Vecs> acc;
    dot_tile(acc, pairs.from + first, 0, 1, offset, depth, filter, 0);
    acc.for_each([&](int i, int v, Vec value) {
      float* target = to[i] + v * kLanes;
      store_lanes(target, load_lanes(target, lanes - v * kLanes) + value, lanes - v * kLanes);
    });
  });
}

// Sums into a pixel run over classes, blocks, and then taps and pixels, whatever the territories are.
class InputGradient {
 public:
  InputGradient(const Geometry& geometry, const Windows& windows_, const ContconvInputs& inputs, float* grad_x_)
      : g(geometry), windows(windows_), in(inputs), grad_x(grad_x_), f(g, inputs, Lanes::input), cache(f),
        territories(g, f.panels.count(), true), sources(g.p.threads, g.block_rows), targets(g.p.threads, g.block_rows) {}

  void run() const {
    for_each_territory(g, territories, grad_x, [&](const Territory& mine) {
      for (int64_t c = 0; c < g.classes; ++c)
        for (int64_t panel = mine.panel0; panel < mine.panel1; panel += cache.at_once)
          scatter_class(mine, c, panel, least(mine.panel1, panel + cache.at_once));
    });
  }

 private:
  void scatter_class(const Territory& mine, int64_t class_index, int64_t panel0, int64_t panel1) const {
    const PixelClass c = g.pixel_class(class_index);
    if (c.pixels == 0) return;
    const int me = omp_get_thread_num();
    const float* filter = cache.get(me, class_index, panel0, panel1);
    const Pairs pairs{sources.of(me), targets.of(me)};
    const Blocks blocks(g, c, mine.image0, mine.image1);
    for (int64_t b = 0; b < blocks.count(); ++b) {
      const Places places = windows.of(c, blocks[b].pixel0);
      for (int64_t t = 0; t < g.taps; ++t) {
        const int64_t count = pairs_of_tap(mine, blocks[b], places, t, pairs);
        for (int64_t j = panel0; j < panel1; ++j)
          scatter_panel(f, f.panels[j], filter + (j - panel0) * f.panel_size() + f.tap_start(t), count, pairs);
      }
    }
  }

  int64_t pairs_of_tap(const Territory& mine, const Block& block, const Places& places, int64_t t,
                       const Pairs& pairs) const {
    const int64_t in_step = g.in_pixels * g.p.in_channels, out_step = g.out_pixels * g.p.out_channels;
    const int32_t* place = places.in + t / g.joined;
    int64_t count = 0;
    for (int64_t q = 0; q < block.pixel1 - block.pixel0; ++q, place += g.runs) {
      const int64_t source = windows.pixel(places.out[q], *place, t % g.joined);
      if (source < 0 || !territories.owns(mine, source)) continue;
      const float* from = in.grad_y + block.image0 * out_step + places.out[q] * g.p.out_channels;
      float* to = grad_x + block.image0 * in_step + source * g.p.in_channels;
      place_in_images(pairs.from + count, from, out_step, block.images());
      place_in_images(pairs.to + count, to, in_step, block.images());
      count += block.images();
    }
    return count;
  }

  const Geometry& g;
  const Windows& windows;
  const ContconvInputs& in;
  float* grad_x;
  const Filters f;
  const FilterCache cache;
  const Territories territories;
  const PerThread<const float*> sources;
  const PerThread<float*> targets;
};

// The same with taps as lanes. Where the output can be cut into bands, these are shared out instead of territories: then
// no filter is made twice.
class WindowGradient {
 public:
  WindowGradient(const Geometry& geometry, const Windows& windows, const ContconvInputs& inputs, float* grad_x_)
      : g(geometry), grad_x(grad_x_), scatter(g, windows, inputs, grad_x), territories(g, 1, false),
        bands(g, g.band_axis, Bands::Of::phases) {}

  static bool serves(const Geometry& g) {
    const bool rows = g.p.in[0] * g.p.in[1] > 1;   // territories should not cut the last axis, along which windows lie
    return WindowScatter::serves(g) && (rows || scatters_in_bands(g));
  }

  void run() const {
    if (!scatters_in_bands(g)) {
      for_each_territory(g, territories, grad_x, [&](const Territory& mine) {
        const auto owns = [&](int64_t pixel) { return territories.owns(mine, pixel); };
        for (int64_t c = 0; c < g.classes; ++c) scatter_class(c, mine.image0, mine.image1, owns);
      });
      return;
    }
#pragma omp parallel num_threads(g.team(g.work))
    {
      clear_input_gradient(g, grad_x);
      for (int64_t turn = 0; turn < bands.turns; ++turn) {
#pragma omp for schedule(dynamic, 1)
        for (int64_t band = turn; band < bands.count; band += bands.turns)
          for (int64_t c = bands.first_class(band); c < bands.first_class(band + 1); ++c)
            scatter_class(c, 0, g.p.batch, [](int64_t) { return true; });
      }
    }
  }

 private:
  template <class Owns>
  void scatter_class(int64_t class_index, int64_t image0, int64_t image1, Owns&& owns) const {
    const PixelClass c = g.pixel_class(class_index);
    if (c.pixels == 0) return;
    const Blocks blocks(g, c, image0, image1);
    for (int64_t b = 0; b < blocks.count(); ++b) scatter.add(c, blocks[b], owns);
  }

  const Geometry& g;
  float* grad_x;
  const WindowScatter scatter;
  const Territories territories;
  const Bands bands;
};

}  // namespace
}  // namespace contconv
