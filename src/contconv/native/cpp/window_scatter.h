// Few input channels, gradient of x: the lanes are all taps of a window, or of a filter, and what a pixel sends is added
// to whole windows at once.
#pragma once
#include "filters.h"
#include "windows.h"

namespace contconv {
namespace {

class WindowScatter {
 public:
  WindowScatter(const Geometry& geometry, const Windows& windows_, const ContconvInputs& inputs, float* grad_x_)
      : g(geometry), windows(windows_), grad_y(inputs.grad_y), grad_x(grad_x_), at_once(windows_in_lanes(g)),
        f(g, inputs, Lanes::taps), cache(f), sources(g.p.threads, g.block_rows),
        targets(g.p.threads, at_once * g.block_rows), broken(g.p.threads, at_once * g.block_rows),
        sums(g.p.threads, (1 + at_once * g.block_rows) * kWidth) {}

  // Whether windows of several taps have room in the lanes.
  static bool serves(const Geometry& g) { return g.joined * windows_in_lanes(g) > 1; }

  // grad_x[windows under the block that `owns(first pixel of a window, or of its row)` says] += filter . grad_y
  template <class Owns>
  void add(const PixelClass& c, const Block& block, Owns&& owns) const {
    const Places places = windows.of(c, block.pixel0);
    const float* filter = cache.get(omp_get_thread_num(), c.index, 0, 1);
    for (int64_t r = 0; r < g.runs; r += at_once) add_runs(block, places, r, filter + r / at_once * f.run_pitch, owns);
  }

 private:
  // A window that is not one piece of memory: it is summed apart, and then added pixel by pixel.
  struct BrokenWindow {
    int64_t output;
    int32_t place;
  };

  // Windows r .. r + at_once - 1 of all pixels of a block.
  template <class Owns>
  void add_runs(const Block& block, const Places& places, int64_t r, const float* filter, Owns&& owns) const {
    const int me = omp_get_thread_num();
    const int64_t in_step = g.in_pixels * g.p.in_channels, out_step = g.out_pixels * g.p.out_channels;
    const int64_t images = block.images();
    float* first_x = grad_x + block.image0 * in_step;
    const float* first_y = grad_y + block.image0 * out_step;
    float* nowhere = sums.of(me);   // for windows that are padding, or others'
    BrokenWindow* apart = broken.of(me);
    const float** from = sources.of(me);
    float** to = targets.of(me);    // [at_once][block_rows]
    int64_t count = 0, broken_count = 0;
    float* sum = nowhere + kWidth;   // of a broken window in the first of the images
    for (int64_t q = 0; q < block.pixel1 - block.pixel0; ++q) {
      bool is_seen = false;
      for (int64_t w = 0; w < at_once; ++w) {
        const int32_t place = places.in[q * g.runs + r + w];
        float** target = to + w * g.block_rows + count;
        if (place == kPadding || !owns(place >= 0 ? place : row_of_broken(place))) {
          place_in_images(target, nowhere, 0, images);
          continue;
        }
        is_seen = true;
        if (place >= 0) {
          place_in_images(target, first_x + place * g.p.in_channels, in_step, images);
          continue;
        }
        apart[broken_count++] = {places.out[q], place};
        place_in_images(target, sum, kWidth, images);
        fill_zero(sum, images * kWidth);
        sum += images * kWidth;
      }
      if (!is_seen) continue;
      place_in_images(from + count, first_y + places.out[q] * g.p.out_channels, out_step, images);
      count += images;
    }
    add_tiles(filter, count, from, to);
    sum = nowhere + kWidth;
    for (int64_t i = 0; i < broken_count; ++i, sum += images * kWidth) add_window(apart[i], sum, first_x, images);
  }

  CONTCONV_APART void add_tiles(const float* filter, int64_t count, const float* const* from, float* const* to) const {
    const int64_t parts = at_once, window = g.window, depth = g.group_out, pitch = g.block_rows;
    for_each_tile(count, ceil_div(parts * window, kLanes), [&](int64_t first, auto tile_rows, auto vecs) {
      Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
      dot_tile(acc, from + first, 0, 1, 0, depth, filter, 0);
      add_lanes(acc, parts, window, [&](int i, int64_t part) { return to[part * pitch + first + i]; });
    });
  }

  // to[images] += the sums of a broken window, which are kWidth apart
  void add_window(const BrokenWindow& window, const float* sum, float* to, int64_t images) const {
    const int64_t channels = g.p.in_channels, in_step = g.in_pixels * channels;
    for (int64_t k = 0; k < g.joined; ++k, sum += channels) {
      const int64_t pixel = windows.pixel(window.output, window.place, k);
      if (pixel < 0) continue;
      for (int64_t c = 0; c < channels; c += kLanes)
        for (int64_t n = 0; n < images; ++n) {
          float* target = to + n * in_step + pixel * channels + c;
          const Vec total = load_lanes(target, channels - c) + load_lanes(sum + n * kWidth + c, channels - c);
          store_lanes(target, total, channels - c);
        }
    }
  }

  const Geometry& g;
  const Windows& windows;
  const float* grad_y;
  float* grad_x;
  const int64_t at_once;            // windows whose taps are lanes
  const Filters f;
  const FilterCache cache;
  const PerThread<const float*> sources;
  const PerThread<float*> targets;
  const PerThread<BrokenWindow> broken;
  const PerThread<float> sums;      // of broken windows, kWidth apart, and a place for what nobody needs
};

}  // namespace
}  // namespace contconv
