// The output cut into cells.
#pragma once
#include "geometry.h"

namespace contconv {
namespace {

// A piece of the output that is worked on as a whole, so that its part of the input is read from memory once: some
// images, and a band of outputs along the banded axis.
struct Cell {
  int64_t image0, image1, low, high;
};

// Cells whose input takes about so many bytes, or less where there would be few of them; but with enough pixels of each
// class for register tiles. Their bounds depend on shapes alone, never on the number of threads.
class Cells {
 public:
  Cells(const Geometry& g, int64_t most_bytes)
      : images_per_cell(1), images(g.p.batch), length(g.axis[g.band_axis].out), band(most(1, length)) {
    const int64_t image_bytes = most(1, 4 * g.in_pixels * g.p.in_channels);
    const int64_t bytes = least(most_bytes, image_bytes * images / kEnough);
    const int64_t pixels = kFewestRows * g.classes;
    images_per_cell = most(1, most(bytes / image_bytes, ceil_div(pixels, most(1, g.out_pixels))));
    images_per_cell = most(1, least(images_per_cell, images));
    if (images_per_cell > 1) return;
    const int64_t row_pixels = most(1, g.out_pixels / band);
    const int64_t rows = most(length * bytes / image_bytes, ceil_div(pixels, row_pixels));
    band = ceil_div(band, most(1, length / most(1, rows)));
  }

  int64_t bands() const { return ceil_div(length, band); }   // of an image
  int64_t image_groups() const { return ceil_div(images, images_per_cell); }
  int64_t count() const { return bands() * image_groups(); }
  int64_t longest_band() const { return band; }

  Cell operator[](int64_t i) const {
    const int64_t image = i / bands() * images_per_cell, low = i % bands() * band;
    return {image, least(images, image + images_per_cell), low, least(length, low + band)};
  }

  int64_t images_per_cell;

 private:
  static constexpr int64_t kEnough = 16, kFewestRows = 48;
  int64_t images, length, band;
};

}  // namespace
}  // namespace contconv
