// The filters of a class, made from basis and mixing (or copied from given filters) into panels, and the way back:
// from the gradient of a filter to those of basis and mixing.
#pragma once
#include <omp.h>

#include "panels.h"

namespace contconv {
namespace {

// What the lanes of a panel are: the output channels where a filter is applied, the input channels where it is applied
// backwards, or, where those are few, the input channels of several taps side by side. The channels of the other side
// are the rows, which the register tile reduces over.
enum class Lanes { output, input, taps };

class Filters {
 public:
  Filters(const Geometry& geometry, const ContconvInputs& inputs, Lanes lanes_)
      : g(geometry), basis(inputs.weights), rank(geometry.p.rank), mixings(geometry.p.per_tap ? geometry.taps : 1),
        panels(lanes_ == Lanes::output ? g.group_out : g.group_in, g.p.groups),
        rows(lanes_ == Lanes::output ? g.group_in : g.group_out), lanes(lanes_),
        joined(lanes_ == Lanes::output ? g.joined : lanes_ == Lanes::taps ? windows_in_lanes(g) * g.joined : 1),
        tap_pitch(lanes_ == Lanes::taps ? g.group_in : rows * kWidth),
        run_pitch((lanes_ == Lanes::taps ? 1 : joined) * rows * kWidth + kLanes),
        mixing_size((lanes == Lanes::taps ? ceil_div(matrix(), kWidth) : rows) * rank * kWidth),
        mixing(rank > 0 ? panels.count() * mixings * mixing_size : 0),
        whole(lanes == Lanes::taps ? g.p.threads : 0, g.taps * matrix() + 4) {
    if (rank > 0) pack_mixing(inputs.mixing);
  }

  // Floats of one panel of one class's filter: [runs][joined taps][rows][kWidth], or [..][rows][kWidth] of taps;
  // runs `run_pitch` apart (padded, so that the taps of a row do not all fall into one set of the cache).
  int64_t panel_size() const { return g.taps / joined * run_pitch; }

  // Where a tap begins in a panel.
  int64_t tap_start(int64_t tap) const { return tap / joined * run_pitch + tap % joined * tap_pitch; }

  // Packed mixing of a panel (and of a tap, where each has its own): [rows][rank][kWidth], or [strips][rank][kWidth] of
  // both kinds of channels if the lanes are taps.
  const float* packed_mixing(int64_t panel, int64_t tap) const {
    return mixing.data() + (panel * mixings + (mixings > 1 ? tap : 0)) * mixing_size;
  }

  // Element (row, r or nothing, lane) of a panel within mixing, or within the filter of one tap.
  Strides strides_of(int64_t inner, int64_t inner_step) const {
    const int64_t row_step = lanes == Lanes::output ? 1 : g.group_in;
    const int64_t lane_step = lanes == Lanes::output ? g.group_in : 1;
    return {rows, row_step, inner, inner_step, lane_step};
  }

  // Where the weights of a panel begin within one [out_channels, in_channels / groups] matrix.
  int64_t origin(const Panel& panel) const {
    const int64_t out = panel.group * g.group_out + (lanes == Lanes::output ? panel.first : 0);
    return out * g.group_in + (lanes == Lanes::output ? 0 : panel.first);
  }

  int64_t matrix() const { return g.p.out_channels * g.group_in; }

  // to = a panel of the filter of class `c`
  void make(float* to, int64_t c, int64_t panel) const {
    if (lanes == Lanes::taps) {
      const float* from = whole_filter(c);
      for (int64_t t = 0; t < g.taps; t += joined) copy_taps(to + tap_start(t), from + t * matrix());
    } else if (rank == 0) {
      const float* from = basis + c * g.taps * matrix() + origin(panels[panel]);
      for (int64_t t = 0; t < g.taps; ++t)
        pack(to + tap_start(t), from + t * matrix(), strides_of(1, 0), panels[panel].lanes, kWidth);
    } else if (mixings > 1) {
      for (int64_t t = 0; t < g.taps; ++t) contract(to, c, t, 1, panel);
    } else {
      contract(to, c, 0, g.taps, panel);
    }
  }

 private:
  // to[tap tap0 + i][row][lane] = sum over r of basis[c, tap0 + i, r] * mixing[r, row, lane]
  CONTCONV_APART void contract(float* to, int64_t c, int64_t tap0, int64_t count, int64_t panel) const {
    const float* values = basis + (c * g.taps + tap0) * rank;
    const float* packed = packed_mixing(panel, tap0);
    for_each_tile(count, panels[panel].vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
      constexpr int Rows = decltype(tile_rows)::value, Vecs = decltype(vecs)::value;
      const float* row[Rows];
      float* tap[Rows];
      for (int i = 0; i < Rows; ++i) {
        row[i] = values + (first + i) * rank;
        tap[i] = to + tap_start(tap0 + first + i);
      }
      for (int64_t k = 0; k < rows; ++k) {
        Tile<Rows, Vecs> acc;
        dot_tile(acc, row, 0, 1, 0, rank, packed + k * rank * kWidth, 0);
        acc.for_each([&](int i, int v, Vec value) { store(tap[i] + k * kWidth + v * kLanes, value); });
      }
    });
  }

