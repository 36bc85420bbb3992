// Algorithm "filters" with many of them, gradient of x: every tap of every class scatters grad_y . filter onto the
// input pixels, one tap after the other or, where input channels are few, all taps of a window or of a filter at once.
#pragma once
#include "apply.h"

namespace contconv {
namespace {

// The part of grad_x that one thread owns and nobody else writes: some images, some panels of input channels, and a
// range of indices along one axis. Sums into a pixel run over classes, blocks, and then taps and pixels in an order that
// is the same whatever the shares are, so the result does not depend on the number of threads.
struct Territory {
  int64_t image0, image1, panel0, panel1;
  int64_t low, high;   // input indices along the banded axis
};

// How grad_x is cut into territories. Cutting by panels or images repeats no work but the making of filters (for
// images); cutting by bands wastes the pixels at the edges, so it comes last.
struct Territories {
  int64_t images, panels, image_parts, panel_parts, bands, length;
  int axis;   // the banded one

  // Windows, which lie along the last axis, are not cut.
  Territories(const Geometry& g, int64_t panels_, Lanes lanes) : images(g.p.batch), panels(panels_) {
    const int64_t threads = g.p.threads, rows_per_class = images * g.out_pixels / most(1, g.classes);
    const bool filters_are_cheap = rows_per_class >= 4 * threads * most(1, g.p.rank);
    image_parts = filters_are_cheap ? least(images, threads) : 1;
    panel_parts = image_parts >= threads ? 1 : least(panels, 4 * threads);
    if (image_parts * panel_parts < threads) image_parts = least(images, ceil_div(threads, panel_parts));
    axis = g.p.in[0] > g.p.in[1] ? 0 : 1;
    if (g.p.in[2] > g.p.in[axis] && lanes != Lanes::taps) axis = 2;
    length = g.p.in[axis];
    bands = least(length, ceil_div(threads, most(1, image_parts * panel_parts)));
  }
  int64_t count() const { return image_parts * panel_parts * bands; }

  Territory operator[](int64_t i) const {
    const int64_t band = i % bands, part = i / bands % panel_parts, image = i / bands / panel_parts;
    return {image * images / image_parts, (image + 1) * images / image_parts, part * panels / panel_parts,
            (part + 1) * panels / panel_parts, band * length / bands, (band + 1) * length / bands};
  }
};

// Pairs of an output pixel and the input pixel under one of its taps (or the first one of a window), one after the other.
struct Pairs {
  const float** from;  // [block_rows]: the output pixel in grad_y
  float** to;          // [block_rows] for each window: the input pixel in grad_x
};

// A window that is not one piece of memory: it is summed apart, and then added pixel by pixel.
struct BrokenWindow {
  int64_t image, output;
  int32_t place;
};

// grad_x[to[i], lanes of the panel] += filter . grad_y[from[i]], in order: pixels of one block may share a source
CONTCONV_APART void scatter_panel(const Filters& f, const Panel& panel, const float* filter, int64_t count,
                                  const Pairs& pairs) {
  // Local variables, as in apply_runs.
  const int64_t channel = panel.group * f.g.group_in + panel.first, offset = panel.group * f.g.group_out;
  const int64_t lanes = panel.lanes, depth = f.g.group_out;
  for_each_tile(count, panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
    constexpr int Rows = decltype(tile_rows)::value, Vecs = decltype(vecs)::value;
    Tile<Rows, Vecs> acc;
    dot_tile(acc, pairs.from + first, 0, 1, offset, depth, filter, 0);
    float* to[Rows];
    for (int i = 0; i < Rows; ++i) to[i] = pairs.to[first + i] + channel;
    acc.for_each([&](int i, int v, Vec value) {
      float* target = to[i] + v * kLanes;
      store_lanes(target, load_lanes(target, lanes - v * kLanes) + value, lanes - v * kLanes);
    });
  });
}

class InputGradient {
 public:
  InputGradient(const Geometry& geometry, const Windows& windows_, const ContconvInputs& inputs, float* grad_x_)
      : g(geometry), windows(windows_), in(inputs), grad_x(grad_x_),
        windows_at_once(g.joined * windows_in_lanes(g) > 1 && g.p.in[0] * g.p.in[1] > 1 ? windows_in_lanes(g) : 0),
        f(g, inputs, windows_at_once > 0 ? Lanes::taps : Lanes::input), cache(f), territories(g, f.panels.count(), f.lanes),
        sources(g.p.threads, g.block_rows), targets(g.p.threads, most(1, windows_at_once) * g.block_rows),
        broken(g.p.threads, windows_at_once * g.block_rows), sums(g.p.threads, (1 + windows_at_once * g.block_rows) * kWidth) {}

  void run() const {
    const int64_t count = g.p.batch * g.in_pixels, channels = g.p.in_channels;
#pragma omp parallel num_threads(g.team(g.work))
    {
#pragma omp for schedule(static)
      for (int64_t n = 0; n < ceil_div(count, 64); ++n)
        fill_zero(grad_x + n * 64 * channels, least(64, count - n * 64) * channels);
#pragma omp for schedule(dynamic, 1)
      for (int64_t i = 0; i < territories.count(); ++i) scatter_territory(territories[i]);
    }
  }

