// The input under a cell, in memory of the thread's own: padding is written out, and the taps of a pixel lie side by
// side along the last axis whatever the padding mode. So one list of places serves every image, no window is a special
// case, and what comes from memory comes in long lines.
#pragma once
#include "cells.h"

namespace contconv {
namespace {

// The input along one axis as the outputs see it: the taps of output o are slots start[o] .. start[o] + taps - 1, each
// of which shows an input index or padding (-1). Windows that follow each other share slots where their sources agree.
class Slots {
 public:
  explicit Slots(const Axis& axis_) : axis(axis_), source(axis.out * axis.taps), start(axis.out), count(0) {
    for (int64_t o = 0; o < axis.out; ++o) {
      const int32_t* window = axis.sources(o);
      int64_t at = o > 0 ? start[o - 1] : 0;
      while (!agree(window, at)) ++at;
      start[o] = at;
      for (int64_t k = count - at; k < axis.taps; ++k) source[count++] = window[k];
    }
  }

  // Slots under the outputs low .. high - 1: the first, and how many.
  int64_t first(int64_t low) const { return start[low]; }
  int64_t under(int64_t low, int64_t high) const { return start[high - 1] + axis.taps - start[low]; }

  // Consecutive slots from `slot` on, before `end`, that show consecutive input pixels, or padding.
  int64_t alike(int64_t slot, int64_t end) const {
    int64_t next = slot + 1;
    while (next < end && source[next] == (source[slot] < 0 ? -1 : source[slot] + (next - slot))) ++next;
    return next - slot;
  }

  const Axis& axis;
  const Buffer<int32_t> source;   // [count], of axis.out * axis.taps at most
  const Buffer<int64_t> start;    // [out]

 private:
  // Whether a window that begins at slot `at` says the same as the slots that are there.
  bool agree(const int32_t* window, int64_t at) const {
    for (int64_t slot = at; slot < count; ++slot)
      if (source[slot] != window[slot - at]) return false;
    return true;
  }

  int64_t count;
};

// Where the input of one cell lies: [images][slots along axis 0][axis 1][axis 2][channels].
struct Patch {
  Cell cell;
  int64_t first[3], count[3];   // slots of each axis
  int64_t step[3], image;       // floats from a slot to the next, from an image to the next

  int64_t size() const { return (cell.image1 - cell.image0) * image; }
  int64_t slots() const { return count[0] * count[1] * count[2]; }   // of an image
};

// Pixels of one class, in all images of a cell.
struct PatchRows {
  float** in;     // where the first tap's channels begin, in the patch
  int64_t* out;   // the output pixel, counted over the whole batch
  int64_t count;
};

// A part of the input's rows, counted over its first two axes.
struct RowRange {
  int64_t low, high;
};

class Patches {
 public:
  Patches(const Geometry& geometry, const Cells& cells_) : Patches(geometry, cells_, geometry.band_axis) {}

  // For cells that are cut along another axis.
  Patches(const Geometry& geometry, const Cells& cells_, int along_)
      : g(geometry), along(along_), slots{Slots(g.axis[0]), Slots(g.axis[1]), Slots(g.axis[2])}, cells(cells_) {}

  Patch of(const Cell& cell) const {
    Patch patch{cell, {}, {}, {}, 0};
    for (int a = 0; a < 3; ++a) {
      const bool banded = a == along;
      const int64_t low = banded ? cell.low : 0, high = banded ? cell.high : g.axis[a].out;
      patch.first[a] = slots[a].first(low), patch.count[a] = slots[a].under(low, high);
    }
    patch.step[2] = g.p.in_channels;
    patch.step[1] = patch.count[2] * patch.step[2];
    patch.step[0] = patch.count[1] * patch.step[1];
    patch.image = patch.count[0] * patch.step[0];
    return patch;
  }

