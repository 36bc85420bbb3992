// Depthwise convolution by given filters, one channel to one channel: lanes run along the channels, and there is
// nothing for a register tile to share, so that memory decides.
#pragma once
#include <omp.h>

#include "geometry.h"

namespace contconv {
namespace {

class Depthwise {
 public:
  Depthwise(const Geometry& geometry, const ContconvInputs& inputs)
      : g(geometry), in(inputs), channels(g.p.in_channels), columns(ceil_div(channels, kLanes)) {}

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
          for_each_tap(pixel, [&](int64_t source, const float* filter) {
            sum += load_lanes(in.x + source * channels + c, lanes) * load_lanes(filter + c, lanes);
          });
          store_lanes(y + pixel.out * channels + c, sum, lanes);
        }
      });
    }
  }

  // Every thread owns some channels of some images.
  void grad_input(float* grad_x) const {
#pragma omp parallel for num_threads(g.team(g.work)) schedule(static)
    for (int64_t i = 0; i < g.p.batch * columns; ++i) {
      const int64_t image = i / columns, c = i % columns * kLanes, lanes = channels - c;
      for (int64_t pixel = image * g.in_pixels; pixel < (image + 1) * g.in_pixels; ++pixel)
        store_lanes(grad_x + pixel * channels + c, Vec{}, lanes);
      const int64_t rows = g.p.out[0] * g.p.out[1];
      for (int64_t row = image * rows; row < (image + 1) * rows; ++row) {
        for_each_pixel(row, [&](const Pixel& pixel) {
          const Vec seed = load_lanes(in.grad_y + pixel.out * channels + c, lanes);
          for_each_tap(pixel, [&](int64_t source, const float* filter) {
            float* to = grad_x + source * channels + c;
            store_lanes(to, load_lanes(to, lanes) + seed * load_lanes(filter + c, lanes), lanes);
          });
        });
      }
    }
  }

  // Every thread owns some channels of some taps of some classes.
  void grad_filters(float* to) const {
    const int64_t leading = g.p.taps[0] * g.p.taps[1];
#pragma omp parallel for num_threads(g.team(g.work)) schedule(dynamic, 1)
    for (int64_t i = 0; i < g.classes * leading; ++i) {
      const PixelClass c = g.pixel_class(i / leading);
      for (int64_t column = 0; column < columns; ++column)
        for (int64_t k2 = 0; k2 < g.p.taps[2]; ++k2)
          sum_over_pixels(c, i % leading / g.p.taps[1], i % leading % g.p.taps[1], k2, column * kLanes, to);
    }
  }

 private:
  // An output pixel: its place, the rows of input under its leading taps, and its filter.
  struct Pixel {
    int64_t out, image;           // counted over the batch
    const int32_t* sources[3];
    const float* filter;          // [T][channels]
  };

  template <class Body>
  void for_each_pixel(int64_t row, Body&& body) const {
    const Axis &a0 = g.axis[0], &a1 = g.axis[1], &a2 = g.axis[2];
    const int64_t image = row / (a0.out * a1.out), o0 = row / a1.out % a0.out, o1 = row % a1.out;
    for (int64_t o2 = 0; o2 < a2.out; ++o2)
      body(Pixel{row * a2.out + o2, image, {a0.sources(o0), a1.sources(o1), a2.sources(o2)},
                 in.weights + g.class_of(o0, o1, o2) * g.taps * channels});
  }

  // The input pixel at one index per axis (counted over the batch), or -1 where one of them is padding.
  int64_t source_of(int64_t image, int64_t i0, int64_t i1, int64_t i2) const {
    if (i0 < 0 || i1 < 0 || i2 < 0) return -1;
    return ((image * g.p.in[0] + i0) * g.p.in[1] + i1) * g.p.in[2] + i2;
  }

  template <class Body>
  CONTCONV_INLINE void for_each_tap(const Pixel& pixel, Body&& body) const {
    const float* filter = pixel.filter;
    for (int64_t k0 = 0; k0 < g.p.taps[0]; ++k0)
      for (int64_t k1 = 0; k1 < g.p.taps[1]; ++k1)
        for (int64_t k2 = 0; k2 < g.p.taps[2]; ++k2, filter += channels) {
          const int64_t source =
              source_of(pixel.image, pixel.sources[0][k0], pixel.sources[1][k1], pixel.sources[2][k2]);
          if (source >= 0) body(source, filter);
        }
  }

  void sum_over_pixels(const PixelClass& c, int64_t k0, int64_t k1, int64_t k2, int64_t channel, float* to) const {
    const int64_t lanes = channels - channel;
    Vec sum{};
    for (int64_t image = 0; image < g.p.batch; ++image) {
      Vec part{};   // an image at a time: rounding errors grow with the length of a running sum
      for (int64_t j0 = 0; j0 < c.count[0]; ++j0) {
        const int64_t o0 = c.outputs[0][j0];
        for (int64_t j1 = 0; j1 < c.count[1]; ++j1) {
          const int64_t o1 = c.outputs[1][j1];
          for (int64_t j2 = 0; j2 < c.count[2]; ++j2) {
            const int64_t o2 = c.outputs[2][j2];
            const int64_t source = source_of(image, g.axis[0].sources(o0)[k0], g.axis[1].sources(o1)[k1],
                                             g.axis[2].sources(o2)[k2]);
            if (source < 0) continue;
            const int64_t out = ((image * g.p.out[0] + o0) * g.p.out[1] + o1) * g.p.out[2] + o2;
            part += load_lanes(in.x + source * channels + channel, lanes) *
                    load_lanes(in.grad_y + out * channels + channel, lanes);
          }
        }
      }
      sum += part;
    }
    const int64_t tap = (k0 * g.p.taps[1] + k1) * g.p.taps[2] + k2;
    store_lanes(to + (c.index * g.taps + tap) * channels + channel, sum, lanes);
  }

  const Geometry& g;
  const ContconvInputs& in;
  const int64_t channels, columns;
};

}  // namespace
}  // namespace contconv
