// The output cut into bands, for loops in which output pixels add to the input pixels under them.
#pragma once
#include "geometry.h"

namespace contconv {
namespace {

// Parts of the output along an axis, of all images: few enough that every second one has input rows of its own.
// Those can be worked on at the same time. One band where that cannot be. Shapes alone decide, not the threads.
class Bands {
 public:
  static constexpr int64_t kMost = 16;

  // What a band is: a range of phases, with all outputs that have them (no two bands share a class), or of outputs.
  enum class Of { phases, outputs };
  const int along;   // which axis
  const Of of;

  Bands(const Geometry& geometry, int along_, Of of_, int64_t most_bands = kMost)
      : along(along_), of(of_), g(geometry), axis(g.axis[along]), length(of == Of::phases ? axis.phases : axis.out),
        count(band_count(most_bands)), turns(count > 1 ? 2 : 1) {}

  // Bands of a turn: turn, turn + turns, ...
  int64_t count_in(int64_t turn) const { return (count - turn + turns - 1) / turns; }

  // Whether the classes of a band, of phases, are consecutive, and those of all bands come one after the other.
  bool classes_in_order() const {
    for (int a = 0; a < along; ++a)
      if (g.axis[a].phases > 1) return false;
    return of == Of::phases;
  }
  int64_t first_class(int64_t band) const { return band * length / count * (g.classes / axis.phases); }

  // Calls body(low, high) for outputs low .. high - 1 along the axis, all that are in a band, in order.
  template <class Body>
  void for_each_range(int64_t band, Body&& body) const {
    for (int64_t low = 0, high; low < axis.out; low = high) {
      high = low + 1;
      if (band_of(low, count) != band) continue;
      while (high < axis.out && band_of(high, count) == band) ++high;
      body(low, high);
    }
  }

 private:
  // Of so many bands, that of an output.
  int64_t band_of(int64_t o, int64_t bands) const {
    return (((of == Of::phases ? axis.phase(o) : o) + 1) * bands - 1) / length;
  }

  // An even number: where phases repeat, the first band follows the last one.
  int64_t band_count(int64_t most_bands) const {
    for (int64_t bands = least(most_bands, length / 2) / 2 * 2; bands > 2; bands = bands / 4 * 2)
      if (every_second_is_apart(bands)) return bands;
    return 1;
  }

  bool every_second_is_apart(int64_t bands) const {
    const Buffer<int64_t> owner(2 * axis.in);   // of an input row, in either turn
    std::fill_n(owner.data(), 2 * axis.in, -1);
    for (int64_t o = 0; o < axis.out; ++o) {
      const int64_t band = band_of(o, bands);
      for (int64_t k = 0; k < axis.taps; ++k) {
        const int64_t source = axis.sources(o)[k];
        if (source < 0) continue;
        int64_t& owned = owner[band % 2 * axis.in + source];
        if (owned >= 0 && owned != band) return false;
        owned = band;
      }
    }
    return true;
  }

  const Geometry& g;
  const Axis& axis;
  const int64_t length;   // of what is cut

 public:
  const int64_t count, turns;
};

}  // namespace
}  // namespace contconv