  // Floats of the largest patch, and rows of the largest class in a cell (or more).
  int64_t most_floats() const {
    int64_t floats = 0;
    for (int64_t i = 0; i < cells.bands(); ++i) floats = most(floats, of(cells[i]).image * cells.images_per_cell);
    return floats;
  }
  int64_t most_rows() const {
    int64_t rows = cells.images_per_cell;
    for (int a = 0; a < 3; ++a) {
      int64_t longest = 0;
      for (int64_t p = 0; p < g.axis[a].phases; ++p)
        longest = most(longest, g.axis[a].begin[p + 1] - g.axis[a].begin[p]);
      rows *= a == g.band_axis ? least(longest, cells.longest_band()) : longest;
    }
    return rows;
  }

  // to[runs]: how far the windows of a pixel are from its first tap
  void run_starts(const Patch& patch, int64_t* to) const {
    for (int64_t r = 0; r < g.runs; ++r) {
      const int64_t tap = r * g.joined, k2 = tap % g.p.taps[2], k1 = tap / g.p.taps[2] % g.p.taps[1];
      to[r] = tap / g.p.taps[2] / g.p.taps[1] * patch.step[0] + k1 * patch.step[1] + k2 * patch.step[2];
    }
  }

  // The slot of the first tap of an output pixel.
  int64_t first_slot(const Patch& patch, int64_t pixel) const {
    const int64_t o1 = pixel / g.axis[2].out % g.axis[1].out, o0 = pixel / g.axis[2].out / g.axis[1].out;
    const int64_t s0 = slots[0].start[o0] - patch.first[0], s1 = slots[1].start[o1] - patch.first[1];
    return (s0 * patch.count[1] + s1) * patch.count[2] + slots[2].start[pixel % g.axis[2].out] - patch.first[2];
  }

  // to[taps]: how many slots the taps of a pixel are from its first one
  void tap_slots(const Patch& patch, int64_t* to) const {
    for (int64_t t = 0; t < g.taps; ++t) {
      const int64_t k2 = t % g.p.taps[2], k1 = t / g.p.taps[2] % g.p.taps[1], k0 = t / g.p.taps[2] / g.p.taps[1];
      to[t] = (k0 * patch.count[1] + k1) * patch.count[2] + k2;
    }
  }

  // Calls body(slot, input pixel of an image, or -1) for each slot, in order.
  template <class Body>
  void for_each_slot(const Patch& patch, Body&& body) const {
    int64_t slot = 0;
    for (int64_t s0 = patch.first[0]; s0 < patch.first[0] + patch.count[0]; ++s0)
      for (int64_t s1 = patch.first[1]; s1 < patch.first[1] + patch.count[1]; ++s1)
        for (int64_t s2 = patch.first[2]; s2 < patch.first[2] + patch.count[2]; ++s2, ++slot) {
          const int64_t i0 = slots[0].source[s0], i1 = slots[1].source[s1], i2 = slots[2].source[s2];
          body(slot, i0 < 0 || i1 < 0 || i2 < 0 ? -1 : (i0 * g.p.in[1] + i1) * g.p.in[2] + i2);
        }
  }

  // Fills `to` with the rows of a class; its pixels come in order, image by image.
  void rows_of(const Patch& patch, const PixelClass& c, float* data, PatchRows& to) const {
    to.count = 0;
    for (int64_t n = patch.cell.image0; n < patch.cell.image1; ++n)
      for (int64_t j0 = 0; j0 < c.count[0]; ++j0)
        for (int64_t j1 = 0; j1 < c.count[1]; ++j1) {
          const int64_t o0 = c.outputs[0][j0], o1 = c.outputs[1][j1];
          const int64_t first_pixel = ((n * g.p.out[0] + o0) * g.p.out[1] + o1) * g.p.out[2];
          float* line = data + (n - patch.cell.image0) * patch.image - patch.first[2] * patch.step[2];
          line += (slots[0].start[o0] - patch.first[0]) * patch.step[0];
          line += (slots[1].start[o1] - patch.first[1]) * patch.step[1];
          for (int64_t j2 = 0; j2 < c.count[2]; ++j2, ++to.count) {
            const int64_t o2 = c.outputs[2][j2];
            to.in[to.count] = line + slots[2].start[o2] * patch.step[2];
            to.out[to.count] = first_pixel + o2;
          }
        }
  }

