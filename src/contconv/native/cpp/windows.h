// The input under the pixels of a block, in windows: taps along the last axis lie side by side in memory, so that a
// register tile runs through all of them at once.
#pragma once
#include <omp.h>

#include "geometry.h"

namespace contconv {
namespace {

// A window's place within an image: its first pixel, or, where it is not one piece of memory, one of these.
constexpr int32_t kPadding = -1;                               // nothing of it is inside
inline int32_t broken(int64_t row) { return static_cast<int32_t>(-2 - row); }   // some is: the first pixel of its row
inline int64_t row_of_broken(int32_t place) { return -2 - static_cast<int64_t>(place); }

// Some pixels of a class, in order, and the places of their windows.
struct Places {
  const int32_t* out;   // [pixels]: the output pixel
  const int32_t* in;    // [pixels][runs]
};

// The places of all windows of an image, class by class: the same for every image, so they are found once.
class Windows {
 public:
  explicit Windows(const Geometry& geometry)
      : g(geometry), first(g.classes), out(g.out_pixels), in(g.out_pixels * g.runs) {
    for (int64_t c = 0, next = 0; c < g.classes; ++c) {
      first[c] = next;
      next += g.pixel_class(c).pixels;
    }
#pragma omp parallel for num_threads(g.team(16 * g.out_pixels * g.runs)) schedule(static)
    for (int64_t c = 0; c < g.classes; ++c)
      find(g.pixel_class(c), out.data() + first[c], in.data() + first[c] * g.runs);
  }

  // From pixel `pixel` of the class on.
  Places of(const PixelClass& c, int64_t pixel) const {
    const int64_t start = first[c.index] + pixel;
    return {out.data() + start, in.data() + start * g.runs};
  }

  // The input pixel under tap k of a window of an output pixel, or -1.
  int64_t pixel(int64_t output, int32_t place, int64_t k) const {
    if (place >= 0) return place + k;
    if (place == kPadding) return -1;
    const int32_t column = g.axis[2].sources(output % g.p.out[2])[k];
    return column < 0 ? -1 : row_of_broken(place) + column;
  }

 private:
  void find(const PixelClass& c, int32_t* output, int32_t* place) const {
    const Axis &a0 = g.axis[0], &a1 = g.axis[1], &a2 = g.axis[2];
    for (int64_t j0 = 0; j0 < c.count[0]; ++j0) {
      for (int64_t j1 = 0; j1 < c.count[1]; ++j1) {
        const int64_t o0 = c.outputs[0][j0], o1 = c.outputs[1][j1];
        const int32_t *s0 = a0.sources(o0), *s1 = a1.sources(o1);
        for (int64_t j2 = 0; j2 < c.count[2]; ++j2) {
          const int64_t o2 = c.outputs[2][j2];
          const int32_t* s2 = a2.sources(o2);
          *output++ = static_cast<int32_t>((o0 * a1.out + o1) * a2.out + o2);
          for (int64_t k = 0; k < a0.taps * a1.taps; ++k) {
            const int64_t i0 = s0[k / a1.taps], i1 = s1[k % a1.taps];
            place = place_row(i0 < 0 || i1 < 0 ? -1 : (i0 * a1.in + i1) * a2.in, s2, place);
          }
        }
      }
    }
  }

  // The places of the windows in one row of pixels (-1: the row is padding).
  int32_t* place_row(int64_t row, const int32_t* columns, int32_t* to) const {
    if (g.joined > 1) {
      *to++ = row < 0 ? kPadding : is_whole(columns, g.joined) ? static_cast<int32_t>(row + columns[0]) : broken(row);
    } else {
      for (int64_t k = 0; k < g.p.taps[2]; ++k)
        *to++ = row < 0 || columns[k] < 0 ? kPadding : static_cast<int32_t>(row + columns[k]);
    }
    return to;
  }

  const Geometry& g;
  const Buffer<int64_t> first;   // [classes]: the first of its pixels
  const Buffer<int32_t> out;     // [out_pixels]
  const Buffer<int32_t> in;      // [out_pixels][runs]
};

// to[n] = first + n * step: the same place in one image after the other
template <class T>
inline void place_in_images(T** to, T* first, int64_t step, int64_t images) {
  for (int64_t n = 0; n < images; ++n, first += step) to[n] = first;
}

// Where the rows of a block are, for register tiles: row i belongs to pixel i / images and image i % images.
struct BlockRows {
  const float** in;   // [runs][block_rows]: the window, in x or copied from there
  int64_t* out;       // [block_rows]: the output pixel, counted over the whole batch
  int64_t count;
};

// The rows of one block after the other, for each thread.
class RowScratch {
 public:
  RowScratch(const Geometry& geometry, const Windows& windows_)
      : g(geometry), windows(windows_), in_rows(g.p.threads, g.runs * g.block_rows),
        out_rows(g.p.threads, g.block_rows), zeros(g.joined * g.p.in_channels),
        copies(g.p.threads, g.joined > 1 ? g.block_rows * g.runs * g.window : 0) {
    fill_zero(zeros.data(), g.joined * g.p.in_channels);
  }

  BlockRows rows_of(int thread, const PixelClass& c, const Block& block, const float* x) const {
    const Places places = windows.of(c, block.pixel0);
    const BlockRows rows{in_rows.of(thread), out_rows.of(thread), block.rows()};
    const int64_t images = block.images(), pixels = block.pixel1 - block.pixel0;
    const int64_t in_step = g.in_pixels * g.p.in_channels, out_step = g.out_pixels, channels = g.p.in_channels;
    const int64_t runs = g.runs, block_rows = g.block_rows, window = g.window;
    const float *first = x + block.image0 * in_step, *padding = zeros.data();
    float* copy = copies.of(thread);
    for (int64_t q = 0; q < pixels; ++q)
      for (int64_t n = 0; n < images; ++n)
        rows.out[q * images + n] = (block.image0 + n) * out_step + places.out[q];
    for (int64_t r = 0; r < runs; ++r) {
      const float** to = rows.in + r * block_rows;
      for (int64_t q = 0; q < pixels; ++q, to += images) {
        const int32_t place = places.in[q * runs + r];
        if (place >= 0) {
          place_in_images(to, first + place * channels, in_step, images);
        } else if (place == kPadding) {
          place_in_images(to, padding, 0, images);
        } else {
          place_in_images<const float>(to, copy, window, images);
          copy_window(first, places.out[q], place, images, copy);
          copy += images * window;
        }
      }
    }
    return rows;
  }

 private:
  // to[images][window] = a broken window put together, zeros where it is padding
  void copy_window(const float* x, int64_t output, int32_t place, int64_t images, float* to) const {
    const int64_t channels = g.p.in_channels, in_step = g.in_pixels * channels, window = g.window;
    for (int64_t k = 0; k < g.joined; ++k, to += channels) {
      const int64_t pixel = windows.pixel(output, place, k);
      const float* from = pixel < 0 ? zeros.data() : x + pixel * channels;
      const int64_t step = pixel < 0 ? 0 : in_step;
      for (int64_t c = 0; c < channels; c += kLanes)
        for (int64_t n = 0; n < images; ++n)
          store_lanes(to + n * window + c, load_lanes(from + n * step + c, channels - c), channels - c);
    }
  }

  const Geometry& g;
  const Windows& windows;
  const PerThread<const float*> in_rows;
  const PerThread<int64_t> out_rows;
  const Buffer<float> zeros;
  const PerThread<float> copies;
};

}  // namespace
}  // namespace contconv
