// What the factored algorithms know of an output pixel: its class's basis, and the input pixels under its taps.
#pragma once
#include "geometry.h"

namespace contconv {
namespace {

// A run of output pixels, consecutive in memory, the same in every image. Padding is left out: tap p of pixel i is the
// p-th that has a source.
struct PixelRun {
  int64_t first, count;       // output pixels of an image
  int64_t* phase;             // [count][3]: those of its class
  int64_t* sample;            // [count]: which of the samples of the basis is its own: that of its class
  int64_t* taps;              // [count]: how many taps have a source
  int64_t* whole;             // [count]: whether all have, and those along the last axis lie side by side
  int32_t* tap;               // [count][T]: which
  int64_t* source;            // [count][T]: input pixel of the image
};

class PixelRuns {
 public:
  PixelRuns(const Geometry& geometry, int64_t most_pixels)
      : g(geometry), size(most_pixels), wide(g.p.threads, size * (6 + g.taps)), narrow(g.p.threads, size * g.taps) {}

  PixelRun run(int thread, int64_t first, int64_t last) const {
    int64_t* own = wide.of(thread);
    const PixelRun run{first,          last - first,      own, own + 3 * size, own + 4 * size, own + 5 * size,
                       narrow.of(thread), own + 6 * size};
    const Axis &a1 = g.axis[1], &a2 = g.axis[2];
    int64_t o0 = first / (a1.out * a2.out), o1 = first / a2.out % a1.out, o2 = first % a2.out;
    for (int64_t i = 0; i < run.count; ++i) {
      locate(o0, o1, o2, i, run);
      if (++o2 < a2.out) continue;
      o2 = 0;
      if (++o1 < a1.out) continue;
      o1 = 0;
      ++o0;
    }
    return run;
  }

 private:
  void locate(int64_t o0, int64_t o1, int64_t o2, int64_t i, const PixelRun& run) const {
    const Axis &a0 = g.axis[0], &a1 = g.axis[1], &a2 = g.axis[2];
    const int32_t *s0 = a0.sources(o0), *s1 = a1.sources(o1), *s2 = a2.sources(o2);
    int32_t* tap = run.tap + i * g.taps;
    int64_t *source = run.source + i * g.taps, found = 0;
    int32_t t = 0;
    for (int64_t k0 = 0; k0 < a0.taps; ++k0) {
      for (int64_t k1 = 0; k1 < a1.taps; ++k1) {
        const bool inside = s0[k0] >= 0 && s1[k1] >= 0;
        const int64_t row = (s0[k0] * a1.in + s1[k1]) * a2.in;
        for (int64_t k2 = 0; k2 < a2.taps; ++k2, ++t) {
          tap[found] = t;
          source[found] = row + s2[k2];
          found += inside && s2[k2] >= 0;
        }
      }
    }
    int64_t* phase = run.phase + i * 3;
    phase[0] = a0.phase(o0), phase[1] = a1.phase(o1), phase[2] = a2.phase(o2);
    run.sample[i] = g.class_of(o0, o1, o2);
    run.taps[i] = found;
    run.whole[i] = found == g.taps && is_whole(s2, a2.taps);
  }

  const Geometry& g;
  const int64_t size;
  const PerThread<int64_t> wide;
  const PerThread<int32_t> narrow;
};

}  // namespace
}  // namespace contconv
