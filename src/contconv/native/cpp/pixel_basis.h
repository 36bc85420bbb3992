// The basis at output pixels: as it lies in memory or, where it is a net, made for a run of pixels at a time.
#pragma once
#include <optional>

#include "displacements.h"
#include "net.h"
#include "output_pixels.h"

namespace contconv {
namespace {

class PixelBasis {
 public:
  // back: gradients of the net are wanted.
  PixelBasis(const Geometry& geometry, const ContconvInputs& inputs, int64_t most_pixels, bool back)
      : g(geometry), in(inputs), size(g.taps * g.p.rank),
        points(in.net ? g.p.threads : 0, most_pixels * g.taps * 3),
        values(in.net ? g.p.threads : 0, (back ? 2 : 1) * most_pixels * size), room(most_pixels * size) {
    if (in.net) net.emplace(*in.net), scratch.emplace(*net, g.p.threads, most_pixels * g.taps, back);
  }

  // So many pixels at a time that their basis, and what a net keeps for the way back, stay in cache, of those that one
  // would like.
  static int64_t most_pixels(const Geometry& g, const ContconvInputs& in, int64_t wanted) {
    if (!in.net) return wanted;
    return least(wanted, most(1, kBytes / (4 * g.taps * most(g.p.rank, Net::hidden_units(*in.net)))));
  }

  // That of pixel i is at [run.sample[i]][T][rank] of what is returned.
  const float* of(const PixelRun& run) const {
    if (!net) return in.weights;
    const int me = omp_get_thread_num();
    float* to = points.of(me);
    for (int64_t i = 0; i < run.count; ++i) to = displacements(g.p, in, net->axes(), run.phase + i * 3, to);
    for (int64_t i = 0; i < run.count; ++i) run.sample[i] = i;
    net->sample(points.of(me), run.count * g.taps, values.of(me), *scratch);
    return values.of(me);
  }

  int64_t gradients_size() const { return net ? net->gradients_size() : 0; }

  // Of a net: room for the gradients of what `of` returned last, all zero.
  float* fresh_gradients(const PixelRun& run) const {
    float* gradients = values.of(omp_get_thread_num()) + room;
    fill_zero(gradients, run.count * size);
    return gradients;
  }

  // sums += the gradients of weights and biases, from those
  void add_gradients(const PixelRun& run, float* sums) const {
    const int me = omp_get_thread_num();
    float* y = values.of(me);
    net->add_gradients(points.of(me), run.count * g.taps, y, y + room, sums, *scratch);
  }

  void hand_out(const float* sums, const ContconvNetGradients& to) const { net->hand_out(sums, to); }

 private:
  static constexpr int64_t kBytes = 128 << 10;

  const Geometry& g;
  const ContconvInputs& in;
  const int64_t size;               // floats of the basis at a pixel
  const PerThread<float> points;    // [pixels][T][axes]
  const PerThread<float> values;    // [pixels][T][rank], and their gradients
  const int64_t room;               // where those begin
  std::optional<Net> net;
  std::optional<Net::Scratch> scratch;
};

}  // namespace
}  // namespace contconv
