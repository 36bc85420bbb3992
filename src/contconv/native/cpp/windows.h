// The input under the pixels of a block, in windows: taps along the last axis lie side by side in memory, so that a
// register tile runs through all of them at once.
#pragma once
#include <omp.h>

#include "geometry.h"

namespace contconv {
namespace {

// A window's place within an image: its first pixel, or, where it is not one piece of memory, one of these.
constexpr int64_t kPadding = -1;                               // nothing of it is inside
inline int64_t broken(int64_t row) { return -2 - row; }        // some of it is: the first pixel of its row
inline int64_t row_of_broken(int64_t place) { return -2 - place; }

// The pixels of a block and their windows.
struct Places {
  int64_t* out;              // [pixels]: the output pixel
  int64_t* in;               // [pixels][runs]
  const int32_t** columns;   // [pixels]: the input indices of the taps along the last axis, -1 for padding

  // The input pixel under tap k of a window, or -1.
  int64_t pixel(int64_t q, int64_t place, int64_t k) const {
    if (place >= 0) return place + k;
    if (place == kPadding || columns[q][k] < 0) return -1;
    return row_of_broken(place) + columns[q][k];
  }
};

inline bool is_whole(const int32_t* columns, int64_t count) {
  for (int64_t k = 0; k < count; ++k)
    if (columns[0] < 0 || columns[k] != columns[0] + k) return false;
  return true;
}

inline void find_places(const Geometry& g, const PixelClass& c, const Block& block, const Places& to) {
  const Axis &a0 = g.axis[0], &a1 = g.axis[1], &a2 = g.axis[2];
  int64_t j2 = block.pixel0 % c.count[2], j1 = block.pixel0 / c.count[2] % c.count[1];
  int64_t j0 = block.pixel0 / (c.count[2] * c.count[1]);
  int64_t* in = to.in;
  for (int64_t q = 0; q < block.pixel1 - block.pixel0; ++q) {
    const int64_t o0 = c.outputs[0][j0], o1 = c.outputs[1][j1], o2 = c.outputs[2][j2];
    const int32_t *s0 = a0.sources(o0), *s1 = a1.sources(o1), *s2 = a2.sources(o2);
    const bool whole = is_whole(s2, g.joined);
    to.out[q] = (o0 * a1.out + o1) * a2.out + o2;
    to.columns[q] = s2;
    for (int64_t k0 = 0; k0 < a0.taps; ++k0) {
      for (int64_t k1 = 0; k1 < a1.taps; ++k1) {
        const bool inside = s0[k0] >= 0 && s1[k1] >= 0;
        const int64_t row = (s0[k0] * a1.in + s1[k1]) * a2.in;
        if (g.joined > 1) {
          *in++ = !inside ? kPadding : whole ? row + s2[0] : broken(row);
        } else {
          for (int64_t k2 = 0; k2 < a2.taps; ++k2) *in++ = inside && s2[k2] >= 0 ? row + s2[k2] : kPadding;
        }
      }
    }
    if (++j2 == c.count[2]) {
      j2 = 0;
      if (++j1 == c.count[1]) j1 = 0, ++j0;
    }
  }
}

// Where the rows of a block are, for register tiles: row i belongs to pixel i / images and image i % images.
struct BlockRows {
  const float** in;   // [runs][block_rows]: the window, in x or copied from there
  int64_t* out;       // [block_rows]: the output pixel, counted over the whole batch
  int64_t count;
};

// Scratch of each thread for going through blocks.
class BlockScratch {
 public:
  explicit BlockScratch(const Geometry& geometry)
      : g(geometry), in_rows(g.p.threads, g.runs * g.block_rows), columns(g.p.threads, g.block_rows),
        numbers(g.p.threads, (2 + g.runs) * g.block_rows), zeros(g.joined * g.p.in_channels),
        copies(g.p.threads, g.joined > 1 ? g.block_rows * g.runs * g.window : 0) {
    fill_zero(zeros.data(), g.joined * g.p.in_channels);
  }

  Places places_of(int thread, const PixelClass& c, const Block& block) const {
    int64_t* own = numbers.of(thread);
    const Places places{own, own + 2 * g.block_rows, columns.of(thread)};
    find_places(g, c, block, places);
    return places;
  }

  BlockRows rows_of(int thread, const PixelClass& c, const Block& block, const float* x) const {
    const Places places = places_of(thread, c, block);
    const BlockRows rows{in_rows.of(thread), places.out + g.block_rows, block.rows()};
    const int64_t images = block.images(), image_step = g.in_pixels * g.p.in_channels;
    const float* first = x + block.image0 * image_step;
    float* copy = copies.of(thread);
    for (int64_t q = 0; q < block.pixel1 - block.pixel0; ++q) {
      for (int64_t n = 0; n < images; ++n)
        rows.out[q * images + n] = (block.image0 + n) * g.out_pixels + places.out[q];
      const float** to = rows.in + q * images;
      for (int64_t r = 0; r < g.runs; ++r, to += g.block_rows) {
        const int64_t place = places.in[q * g.runs + r];
        for (int64_t n = 0; n < images; ++n) {
          if (place <= broken(0)) {
            to[n] = copied(first + n * image_step, places, q, place, copy);
            copy += g.window;
          } else {
            to[n] = place == kPadding ? zeros.data() : first + n * image_step + place * g.p.in_channels;
          }
        }
      }
    }
    return rows;
  }

 private:
  // A broken window put together, zeros where it is padding.
  const float* copied(const float* image, const Places& places, int64_t q, int64_t place, float* to) const {
    const int64_t channels = g.p.in_channels;
    for (int64_t k = 0; k < g.joined; ++k) {
      const int64_t pixel = places.pixel(q, place, k);
      const float* from = pixel < 0 ? zeros.data() : image + pixel * channels;
      for (int64_t c = 0; c < channels; c += kLanes)
        store_lanes(to + k * channels + c, load_lanes(from + c, channels - c), channels - c);
    }
    return to;
  }

  const Geometry& g;
  const PerThread<const float*> in_rows;
  const PerThread<const int32_t*> columns;
  const PerThread<int64_t> numbers;
  const Buffer<float> zeros;
  const PerThread<float> copies;
};

}  // namespace
}  // namespace contconv
