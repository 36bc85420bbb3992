// Where things are: classes of output pixels that share a filter, and the input pixels under their taps.
#pragma once
#include <algorithm>

#include "buffer.h"
#include "problem.h"
#include "vec.h"

namespace contconv {
namespace {

struct Axis {
  int64_t in, out, taps, phases;
  const int32_t* table;  // [out][1 + taps]
  int32_t* begin;        // [phases + 1]: outputs of phase p are order[begin[p]] .. order[begin[p + 1] - 1]
  int32_t* order;        // [out], ascending within a phase

  int64_t phase(int64_t o) const { return table[o * (1 + taps)]; }
  const int32_t* sources(int64_t o) const { return table + o * (1 + taps) + 1; }
};

// Whether sources along an axis lie side by side.
inline bool is_whole(const int32_t* columns, int64_t count) {
  for (int64_t k = 0; k < count; ++k)
    if (columns[0] < 0 || columns[k] != columns[0] + k) return false;
  return true;
}

// The output pixels that share one filter: a product of one list of outputs per axis, in every image.
struct PixelClass {
  int64_t index;               // into the leading axes of basis or filters, flattened
  const int32_t* outputs[3];
  int64_t count[3];
  int64_t pixels;              // in one image
};

// Some pixels of a class, in some images. Bounds of `pixel` do not depend on the images taken together, so that
// sums over a block come out the same however images are shared among threads.
struct Block {
  int64_t image0, image1, pixel0, pixel1;
  int64_t images() const { return image1 - image0; }
  int64_t rows() const { return images() * (pixel1 - pixel0); }
};

class alignas(kLine) Geometry {
 public:
  static constexpr int64_t kWorthSharing = 1 << 18, kMuchLonger = 4;

  explicit Geometry(const ContconvProblem& problem)
      : p(problem), index_(2 * (problem.out[0] + problem.out[1] + problem.out[2]) + problem.phases[0] +
                           problem.phases[1] + problem.phases[2] + 3) {
    int32_t* next = index_.data();
    for (int a = 0; a < 3; ++a) {
      axis[a] = Axis{p.in[a], p.out[a], p.taps[a], p.phases[a], p.table[a], next, next + p.phases[a] + 1};
      next += p.phases[a] + 1 + p.out[a];
      sort_by_phase(axis[a]);
    }
    taps = p.taps[0] * p.taps[1] * p.taps[2];
    classes = p.phases[0] * p.phases[1] * p.phases[2];
    in_pixels = p.in[0] * p.in[1] * p.in[2];
    out_pixels = p.out[0] * p.out[1] * p.out[2];
    group_in = p.in_channels / p.groups;
    group_out = p.out_channels / p.groups;
    work = p.batch * out_pixels * taps * p.out_channels * group_in;
    joined = p.groups == 1 ? p.taps[2] : 1;
    runs = taps / joined;
    window = joined * group_in;
    band_axis = p.out[0] > 1 ? 0 : p.out[1] > 1 ? 1 : 2;
    long_axis = band_axis;
    for (int a = band_axis; a < 3; ++a)
      if (p.out[a] >= kMuchLonger * p.out[long_axis]) long_axis = a;
    block_rows = most(kRows, least(96, 4096 / most(taps, 1)) / kRows * kRows);
  }

  PixelClass pixel_class(int64_t index) const { return pixel_class(index, 0, axis[band_axis].out); }

  // The pixels of a class whose output index along the banded axis is in [low, high).
  PixelClass pixel_class(int64_t index, int64_t low, int64_t high) const {
    const int64_t phase[3] = {index / (axis[1].phases * axis[2].phases), index / axis[2].phases % axis[1].phases,
                              index % axis[2].phases};
    PixelClass c{index, {}, {}, 1};
    for (int a = 0; a < 3; ++a) {
      const int32_t* begin = axis[a].order + axis[a].begin[phase[a]];
      const int32_t* end = axis[a].order + axis[a].begin[phase[a] + 1];
      if (a == band_axis) {
        begin = std::lower_bound(begin, end, low);
        end = std::lower_bound(begin, end, high);
      }
      c.outputs[a] = begin;
      c.count[a] = end - begin;
      c.pixels *= c.count[a];
    }
    return c;
  }