 private:
  void scatter_territory(const Territory& mine) const {
    for (int64_t c = 0; c < g.classes; ++c)
      for (int64_t panel = mine.panel0; panel < mine.panel1; panel += cache.at_once)
        scatter_class(mine, c, panel, least(mine.panel1, panel + cache.at_once));
  }

  void scatter_class(const Territory& mine, int64_t class_index, int64_t panel0, int64_t panel1) const {
    const PixelClass c = g.pixel_class(class_index);
    if (c.pixels == 0) return;
    const int me = omp_get_thread_num();
    const float* filter = cache.get(me, class_index, panel0, panel1);
    const Pairs pairs{sources.of(me), targets.of(me)};
    const Blocks blocks(g, c, mine.image0, mine.image1);
    for (int64_t b = 0; b < blocks.count(); ++b) {
      const Places places = windows.of(c, blocks[b].pixel0);
      if (windows_at_once > 0) {
        for (int64_t r = 0; r < g.runs; r += windows_at_once) scatter_windows(mine, blocks[b], places, r, filter, pairs);
        continue;
      }
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
      if (source < 0 || !owns(mine, source)) continue;
      const float* from = in.grad_y + block.image0 * out_step + places.out[q] * g.p.out_channels;
      float* to = grad_x + block.image0 * in_step + source * g.p.in_channels;
      place_in_images(pairs.from + count, from, out_step, block.images());
      place_in_images(pairs.to + count, to, in_step, block.images());
      count += block.images();
    }
    return count;
  }

  // Windows r .. r + windows_at_once - 1 of all pixels of a block.
  void scatter_windows(const Territory& mine, const Block& block, const Places& places, int64_t r, const float* filter,
                       const Pairs& pairs) const {
    const int me = omp_get_thread_num();
    const int64_t in_step = g.in_pixels * g.p.in_channels, out_step = g.out_pixels * g.p.out_channels;
    const int64_t images = block.images();
    float* first_x = grad_x + block.image0 * in_step;
    const float* first_y = in.grad_y + block.image0 * out_step;
    float* nowhere = sums.of(me);   // for windows that are padding, or others'
    BrokenWindow* apart = broken.of(me);
    int64_t count = 0, broken_count = 0;
    for (int64_t q = 0; q < block.pixel1 - block.pixel0; ++q) {
      bool is_seen = false;
      for (int64_t w = 0; w < windows_at_once; ++w) {
        const int32_t place = places.in[q * g.runs + r + w];
        float** to = pairs.to + w * g.block_rows + count;
        if (place == kPadding || !owns(mine, place >= 0 ? place : row_of_broken(place))) {
          place_in_images(to, nowhere, 0, images);
          continue;
        }
        is_seen = true;
        if (place >= 0) {
          place_in_images(to, first_x + place * g.p.in_channels, in_step, images);
          continue;
        }
        for (int64_t n = 0; n < images; ++n) {
          apart[broken_count] = {block.image0 + n, places.out[q], place};
          to[n] = nowhere + ++broken_count * kWidth;
          fill_zero(to[n], g.window);
        }
      }
      if (!is_seen) continue;
      place_in_images(pairs.from + count, first_y + places.out[q] * g.p.out_channels, out_step, images);
      count += images;
    }
    scatter_taps(filter + r / windows_at_once * f.run_pitch, count, pairs);
    for (int64_t i = 0; i < broken_count; ++i) add_window(apart[i], nowhere + (1 + i) * kWidth);
  }

  CONTCONV_APART void scatter_taps(const float* filter, int64_t count, const Pairs& pairs) const {
    const int64_t parts = windows_at_once, window = g.window, depth = g.group_out, pitch = g.block_rows;
    for_each_tile(count, ceil_div(parts * window, kLanes), [&](int64_t first, auto tile_rows, auto vecs) {
      Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
      dot_tile(acc, pairs.from + first, 0, 1, 0, depth, filter, 0);
      add_lanes(acc, parts, window, [&](int i, int64_t part) { return pairs.to[part * pitch + first + i]; });
    });
  }

  void add_window(const BrokenWindow& window, const float* sum) const {
    for (int64_t k = 0; k < g.joined; ++k) {
      const int64_t pixel = windows.pixel(window.output, window.place, k);
      if (pixel < 0) continue;
      float* to = grad_x + (window.image * g.in_pixels + pixel) * g.p.in_channels;
      for (int64_t lane = 0; lane < g.group_in; ++lane) to[lane] += sum[k * g.group_in + lane];
    }
  }

  bool owns(const Territory& mine, int64_t pixel) const {
    if (territories.bands == 1) return true;
    const int64_t index = territories.axis == 0 ? pixel / (g.p.in[1] * g.p.in[2])
                          : territories.axis == 1 ? pixel / g.p.in[2] % g.p.in[1] : pixel % g.p.in[2];
    return index >= mine.low && index < mine.high;
  }

  const Geometry& g;
  const Windows& windows;
  const ContconvInputs& in;
  float* grad_x;
  const int64_t windows_at_once;            // whose taps are lanes; 0: the lanes are the channels of one tap
  const Filters f;
  const FilterCache cache;
  const Territories territories;
  const PerThread<const float*> sources;
  const PerThread<float*> targets;
  const PerThread<BrokenWindow> broken;
  const PerThread<float> sums;              // of broken windows, kWidth apart, and a place for what nobody needs
};

}  // namespace
}  // namespace contconv
