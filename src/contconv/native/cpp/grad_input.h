// Algorithm "filters", gradient of x: every tap of every class scatters grad_y . filter onto the input pixels, one tap
// after the other or, where there are few input channels, all taps at once.
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

  Territories(const Geometry& g, int64_t panels_, bool filters_are_at_hand) : images(g.p.batch), panels(panels_) {
    const int64_t threads = g.p.threads, rows_per_class = images * g.out_pixels / most(1, g.classes);
    const bool filters_are_cheap = filters_are_at_hand || rows_per_class >= 8 * threads * most(1, g.p.rank);
    image_parts = filters_are_cheap ? least(images, 4 * threads) : 1;
    panel_parts = image_parts >= threads ? 1 : least(panels, 4 * threads);
    if (image_parts * panel_parts < threads) image_parts = least(images, ceil_div(threads, panel_parts));
    axis = g.p.in[0] > g.p.in[1] ? 0 : 1;
    if (g.p.in[2] > g.p.in[axis]) axis = 2;
    length = g.p.in[axis];
    bands = least(length, ceil_div(threads, most(1, image_parts * panel_parts)));
  }
  int64_t count() const { return image_parts * panel_parts * bands; }

  // Whether an image has more than one owner.
  bool are_shared() const { return panel_parts * bands > 1; }

  Territory operator[](int64_t i) const {
    const int64_t band = i % bands, part = i / bands % panel_parts, image = i / bands / panel_parts;
    return {image * images / image_parts, (image + 1) * images / image_parts, part * panels / panel_parts,
            (part + 1) * panels / panel_parts, band * length / bands, (band + 1) * length / bands};
  }
};

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

// to[lanes] += from[lanes]
inline void add_lanes(float* to, const float* from, int64_t lanes) {
  for (int64_t i = 0; i < lanes; i += kLanes)
    store_lanes(to + i, load_lanes(to + i, lanes - i) + load_lanes(from + i, lanes - i), lanes - i);
}

// All that output pixels send to the input, for layers of few input channels: there one tap would fill a vector in part,
// but the channels of all taps, side by side, fill a few.
class Sendings {
 public:
  Sendings(const Filters& filters, bool filters_are_at_hand)
      : f(filters), g(f.g), lanes(g.taps * g.group_in), strips(ceil_div(lanes, kWidth)),
        pay(filters_are_at_hand && save_work()), panels(g.p.threads, pay ? strips * f.rows * kWidth : 0),
        sent(g.p.threads, pay ? g.block_rows * strips * kWidth : 0) {}

  // The filter of a class, all panels of it, as panels whose lanes are taps and channels: [strips][rows][kWidth].
  void take(int thread, const float* filter) const {
    float* to = panels.of(thread);
    fill_zero(to, strips * f.rows * kWidth);
    for (int64_t t = 0; t < g.taps; ++t)
      for (int64_t k = 0; k < f.rows; ++k)
        for (int64_t i = 0; i < g.group_in; ++i) {
          const int64_t lane = t * g.group_in + i;
          const int64_t from = i / kWidth * f.panel_size() + f.tap_start(t) + k * kWidth + i % kWidth;
          to[(lane / kWidth * f.rows + k) * kWidth + lane % kWidth] = filter[from];
        }
  }

  // What `count` pixels of grad_y send through the filter that was taken: [count][taps][channels], `pitch` apart.
  CONTCONV_APART const float* of(int thread, const float* const* pixels, int64_t count) const {
    for (int64_t s = 0; s < strips; ++s) {
      const float* panel = panels.of(thread) + s * f.rows * kWidth;
      float* to = sent.of(thread) + s * kWidth;
      for_each_tile(count, ceil_div(least(kWidth, lanes - s * kWidth), kLanes), [&](int64_t first, auto rows, auto vecs) {
        Tile<decltype(rows)::value, decltype(vecs)::value> acc;
        dot_tile(acc, pixels + first, 0, 1, 0, f.rows, panel, 0);
        acc.for_each([&](int i, int v, Vec value) { store(to + (first + i) * pitch() + v * kLanes, value); });
      });
    }
    return sent.of(thread);
  }

  int64_t pitch() const { return strips * kWidth; }

 private:
  // What is sent is written and read once more, and filters are packed once more.
  bool save_work() const {
    return g.p.groups == 1 && 4 * ceil_div(lanes, kLanes) <= 3 * g.taps * ceil_div(g.group_in, kLanes);
  }

  const Filters& f;
  const Geometry& g;
  const int64_t lanes, strips;

 public:
  const bool pay;

 private:
  const PerThread<float> panels, sent;
};

class InputGradient {
 public:
  InputGradient(const Geometry& geometry, const Windows& windows_, const ContconvInputs& inputs, float* grad_x_)
      : g(geometry), windows(windows_), in(inputs), grad_x(grad_x_), f(g, inputs, Lanes::input), cache(f),
        sendings(f, cache.resident), territories(g, sendings.pay ? 1 : f.panels.count(), cache.resident),
        sources(g.p.threads, g.block_rows), targets(g.p.threads, g.block_rows),
        pixels(g.p.threads, g.block_rows) {}

  void run() const {
    const int64_t count = g.p.batch * g.in_pixels, channels = g.p.in_channels;
#pragma omp parallel num_threads(g.team(g.work))
    {
      if (territories.are_shared()) {
#pragma omp for schedule(static)
        for (int64_t n = 0; n < ceil_div(count, 64); ++n)
          fill_zero(grad_x + n * 64 * channels, least(64, count - n * 64) * channels);
      }
#pragma omp for schedule(dynamic, 1)
      for (int64_t i = 0; i < territories.count(); ++i) scatter_territory(territories[i]);
    }
  }

