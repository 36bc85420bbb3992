// Algorithm "filters", forward: make the filter of a class, apply it to every pixel of the class in the whole batch.
#pragma once
#include <omp.h>

#include "filters.h"

namespace contconv {
namespace {

// Where the rows of a block are, for register tiles: row i belongs to pixel i / images and image i % images.
struct BlockRows {
  const float** in;   // [T][block_rows]: the input pixel under each tap, a row of zeros where that is padding
  int64_t* out;       // [block_rows]: the output pixel, counted over the whole batch
  int64_t count;
};

inline void rows_of_block(const Geometry& g, const Block& block, const BlockOffsets& offsets, const float* x,
                          const float* zeros, BlockRows& rows) {
  const int64_t images = block.images(), pixels = block.pixel1 - block.pixel0, channels = g.p.in_channels;
  const int64_t image_step = g.in_pixels * channels;
  const float* first = x + block.image0 * image_step;
  rows.count = block.rows();
  for (int64_t q = 0; q < pixels; ++q) {
    const int64_t out = block.image0 * g.out_pixels + offsets.out[q], *source = offsets.in + q * g.taps;
    const float** to = rows.in + q * images;
    for (int64_t t = 0; t < g.taps; ++t, to += g.block_rows) to[0] = source[t] < 0 ? zeros : first + source[t] * channels;
    rows.out[q * images] = out;
  }
  // The other images differ by a constant; padding stays where it is.
  for (int64_t n = 1; n < images; ++n) {
    for (int64_t q = 0; q < pixels; ++q) {
      const float** to = rows.in + q * images;
      for (int64_t t = 0; t < g.taps; ++t, to += g.block_rows) to[n] = to[0] == zeros ? zeros : to[0] + n * image_step;
      rows.out[q * images + n] = rows.out[q * images] + n * g.out_pixels;
    }
  }
}

// y[rows of the block, lanes of the panel] = (bias, or where some taps were added before, y) + filter . x over some taps
CONTCONV_APART void apply_taps(const Filters& f, const Panel& panel, const float* filter, const BlockRows& rows,
                               int64_t tap0, int64_t tap1, const float* bias, float* y) {
  const Geometry& g = f.g;
  const int64_t channel = panel.group * g.group_out + panel.first, offset = panel.group * g.group_in;
  for_each_tile(rows.count, panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
    Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
    dot_tile(acc, rows.in + tap0 * g.block_rows + first, g.block_rows, tap1 - tap0, offset, g.group_in,
             filter + tap0 * f.tap_pitch, f.tap_pitch);
    acc.for_each([&](int i, int v, Vec value) {
      const int64_t lanes = panel.lanes - v * kLanes;
      float* to = y + rows.out[first + i] * g.p.out_channels + channel + v * kLanes;
      if (tap0 > 0) {
        value += load_lanes(to, lanes);
      } else if (bias) {
        value += load_lanes(bias + channel + v * kLanes, lanes);
      }
      store_lanes(to, value, lanes);
    });
  });
}

inline void apply_panel(const Filters& f, const Panel& panel, const float* filter, const BlockRows& rows,
                        const float* bias, float* y) {
  const int64_t taps = f.g.taps, at_once = most(1, kLongestSum / f.g.group_in);
  for (int64_t t = 0; t < taps; t += at_once) apply_taps(f, panel, filter, rows, t, least(taps, t + at_once), bias, y);
}

// Scratch of one thread for going through blocks.
class BlockScratch {
 public:
  explicit BlockScratch(const Geometry& geometry)
      : g(geometry), in_rows(g.p.threads, g.taps * g.block_rows), offsets(g.p.threads, (2 + g.taps) * g.block_rows),
        zeros(g.p.in_channels) {
    fill_zero(zeros.data(), g.p.in_channels);
  }
  BlockOffsets offsets_of(int thread) const {
    int64_t* own = offsets.of(thread);
    return {own, own + 2 * g.block_rows};
  }
  BlockRows rows_of(int thread, const PixelClass& c, const Block& block, const float* x) const {
    const BlockOffsets where = offsets_of(thread);
    BlockRows rows{in_rows.of(thread), where.out + g.block_rows, 0};
    offsets_of_block(g, c, block, where);
    rows_of_block(g, block, where, x, zeros.data(), rows);
    return rows;
  }

 private:
  const Geometry& g;
  const PerThread<const float*> in_rows;
  const PerThread<int64_t> offsets;
  const Buffer<float> zeros;
};

class Application {
 public:
  Application(const Geometry& geometry, const ContconvInputs& inputs, float* y_)
      : g(geometry), in(inputs), y(y_), f(g, inputs, Lanes::output), cache(f), scratch(g) {}

  // Few filters: cells are shared out, and each takes all classes. Many: classes are, and each takes the whole batch.
  void run() const {
    const Cells cells = cache.resident ? Cells::of_size(g, kCellBytes) : Cells::whole(g);
    const int64_t shares = cache.resident ? cells.count() : shares_per_class() * g.classes;
#pragma omp parallel for num_threads(g.team(g.work)) schedule(dynamic, 1)
    for (int64_t s = 0; s < shares; ++s) {
      if (cache.resident) {
        for (int64_t c = 0; c < g.classes; ++c) apply_class(cells[s], c, 0, 1);
      } else {
        apply_class(cells[0], s / shares_per_class(), s % shares_per_class(), shares_per_class());
      }
    }
  }

 private:
  static constexpr int64_t kCellBytes = 256 << 10;
  static constexpr int64_t kRowsPerShare = 2048;

  int64_t shares_per_class() const { return most(1, g.p.batch * g.out_pixels / most(1, g.classes) / kRowsPerShare); }

  // Part `part` of `parts` of the blocks of a class within a cell.
  void apply_class(const Cell& cell, int64_t class_index, int64_t part, int64_t parts) const {
    const PixelClass c = g.pixel_class(class_index, cell.low, cell.high);
    if (c.pixels == 0) return;
    const int me = omp_get_thread_num();
    const Blocks blocks(g, c, cell.image0, cell.image1);
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
  const BlockScratch scratch;
};

}  // namespace
}  // namespace contconv