  // Calls body(first, last) for output pixels first .. last - 1 of an image, `length` or fewer: all whose index along an
  // axis is in [low, high).
  template <class Body>
  void for_each_run(int along, int64_t low, int64_t high, int64_t length, Body&& body) const {
    int64_t before = 1, after = 1;
    for (int a = 0; a < along; ++a) before *= axis[a].out;
    for (int a = along + 1; a < 3; ++a) after *= axis[a].out;
    for (int64_t n = 0; n < before; ++n) {
      const int64_t first = n * axis[along].out, last = (first + high) * after;
      for (int64_t i = (first + low) * after; i < last; i += length) body(i, least(last, i + length));
    }
  }

  // Threads for a loop of so many elementary operations: to wake others for a little work costs more than the work.
  int team(int64_t operations) const { return operations < kWorthSharing ? 1 : static_cast<int>(p.threads); }

  // The first of the classes of a row of outputs: the others differ by their phase along the last axis.
  int64_t first_class_of(int64_t o0, int64_t o1) const {
    return (axis[0].phase(o0) * axis[1].phases + axis[1].phase(o1)) * axis[2].phases;
  }
  int64_t class_of(int64_t o0, int64_t o1, int64_t o2) const { return first_class_of(o0, o1) + axis[2].phase(o2); }

  const ContconvProblem& p;
  Axis axis[3];
  int64_t taps, classes, in_pixels, out_pixels, group_in, group_out;
  int64_t joined;      // taps along the last axis that lie side by side in memory and are read as one window
  int64_t runs;        // windows of a filter: taps / joined
  int64_t window;      // floats of a window: those of the joined taps, in one group
  int64_t work;        // multiply-adds of the convolution by filters
  int band_axis;       // the outermost axis that has any extent
  int long_axis;       // the same, or another that is much longer
  int64_t block_rows;  // most rows of a block: the pointers and the data of a block should stay in the first cache

 private:
  static void sort_by_phase(const Axis& a) {
    for (int64_t i = 0; i <= a.phases; ++i) a.begin[i] = 0;
    for (int64_t o = 0; o < a.out; ++o) ++a.begin[a.phase(o) + 1];
    for (int64_t i = 0; i < a.phases; ++i) a.begin[i + 1] += a.begin[i];
    for (int64_t o = 0; o < a.out; ++o) a.order[a.begin[a.phase(o)]++] = static_cast<int32_t>(o);
    // Filling moved every begin to its end, which is the next one's begin.
    for (int64_t i = a.phases; i > 0; --i) a.begin[i] = a.begin[i - 1];
    a.begin[0] = 0;
  }

  Buffer<int32_t> index_;
};

// The blocks of a class in some images, in order.
struct Blocks {
  int64_t first_image, images, pixels, pixels_per_block, images_per_block;

  Blocks(const Geometry& g, const PixelClass& c, int64_t image0, int64_t image1)
      : first_image(image0), images(image1 - image0), pixels(c.pixels) {
    const int64_t pieces = most(1, ceil_div(pixels, g.block_rows));
    pixels_per_block = most(1, ceil_div(pixels, pieces));
    images_per_block = pixels >= g.block_rows ? 1 : g.block_rows / pixels_per_block;
  }
  int64_t along_pixels() const { return ceil_div(pixels, pixels_per_block); }
  int64_t count() const { return along_pixels() * ceil_div(images, images_per_block); }
  Block operator[](int64_t i) const {
    const int64_t image = i / along_pixels() * images_per_block, pixel = i % along_pixels() * pixels_per_block;
    return {first_image + image, first_image + least(images, image + images_per_block), pixel,
            least(pixels, pixel + pixels_per_block)};
  }
};

}  // namespace
}  // namespace contconv
