// The gradient of x as a convolution of grad_y: what the outputs send to an input pixel is gathered instead of scattered,
// so that it is summed in registers. Input pixels to which the same taps of the same classes send are a class of it.
#pragma once
#include <initializer_list>

#include "few_filters.h"

namespace contconv {
namespace {

// One axis turned around: the table of a convolution whose outputs are the input indices and whose taps are what is sent
// to them, in as many slots for each; slots that nothing is sent through are padding.
class TransposedAxis {
 public:
  explicit TransposedAxis(const Axis& axis_)
      : axis(axis_), sent(axis.in + 1), from(axis.out * axis.taps), taps(list_senders()), phases(0),
        table(axis.in * (1 + taps)), slots(axis.in * taps) {
    for (const bool whole : {true, false})   // border pixels have fewer senders, and find their place among the others
      for (int64_t m = 0; m < axis.in; ++m)
        if (whole == (senders(m) == taps)) place(m);
  }

  // What a phase's slot sends: the tap of an output of some phase, or nothing (-1).
  struct Slot {
    int32_t phase, tap;
    bool operator==(const Slot& other) const { return phase == other.phase && tap == other.tap; }
  };
  const Slot& slot(int64_t phase, int64_t k) const { return slots[phase * taps + k]; }

 private:
  struct Sender {
    int32_t output;
    Slot slot;
  };

  int64_t senders(int64_t m) const { return sent[m + 1] - sent[m]; }

  // Lists the senders of every input index, in order of the outputs; returns the most that one has.
  int64_t list_senders() {
    for (int64_t m = 0; m <= axis.in; ++m) sent[m] = 0;
    for_each_sender([&](int64_t m, const Sender&) { ++sent[m + 1]; });
    int64_t longest = 1;
    for (int64_t m = 0; m < axis.in; ++m) longest = most(longest, sent[m + 1]), sent[m + 1] += sent[m];
    for_each_sender([&](int64_t m, const Sender& sender) { from[sent[m]++] = sender; });
    for (int64_t m = axis.in; m > 0; --m) sent[m] = sent[m - 1];   // filling moved every begin to its end
    sent[0] = 0;
    return longest;
  }

  template <class Body>
  void for_each_sender(Body&& body) const {
    for (int64_t o = 0; o < axis.out; ++o)
      for (int64_t k = 0; k < axis.taps; ++k)
        if (const int32_t m = axis.sources(o)[k]; m >= 0)
          body(m, Sender{static_cast<int32_t>(o), {static_cast<int32_t>(axis.phase(o)), static_cast<int32_t>(k)}});
  }

  // Finds the phase of an input index, or makes it one, and fills in its row of the table.
  void place(int64_t m) {
    int64_t phase = 0;
    while (phase < phases && !fits(m, phase)) ++phase;
    if (phase == phases) {
      for (int64_t k = 0; k < taps; ++k) slots[phase * taps + k] = k < senders(m) ? from[sent[m] + k].slot : Slot{-1, -1};
      ++phases;
    }
    int32_t* row = table.data() + m * (1 + taps);
    row[0] = static_cast<int32_t>(phase);
    for (int64_t k = 0, next = sent[m]; k < taps; ++k) {
      const bool here = next < sent[m + 1] && from[next].slot == slot(phase, k);
      row[1 + k] = here ? from[next++].output : -1;
    }
  }

  // Whether all that is sent to an input index goes through slots of the phase, in their order.
  bool fits(int64_t m, int64_t phase) const {
    int64_t next = sent[m];
    for (int64_t k = 0; k < taps && next < sent[m + 1]; ++k) next += from[next].slot == slot(phase, k);
    return next == sent[m + 1];
  }

  const Axis& axis;
  Buffer<int64_t> sent;     // [in + 1]: the senders of m are from[sent[m]] .. from[sent[m + 1] - 1]
  Buffer<Sender> from;      // [out * taps] at most

 public:
  const int64_t taps;
  int64_t phases;
  const Buffer<int32_t> table;   // [in][1 + taps]

 private:
  const Buffer<Slot> slots;      // [phases][taps]
};

// The whole problem turned around.
class Transposed {
 public:
  explicit Transposed(const Geometry& geometry)
      : g(geometry), axis{TransposedAxis(g.axis[0]), TransposedAxis(g.axis[1]), TransposedAxis(g.axis[2])}, problem(g.p) {
    problem.in_channels = g.p.out_channels, problem.out_channels = g.p.in_channels;
    for (int a = 0; a < 3; ++a) {
      problem.in[a] = g.p.out[a], problem.out[a] = g.p.in[a];
      problem.taps[a] = axis[a].taps, problem.phases[a] = axis[a].phases, problem.table[a] = axis[a].table.data();
    }
  }

  // Slots that nothing is sent through cost as much as others, and so do lanes without a channel; scattering has the
  // elements of a window along the lanes. A sum in registers is worth a few of them.
  bool pays() const {
    const Geometry turned(problem);
    const int64_t gathered = turned.work / g.group_in * whole_vectors(g.group_in);
    const int64_t in_a_strip = most(1, windows_in_lanes(g)) * g.window;
    const int64_t scattered = g.work / in_a_strip * whole_vectors(in_a_strip);
    return filters_are_few(turned) && 8 * gathered <= 9 * scattered;
  }

  // grad_x from grad_y and the filters
  void run(const ContconvInputs& in, float* grad_x) const {
    const Geometry turned(problem);
    const Buffer<float> filters(turned.classes * turned.taps * g.p.in_channels * g.group_out);
#pragma omp parallel for num_threads(g.team(8 * turned.classes * turned.taps * g.p.in_channels * g.group_out))
    for (int64_t i = 0; i < turned.classes * turned.taps; ++i)
      turn_tap(in.weights, i / turned.taps, i % turned.taps, filters.data() + i * g.p.in_channels * g.group_out);
    const ContconvInputs turned_in{in.grad_y, nullptr, filters.data(), nullptr, nullptr};
    FewForward(turned, turned_in, grad_x).run();
  }

 private:
  // to[input channel][output channel of its group] = one tap of one class
  void turn_tap(const float* weights, int64_t c, int64_t t, float* to) const {
    const int64_t classes[3] = {c / axis[2].phases / axis[1].phases, c / axis[2].phases % axis[1].phases, c % axis[2].phases};
    const int64_t taps[3] = {t / axis[2].taps / axis[1].taps, t / axis[2].taps % axis[1].taps, t % axis[2].taps};
    int64_t index = 0, tap = 0;
    for (int a = 0; a < 3; ++a) {
      const TransposedAxis::Slot& slot = axis[a].slot(classes[a], taps[a]);
      if (slot.tap < 0) return fill_zero(to, g.p.in_channels * g.group_out);
      index = index * g.p.phases[a] + slot.phase, tap = tap * g.p.taps[a] + slot.tap;
    }
    const float* from = weights + (index * g.taps + tap) * g.p.out_channels * g.group_in;
    for (int64_t i = 0; i < g.p.in_channels; ++i) {
      const float* column = from + i / g.group_in * g.group_out * g.group_in + i % g.group_in;
      for (int64_t o = 0; o < g.group_out; ++o) to[i * g.group_out + o] = column[o * g.group_in];
    }
  }

  const Geometry& g;
  const TransposedAxis axis[3];
  ContconvProblem problem;
};

}  // namespace
}  // namespace contconv