  // to = x under the cell
  void read(const Patch& patch, const float* x, float* to) const {
    for_each_line(patch, to, [&](float* line, int64_t image, int64_t row) {
      const float* from = x + (image * g.in_pixels + row * g.p.in[2]) * g.p.in_channels;
      for_each_piece_of_line(patch, line, row, [&](float* target, int64_t column, int64_t count) {
        if (column < 0) {
          fill_zero(target, count);
        } else {
          std::memcpy(target, from + column * g.p.in_channels, static_cast<size_t>(count) * sizeof(float));
        }
      });
    });
  }

  // grad_x[rows in range] += the patch. Rows before `written` hold sums; those that are reached are set to zero first.
  void add(const Patch& patch, float* data, const RowRange& range, int64_t* written, float* grad_x) const {
    for_each_line(patch, data, [&](float* line, int64_t image, int64_t row) {
      if (row < range.low || row >= range.high) return;
      zero_up_to(row + 1, image, written + (image - patch.cell.image0), grad_x);
      float* to = grad_x + (image * g.in_pixels + row * g.p.in[2]) * g.p.in_channels;
      for_each_piece_of_line(patch, line, row, [&](float* from, int64_t column, int64_t count) {
        float* target = to + column * g.p.in_channels;
        for (int64_t i = 0; i < count && column >= 0; ++i) target[i] += from[i];
      });
    });
  }

  // Sets to zero what was not written yet of an image's rows before `row`.
  void zero_up_to(int64_t row, int64_t image, int64_t* written, float* grad_x) const {
    if (row <= *written) return;
    const int64_t length = g.p.in[2] * g.p.in_channels;
    fill_zero(grad_x + image * g.in_pixels * g.p.in_channels + *written * length, (row - *written) * length);
    *written = row;
  }

  // Whether a patch shows any of those rows.
  bool shows(const Patch& patch, const RowRange& range) const {
    bool any = false;
    for_each_line(patch, nullptr, [&](float*, int64_t, int64_t row) { any |= row >= range.low && row < range.high; });
    return any;
  }

 private:
  // Calls body(line of the patch, image, input row or -1) for each line along the last axis.
  template <class Body>
  void for_each_line(const Patch& patch, float* data, Body&& body) const {
    for (int64_t n = patch.cell.image0; n < patch.cell.image1; ++n)
      for (int64_t s0 = patch.first[0]; s0 < patch.first[0] + patch.count[0]; ++s0)
        for (int64_t s1 = patch.first[1]; s1 < patch.first[1] + patch.count[1]; ++s1, data += patch.step[1]) {
          const int64_t i0 = slots[0].source[s0], i1 = slots[1].source[s1];
          body(data, n, i0 < 0 || i1 < 0 ? -1 : i0 * g.p.in[1] + i1);
        }
  }

  // Calls body(part of the line, its first input column or -1, floats) for parts that are one piece of the input.
  template <class Body>
  void for_each_piece_of_line(const Patch& patch, float* line, int64_t row, Body&& body) const {
    if (row < 0) return body(line, -1, patch.step[1]);
    for (int64_t i = 0, length; i < patch.count[2]; i += length) {
      const int64_t slot = patch.first[2] + i;
      length = slots[2].alike(slot, patch.first[2] + patch.count[2]);
      body(line + i * patch.step[2], slots[2].source[slot], length * patch.step[2]);
    }
  }

  const Geometry& g;
  const int along;
  const Slots slots[3];

 public:
  const Cells cells;
};

}  // namespace
}  // namespace contconv
