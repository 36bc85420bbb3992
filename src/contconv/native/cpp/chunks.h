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
      : g(geometry), bands(cut(g, most_chunks, most_copies)),
        count(bands.count > 1 ? bands.count
                              : most(1, least(g.p.batch, most_copies > 0 ? least(most_chunks, most_copies) : most_chunks))),
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
    for_each_range(chunk, [&](int64_t low, int64_t high) { g.for_each_run(bands.along, low, high, length, body); });
  }

  // Calls body(low, high) for outputs low .. high - 1 along the axis of the bands, all that are in a chunk.
  template <class Body>
  void for_each_range(int64_t chunk, Body&& body) const {
    if (bands.count > 1) return bands.for_each_range(chunk, body);
    body(0, g.axis[bands.along].out);
  }

 private:
  static constexpr int64_t kManyImages = 4, kEnough = 8;

  // Bands of phases need no copies. Else images are better than bands of outputs, if there are several.
  static Bands cut(const Geometry& g, int64_t most_chunks, int64_t most_copies) {
    if (most_copies == 0) return best(g, Bands::Of::outputs, most_chunks);
    const Bands phases = best(g, Bands::Of::phases, most_chunks);
    if (phases.count > 1 || g.p.batch >= kManyImages) return phases;
    return best(g, Bands::Of::outputs, least(most_chunks, most_copies));
  }

  // Along the axis that gives enough of them, or most.
  static Bands best(const Geometry& g, Bands::Of of, int64_t most_bands) {
    int along = g.long_axis;
    int64_t count = Bands(g, along, of, most_bands).count;
    for (int a = g.band_axis; a < 3 && count < least(kEnough, most_bands); ++a) {
      const int64_t other = Bands(g, a, of, most_bands).count;
      if (other > count) along = a, count = other;
    }
    return Bands(g, along, of, most_bands);
  }

  const Geometry& g;

 public:
  const Bands bands;
  const int64_t count, copies;   // chunks; copies of the gradient of the basis
};

}  // namespace
}  // namespace contconv