 private:
  static constexpr int64_t kCellBytes = 256 << 10;

  void scatter_territory(const Territory& mine) const {
    Cells cells = cache.resident ? Cells::of_size(g, kCellBytes) : Cells::whole(g);
    cells.images = mine.image1 - mine.image0;
    int64_t zeroed = 0;
    for (int64_t i = 0; i < cells.count(); ++i) {
      Cell cell = cells[i];
      cell.image0 += mine.image0, cell.image1 += mine.image0;
      if (!territories.are_shared()) zeroed = zero_rows(cell, cell.low == 0 ? 0 : zeroed);
      for (int64_t c = 0; c < g.classes; ++c)
        for (int64_t panel = mine.panel0; panel < mine.panel1; panel += cache.at_once)
          scatter_class(mine, cell, c, panel, least(mine.panel1, panel + cache.at_once));
    }
  }

  // Sets to zero what a cell adds to, from row `first` of its images on, just before it does so: zeros that were
  // written long before would come back from memory. Returns the first row that is left.
  int64_t zero_rows(const Cell& cell, int64_t first) const {
    const Axis& axis = g.axis[g.band_axis];
    const int64_t row = g.in_pixels / axis.in * g.p.in_channels;
    int64_t last = first;
    for (int64_t i = cell.low * (1 + axis.taps); i < cell.high * (1 + axis.taps); ++i)
      if (i % (1 + axis.taps) > 0) last = most(last, axis.table[i] + 1);
    const bool rows_are_outermost = g.band_axis == 0 || g.p.in[0] * (g.band_axis == 1 ? 1 : g.p.in[1]) == 1;
    if (cell.high == axis.out || !rows_are_outermost) last = axis.in;
    for (int64_t n = cell.image0; n < cell.image1; ++n)
      fill_zero(grad_x + n * g.in_pixels * g.p.in_channels + first * row, (last - first) * row);
    return last;
  }

  void scatter_class(const Territory& mine, const Cell& cell, int64_t class_index, int64_t panel0,
                     int64_t panel1) const {
    const PixelClass c = g.pixel_class(class_index, cell.low, cell.high);
    if (c.pixels == 0) return;
    const int me = omp_get_thread_num();
    const float* filter = cache.get(me, class_index, panel0, panel1);
    const Pairs pairs{sources.of(me), targets.of(me)};
    const Blocks blocks(g, c, cell.image0, cell.image1);
    if (sendings.pay) sendings.take(me, filter);
    for (int64_t b = 0; b < blocks.count(); ++b) {
      const Places places = windows.of(c, blocks[b].pixel0);
      if (sendings.pay) {
        scatter_sendings(mine, blocks[b], places, pairs);
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
      for (int64_t n = 0; n < block.images(); ++n, ++count) {
        pairs.from[count] = from + n * out_step;
        pairs.to[count] = to + n * in_step;
      }
    }
    return count;
  }

  // All taps of a block at once. A pair is an output pixel and an image of grad_x here.
  void scatter_sendings(const Territory& mine, const Block& block, const Places& places, const Pairs& pairs) const {
    const int64_t in_step = g.in_pixels * g.p.in_channels, out_step = g.out_pixels * g.p.out_channels;
    const int me = omp_get_thread_num();
    int64_t* pixel = pixels.of(me);
    int64_t count = 0;
    for (int64_t q = 0; q < block.pixel1 - block.pixel0; ++q) {
      if (!reaches(mine, places, q)) continue;
      for (int64_t n = block.image0; n < block.image1; ++n, ++count) {
        pairs.from[count] = in.grad_y + n * out_step + places.out[q] * g.p.out_channels;
        pairs.to[count] = grad_x + n * in_step;
        pixel[count] = q;
      }
    }
    const float* sent = sendings.of(me, pairs.from, count);
    for (int64_t i = 0; i < count; ++i, sent += sendings.pitch())
      for (int64_t r = 0; r < g.runs; ++r)
        add_window(mine, places.out[pixel[i]], places.in[pixel[i] * g.runs + r], sent + r * g.window, pairs.to[i]);
  }

  bool reaches(const Territory& mine, const Places& places, int64_t q) const {
    if (territories.bands == 1) return true;
    for (int64_t t = 0; t < g.taps; ++t) {
      const int64_t pixel = windows.pixel(places.out[q], places.in[q * g.runs + t / g.joined], t % g.joined);
      if (pixel >= 0 && owns(mine, pixel)) return true;
    }
    return false;
  }

  void add_window(const Territory& mine, int64_t output, int32_t place, const float* sent, float* image) const {
    const int64_t channels = g.p.in_channels;
    if (place >= 0 && territories.bands == 1) return add_lanes(image + place * channels, sent, g.window);
    for (int64_t k = 0; k < g.joined; ++k) {
      const int64_t pixel = windows.pixel(output, place, k);
      if (pixel >= 0 && owns(mine, pixel)) add_lanes(image + pixel * channels, sent + k * channels, channels);
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
  const Filters f;
  const FilterCache cache;
  const Sendings sendings;
  const Territories territories;
  const PerThread<const float*> sources;
  const PerThread<float*> targets;
  const PerThread<int64_t> pixels;   // [block_rows]: which pixel of the block sends
};

}  // namespace
}  // namespace contconv
