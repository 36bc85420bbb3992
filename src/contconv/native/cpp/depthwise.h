// Depthwise convolution by given filters, one channel to one channel: lanes run along the channels, and there is
// nothing for a register tile to share, so that memory decides.
#pragma once
#include <omp.h>

#include "geometry.h"
#include "tile.h"

namespace contconv {
namespace {

class Depthwise {
 public:
  Depthwise(const Geometry& geometry, const ContconvInputs& inputs)
      : g(geometry), in(inputs), channels(g.p.in_channels), columns(ceil_div(channels, kLanes)),
        scratch(g.p.threads, 2 * g.taps) {}

  static bool serves(const Geometry& g) {
    return g.p.rank == 0 && g.group_in == 1 && g.group_out == 1 && g.p.groups > 1;
  }

  void forward(float* y) const {
    const int64_t rows = g.p.batch * g.p.out[0] * g.p.out[1];
#pragma omp parallel for num_threads(g.team(g.work)) schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
      for_each_pixel(row, [&](const Pixel& pixel) {
        for (int64_t c = 0; c < channels; c += kLanes) {
          const int64_t lanes = channels - c;
          Vec sum = in.bias ? load_lanes(in.bias + c, lanes) : Vec{};
          for (int64_t t = 0; t < pixel.taps; ++t)
            sum += load_lanes(in.x + pixel.source[t] + c, lanes) * load_lanes(in.weights + pixel.filter[t] + c, lanes);
          store_lanes(y + pixel.out + c, sum, lanes);
        }
      });
    }
  }

  // Every thread owns some images or, where they are few, some channels of each.
  void grad_input(float* grad_x) const {
    const int64_t parts = g.p.batch >= g.p.threads ? 1 : columns, rows = g.p.out[0] * g.p.out[1];
#pragma omp parallel for num_threads(g.team(g.work)) schedule(static)
    for (int64_t i = 0; i < g.p.batch * parts; ++i) {
      const int64_t image = i / parts, part = i % parts;
      const int64_t low = part * columns / parts * kLanes;
      const int64_t high = least(channels, (part + 1) * columns / parts * kLanes);
      for (int64_t pixel = image * g.in_pixels; pixel < (image + 1) * g.in_pixels; ++pixel)
        fill_zero(grad_x + pixel * channels + low, high - low);
      for (int64_t row = image * rows; row < (image + 1) * rows; ++row) {
        for_each_pixel(row, [&](const Pixel& pixel) {
          for (int64_t c = low; c < high; c += kLanes) {
            const int64_t lanes = channels - c;
            const Vec seed = load_lanes(in.grad_y + pixel.out + c, lanes);
            for (int64_t t = 0; t < pixel.taps; ++t) {
              float* to = grad_x + pixel.source[t] + c;
              const Vec weight = load_lanes(in.weights + pixel.filter[t] + c, lanes);
              store_lanes(to, load_lanes(to, lanes) + seed * weight, lanes);
            }
          }
        });
      }
    }
  }

  // Every thread owns some channels of some rows of taps of some classes.
  void grad_filters(float* to) const {
    const int64_t leading = g.p.taps[0] * g.p.taps[1], shares = g.classes * leading * columns;
#pragma omp parallel for num_threads(g.team(g.work)) schedule(dynamic, 1)
    for (int64_t i = 0; i < shares; ++i) {
      const PixelClass c = g.pixel_class(i / columns / leading);
      const int64_t k = i / columns % leading, channel = i % columns * kLanes;
      for_each_piece<kTaps>(g.p.taps[2], [&](int64_t first, auto taps) {
        Tile<decltype(taps)::value, 1> sum;
        for (int64_t image = 0; image < g.p.batch; ++image)
          add_image(sum, c, image, k / g.p.taps[1], k % g.p.taps[1], first, channel);
        float* filter = to + ((c.index * leading + k) * g.p.taps[2] + first) * channels + channel;
        sum.for_each([&](int t, int, Vec value) { store_lanes(filter + t * channels, value, channels - channel); });
      });
    }
  }

 private:
  static constexpr int kTaps = 6;   // sums of neighbouring taps that are made at once

  // An output pixel and those of its taps that have a source, as offsets into y, x and the filters.
  struct Pixel {
    int64_t out, taps;
    const int64_t *source, *filter;
  };

  // The pixels of one row of outputs, counted over the batch.
  template <class Body>
  CONTCONV_INLINE void for_each_pixel(int64_t row, Body&& body) const {
    const Axis &a0 = g.axis[0], &a1 = g.axis[1], &a2 = g.axis[2];
    const int64_t image = row / (a0.out * a1.out), o0 = row / a1.out % a0.out, o1 = row % a1.out;
    int64_t *source = scratch.of(omp_get_thread_num()), *filter = source + g.taps;
    for (int64_t o2 = 0; o2 < a2.out; ++o2) {
      const int32_t* s2 = a2.sources(o2);
      int64_t found = 0, weights = g.class_of(o0, o1, o2) * g.taps * channels;
      for (int64_t k = 0; k < a0.taps * a1.taps; ++k) {
        const int64_t line = line_of(image, a0.sources(o0)[k / a1.taps], a1.sources(o1)[k % a1.taps]);
        for (int64_t k2 = 0; k2 < a2.taps; ++k2, weights += channels) {
          source[found] = (line + s2[k2]) * channels;
          filter[found] = weights;
          found += line >= 0 && s2[k2] >= 0;
        }
      }
      body(Pixel{(row * a2.out + o2) * channels, found, source, filter});
    }
  }

  // The first pixel of a line of input, counted over the batch, or -1 where it is padding.
  int64_t line_of(int64_t image, int64_t i0, int64_t i1) const {
    return i0 < 0 || i1 < 0 ? -1 : ((image * g.p.in[0] + i0) * g.p.in[1] + i1) * g.p.in[2];
  }

  // sum[t] += sum over the pixels of a class in an image of x under tap (k0, k1, first + t) * grad_y
  template <int Taps>
  CONTCONV_APART void add_image(Tile<Taps, 1>& sum, const PixelClass& c, int64_t image, int64_t k0, int64_t k1,
                                int64_t first, int64_t channel) const {
    const int64_t lanes = channels - channel;
    Tile<Taps, 1> part;   // an image at a time: rounding errors grow with the length of a running sum
    for (int64_t j = 0; j < c.count[0] * c.count[1]; ++j) {
      const int64_t o0 = c.outputs[0][j / c.count[1]], o1 = c.outputs[1][j % c.count[1]];
      const int64_t line = line_of(image, g.axis[0].sources(o0)[k0], g.axis[1].sources(o1)[k1]);
      if (line < 0) continue;
      const float* x = in.x + line * channels + channel;
      const float* grad_y = in.grad_y + ((image * g.p.out[0] + o0) * g.p.out[1] + o1) * g.p.out[2] * channels + channel;
      for (int64_t j2 = 0; j2 < c.count[2]; ++j2) {
        const int64_t o2 = c.outputs[2][j2];
        const int32_t* s2 = g.axis[2].sources(o2) + first;
        const Vec seed = load_lanes(grad_y + o2 * channels, lanes);
#pragma GCC unroll 8
        for (int t = 0; t < Taps; ++t)
          if (s2[t] >= 0) part.at[t][0] += seed * load_lanes(x + s2[t] * channels, lanes);
      }
    }
    for (int t = 0; t < Taps; ++t) sum.at[t][0] += part.at[t][0];
  }

  const Geometry& g;
  const ContconvInputs& in;
  const int64_t channels, columns;
  const PerThread<int64_t> scratch;
};

}  // namespace
}  // namespace contconv
