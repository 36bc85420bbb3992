// The output cut into bands, for loops in which output pixels add to the input pixels under them.
#pragma once
#include "geometry.h"

namespace contconv {
namespace {

// Bands of outputs along the banded axis, few enough that every second one has input rows and classes of its own: those
// can be worked on at the same time. One band where that cannot be. Shapes alone decide, never the number of threads.
class Bands {
 public:
  static constexpr int64_t kMost = 16;

  explicit Bands(const Geometry& geometry, int64_t most_bands = kMost)
      : g(geometry), axis(g.axis[g.band_axis]), count(band_count(most_bands)), turns(count > 1 ? 2 : 1) {}

  // The first output of a band.
  int64_t begin(int64_t band) const { return first_of(band, count); }

  // Bands of a turn: turn, turn + turns, ...
  int64_t count_in(int64_t turn) const { return (count - turn + turns - 1) / turns; }

  // Whether the classes of a band are consecutive, and those of all bands come one after the other.
  bool classes_in_order() const {
    for (int a = 0; a < g.band_axis; ++a)
      if (g.axis[a].phases > 1) return false;
    for (int64_t o = 0; o < axis.out; ++o)
      if (axis.phase(o) != o) return false;
    return axis.phases == axis.out;
  }
  int64_t first_class(int64_t band) const { return begin(band) * (g.classes / axis.phases); }

 private:
  int64_t first_of(int64_t band, int64_t of) const { return band * axis.out / of; }

  int64_t band_count(int64_t most_bands) const {
    for (int64_t phase = 0; phase < axis.phases; ++phase)
      if (axis.begin[phase + 1] - axis.begin[phase] > 1) return 1;   // a class may have pixels in two bands
    for (int64_t of = least(most_bands, axis.out / 2); of > 2; of /= 2)
      if (every_second_is_apart(of)) return of;
    return 1;
  }

  bool every_second_is_apart(int64_t of) const {
    int64_t reached[2] = {-1, -1};   // the last input row of the bands so far, of either turn
    for (int64_t band = 0; band < of; ++band) {
      int64_t low = axis.in, high = -1;
      for (int64_t o = first_of(band, of); o < first_of(band + 1, of); ++o)
        for (int64_t k = 0; k < axis.taps; ++k) {
          const int64_t source = axis.sources(o)[k];
          if (source >= 0) low = least(low, source), high = most(high, source);
        }
      if (low <= reached[band % 2]) return false;
      reached[band % 2] = most(reached[band % 2], high);
    }
    return true;
  }

  const Geometry& g;
  const Axis& axis;

 public:
  const int64_t count, turns;
};

}  // namespace
}  // namespace contconv