  // The filter of a class as filters lie in memory, [T][out_channels][in_channels]. Lanes run through both kinds of
  // channels: input channels that are few would leave most of them empty.
  const float* whole_filter(int64_t c) const {
    float* to = whole.of(omp_get_thread_num());
    if (rank == 0) {
      std::memcpy(to, basis + c * g.taps * matrix(), static_cast<size_t>(g.taps * matrix()) * sizeof(float));
      return to;
    }
    const int64_t count = mixings > 1 ? 1 : g.taps;   // taps that share a mixing
    for (int64_t t = 0; t < g.taps; t += count)
      for (int64_t first = 0; first < matrix(); first += kWidth) contract_strip(c, t, count, first);
    return to;
  }

  CONTCONV_APART void contract_strip(int64_t c, int64_t tap0, int64_t count, int64_t first) const {
    const float *values = basis + (c * g.taps + tap0) * rank, *packed = packed_mixing(0, tap0) + first * rank;
    const int64_t length = least(kWidth, matrix() - first), pitch = matrix();
    float* to = whole.of(omp_get_thread_num()) + tap0 * pitch + first;
    for_each_tile(count, length > kLanes ? 2 : 1, [&](int64_t tap, auto tile_rows, auto vecs) {
      constexpr int Rows = decltype(tile_rows)::value;
      const float* row[Rows];
      for (int i = 0; i < Rows; ++i) row[i] = values + (tap + i) * rank;
      Tile<Rows, decltype(vecs)::value> acc;
      dot_tile(acc, row, 0, 1, 0, rank, packed, 0);
      acc.for_each([&](int i, int v, Vec value) {
        store_lanes(to + (tap + i) * pitch + v * kLanes, value, length - v * kLanes);
      });
    });
  }

  // The lanes of several taps, side by side. Four floats at a time: what is written beyond a tap is written over by the
  // next tap, or row, or lies in a lane that nobody looks at.
  CONTCONV_APART void copy_taps(float* to, const float* from) const {
    const int64_t channels = g.group_in, pitch = matrix(), count = joined;
    for (int64_t row = 0; row < rows; ++row, to += kWidth, from += channels)
      for (int64_t tap = 0; tap < count; ++tap)
        for (int64_t lane = 0; lane < channels; lane += 4)
          copy_four(to + tap * channels + lane, from + tap * pitch + lane);
  }

  void pack_mixing(const float* from) {
    if (lanes == Lanes::taps) return pack_strips(from);
    const Strides s = strides_of(rank, matrix());
#pragma omp parallel for num_threads(g.team(panels.count() * mixings * mixing_size)) schedule(static)
    for (int64_t i = 0; i < panels.count() * mixings; ++i) {
      const Panel panel = panels[i / mixings];
      const float* source = from + i % mixings * rank * matrix() + origin(panel);
      pack(mixing.data() + i * mixing_size, source, s, panel.lanes, rank * kWidth);
    }
  }

  void pack_strips(const float* from) {
    const Strides s{1, 0, rank, matrix(), 1};
    for (int64_t t = 0; t < mixings; ++t)
      for (int64_t first = 0; first < matrix(); first += kWidth)
        pack(mixing.data() + t * mixing_size + first * rank, from + t * rank * matrix() + first, s,
             least(kWidth, matrix() - first), 0);
  }

 public:
  const Geometry& g;
  const float* basis;             // [classes, T, rank], or the filters [classes, T, out_channels, in_channels / groups]
  const int64_t rank, mixings;
  const PanelSet panels;
  const int64_t rows;             // channels of a group that are not lanes
  const Lanes lanes;
  const int64_t joined, tap_pitch, run_pitch, mixing_size;

 private:
  Buffer<float> mixing;           // [panels][mixings][rows][rank][kWidth], or [mixings][strips][rank][kWidth]
  const PerThread<float> whole;   // [T][out_channels][in_channels] and a few floats more, where the lanes are taps
};

// The filter that a thread has at hand: that of the class it is at, a few panels at a time.
class FilterCache {
 public:
  explicit FilterCache(const Filters& filters)
      : f(filters), panels(f.panels.count()), at_once(least(panels, most(1, kClassBytes / (4 * f.panel_size())))),
        own(f.g.p.threads, at_once * f.panel_size()), made(f.g.p.threads, 2) {
    for (int64_t i = 0; i < f.g.p.threads; ++i) made.of(i)[0] = -1;
  }

  // Panels first .. min(first + at_once, last) - 1 of class `c`, `panel_size` apart.
  const float* get(int thread, int64_t c, int64_t first, int64_t last) const {
    float* filter = own.of(thread);
    int64_t* here = made.of(thread);
    if (here[0] == c && here[1] == first) return filter;
    for (int64_t j = first; j < least(last, first + at_once); ++j) f.make(filter + (j - first) * f.panel_size(), c, j);
    here[0] = c, here[1] = first;
    return filter;
  }

 private:
  static constexpr int64_t kClassBytes = 256 << 10;   // half of a second-level cache
  const Filters& f;

 public:
  const int64_t panels, at_once;

 private:
  PerThread<float> own;
  PerThread<int64_t> made;   // the class and its first panel that are there
};

}  // namespace
}  // namespace contconv
