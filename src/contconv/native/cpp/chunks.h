// What the threads of a factored way back share out.
#pragma once
#include "bands.h"

namespace contconv {
namespace {

// The output cut into chunks: bands of all images, which share what is known of an output pixel, or whole images. The
// gradient of a basis that is stored is a sum over all pixels of a class: chunks that share classes have a copy each.
class Chunks {
 public:
  // most_copies: 0 where no gradient of a stored basis is wanted.
  Chunks(const Geometry& geometry, int64_t most_chunks, int64_t most_copies)
      : g(geometry), bands(g, kind(g, most_chunks, most_copies), most_bands(g, most_chunks, most_copies)),
        count(bands.count > 1 ? bands.count : most(1, least(g.p.batch, most_copies > 0 ? most_copies : most_chunks))),
        copies(most_copies == 0 || (bands.count > 1 && bands.of == Bands::Of::phases) ? 1 : count) {}

  // Chunks turn, turn + turns() and so on may be worked on at the same time.
  int64_t turns() const { return bands.turns; }
  int64_t count_in(int64_t turn) const { return bands.count > 1 ? bands.count_in(turn) : count; }

  // The first image of a chunk of images; bands have all of them.
  int64_t image0(int64_t chunk) const { return bands.count > 1 ? 0 : chunk * g.p.batch / count; }
  int64_t image1(int64_t chunk) const { return bands.count > 1 ? g.p.batch : (chunk + 1) * g.p.batch / count; }

  // Calls body(first, last) for output pixels first .. last - 1 of an image, `length` or fewer, all that are in a chunk.
  template <class Body>
  void for_each_run(int64_t chunk, int64_t length, Body&& body) const {
    const int64_t row = g.out_pixels / most(1, g.axis[g.band_axis].out);
    for_each_range(chunk, [&](int64_t low, int64_t high) {
      for (int64_t i = low * row; i < high * row; i += length) body(i, least(high * row, i + length));
    });
  }

  // Calls body(low, high) for outputs low .. high - 1 along the banded axis, all that are in a chunk.
  template <class Body>
  void for_each_range(int64_t chunk, Body&& body) const {
    if (bands.count > 1) return bands.for_each_range(chunk, body);
    body(0, g.axis[g.band_axis].out);
  }

 private:
  static constexpr int64_t kManyImages = 4;

  // Bands of phases have no classes in common.
  static Bands::Of kind(const Geometry& g, int64_t most_chunks, int64_t most_copies) {
    const bool phases = most_copies > 0 && Bands(g, Bands::Of::phases, most_chunks).count > 1;
    return phases ? Bands::Of::phases : Bands::Of::outputs;
  }
  static int64_t most_bands(const Geometry& g, int64_t most_chunks, int64_t most_copies) {
    if (most_copies == 0 || kind(g, most_chunks, most_copies) == Bands::Of::phases) return most_chunks;
    return g.p.batch >= kManyImages ? 1 : least(most_chunks, most_copies);
  }

  const Geometry& g;

 public:
  const Bands bands;
  const int64_t count, copies;   // chunks; copies of the gradient of the basis
};

}  // namespace
}  // namespace contconv
