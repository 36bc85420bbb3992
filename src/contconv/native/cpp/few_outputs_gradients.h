// Gradients of algorithm "few outputs". With du the gradient of u:
//   du          scatters basis . grad_y
//   grad_basis  is u . grad_y, u being made again
//   grad_x      is mixing . du
//   grad_mixing is du . x
#pragma once
#include "chunks.h"
#include "few_outputs.h"

namespace contconv {
namespace {

// Partial sums are kept for each chunk of the output, and added up in order.
class FewOutputsGradients {
 public:
  FewOutputsGradients(const Geometry& geometry, const ContconvInputs& inputs, const ContconvGradients& gradients)
      : g(geometry), in(inputs), to(gradients), basis_size(g.classes * g.taps * g.p.rank),
        chunks(g, kMostChunks, most_copies()),
        pass(g, inputs, chunks.bands.along, true, to.net != nullptr), lanes(pass.lanes), panels(g.p.in_channels, 1),
        mixing_size(lanes.strips * g.p.in_channels * kWidth),
        functions(to.weights ? g.p.rank : g.p.rank - 1), mixing(panels.count() * lanes.pitch * kWidth),
        mixing_parts(to.mixing ? chunks.count * mixing_size : 0),
        basis_parts(to.weights && chunks.copies > 1 ? chunks.copies * basis_size : 0),
        net_parts(to.net ? chunks.count * pass.basis.gradients_size() : 0) {
    fill_zero(mixing.data(), panels.count() * lanes.pitch * kWidth);
    lanes.for_each([&](int64_t lane, int64_t r, int64_t co) {
      for (int64_t ci = 0; ci < g.p.in_channels; ++ci)
        mixing[(ci / kWidth * lanes.pitch + lane) * kWidth + ci % kWidth] = in.mixing[element(r, co, ci)];
    });
  }

  void run() const {
#pragma omp parallel num_threads(g.team(g.work))
    {
      if (to.x) fill_zero_together(to.x, g.p.batch * g.in_pixels * g.p.in_channels);
      if (to.weights) fill_zero_together(basis_part(0), chunks.copies * basis_size);
      for (int64_t turn = 0; turn < chunks.turns(); ++turn) {
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < chunks.count_in(turn); ++i) run_chunk(i * chunks.turns() + turn);
      }
    }
    add_up();
  }

 private:
  static constexpr int64_t kMostChunks = 16, kCopiesBytes = 16 << 20;

  // Element (r, co, ci) of mixing.
  int64_t element(int64_t r, int64_t co, int64_t ci) const {
    return (r * g.p.out_channels + co) * g.p.in_channels + ci;
  }

  int64_t most_copies() const {
    return to.weights ? most(1, least(kMostChunks, kCopiesBytes / most(1, 4 * basis_size))) : 0;
  }
  float* basis_part(int64_t chunk) const {
    return chunks.copies > 1 ? basis_parts.data() + chunk * basis_size : to.weights;
  }

  void run_chunk(int64_t chunk) const {
    if (to.mixing) fill_zero(mixing_parts.data() + chunk * mixing_size, mixing_size);
    if (to.net) fill_zero(net_part(chunk), pass.basis.gradients_size());
    chunks.for_each_range(chunk, [&](int64_t low, int64_t high) {
      pass.for_each_cell(chunks.image0(chunk), chunks.image1(chunk), low, high,
                         [&](const Patch& patch) { run_cell(chunk, patch); });
    });
  }

  float* net_part(int64_t chunk) const { return net_parts.data() + chunk * pass.basis.gradients_size(); }

  void run_cell(int64_t chunk, const Patch& patch) const {
    const int me = omp_get_thread_num();
    const bool basis_wanted = to.weights || to.net, down = to.x || to.mixing;
    const int64_t image0 = patch.cell.image0, count = patch.cell.image1 - image0;
    for (int64_t n = 0; n < count; ++n) {
      if (basis_wanted) pass.make_u(patch, image0 + n, pass.u_of(me, n));
      if (down) fill_zero(pass.du_of(me, n), patch.slots() * lanes.pitch);
    }
    pass.for_each_block(patch, [&](const FewOutputs::Pixels& pixels) {
      float* gradients = to.weights ? basis_part(chunk) : to.net ? pass.basis.fresh_gradients(pixels.run) : nullptr;
      for (int64_t n = 0; n < count; ++n) {
        const float* grad_y = in.grad_y + ((image0 + n) * g.out_pixels + pixels.run.first) * g.p.out_channels;
        if (down) scatter(pixels, grad_y, pass.du_of(me, n));
        if (basis_wanted) add_basis(pixels, grad_y, pass.u_of(me, n), gradients);
      }
      if (to.net) pass.basis.add_gradients(pixels.run, net_part(chunk));
    });
    for (int64_t n = 0; n < count && down; ++n) {
      const FewOutputs::Slots slots = pass.slots_of(patch, image0 + n, pass.du_of(me, n));
      if (to.x) add_x(slots, to.x + (image0 + n) * g.in_pixels * g.p.in_channels);
      if (to.mixing) add_mixing(slots, mixing_parts.data() + chunk * mixing_size);
    }
  }

  // du += basis * grad_y at the taps of some pixels
  CONTCONV_APART void scatter(const FewOutputs::Pixels& pixels, const float* grad_y, float* du) const {
    const int64_t taps = g.taps, rank = lanes.rank, channels = lanes.channels, left = lanes.left, whole = rank - left;
    const int64_t step = lanes.channel_start(1), left_first = lanes.left_start(0), *tap = pixels.tap;
    const int64_t left_step = lanes.left_vecs * kLanes;
    for (int64_t k = 0; k < pixels.run.count; ++k, grad_y += channels) {
      const float* values = pixels.samples + pixels.run.sample[k] * taps * rank;
      float* window = du + pixels.start[k];
      for (int64_t t = 0; t < taps; ++t, values += rank) {
        float* under = window + tap[t];
        for (int64_t r = 0; r < whole; r += kLanes) {
          const Vec function = load_lanes(values + r, whole - r);
          for (int64_t co = 0; co < channels; ++co) {
            float* target = under + co * step + r;
            store_lanes(target, load_lanes(target, whole - r) + function * broadcast(grad_y[co]), whole - r);
          }
        }
        for (int64_t r = 0; r < left; ++r)
          for (int64_t co = 0; co < channels; ++co)
            under[left_first + r * left_step + co] += values[whole + r] * grad_y[co];
      }
    }
  }

  // gradients[sample][tap][r] += sum over channels of u * grad_y
  CONTCONV_APART void add_basis(const FewOutputs::Pixels& pixels, const float* grad_y, const float* u,
                                float* gradients) const {
    const int64_t taps = g.taps, rank = lanes.rank, channels = lanes.channels, whole = rank - lanes.left;
    const int64_t step = lanes.channel_start(1), left_first = lanes.left_start(0), *tap = pixels.tap;
    const int64_t left = functions - whole, left_step = lanes.left_vecs * kLanes;
    for (int64_t k = 0; k < pixels.run.count; ++k, grad_y += channels) {
      float* gradient = gradients + pixels.run.sample[k] * taps * rank;
      const float* window = u + pixels.start[k];
      for (int64_t t = 0; t < taps; ++t, gradient += rank) {
        const float* under = window + tap[t];
        for (int64_t r = 0; r < whole; r += kLanes) {
          Vec sum = load_lanes(gradient + r, whole - r);
          for (int64_t co = 0; co < channels; ++co)
            sum += load_lanes(under + co * step + r, whole - r) * broadcast(grad_y[co]);
          store_lanes(gradient + r, sum, whole - r);
        }
        for (int64_t r = 0; r < left; ++r)
          for (int64_t co = 0; co < channels; ++co)
            gradient[whole + r] += under[left_first + r * left_step + co] * grad_y[co];
      }
    }
  }

  // grad_x[pixel of a slot] += sum over lanes of du[slot] * mixing, in order: a pixel may have several slots
  CONTCONV_APART void add_x(const FewOutputs::Slots& slots, float* grad_x) const {
    const int64_t depth = lanes.pitch, channels = g.p.in_channels, *source = slots.source;
    float* const* du = slots.u;
    for (int64_t j = 0; j < panels.count(); ++j) {
      const Panel panel = panels[j];
      const float* packed = mixing.data() + j * depth * kWidth;
      for_each_tile(slots.count, panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
        Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
        dot_tile(acc, du + first, 0, 1, 0, depth, packed, 0);
        acc.for_each([&](int i, int v, Vec value) {
          const int64_t rest = panel.lanes - v * kLanes;
          float* target = grad_x + source[first + i] * channels + panel.first + v * kLanes;
          store_lanes(target, load_lanes(target, rest) + value, rest);
        });
      });
    }
  }

  // part[strip][ci][kWidth] += sum over slots of x[ci] * du
  CONTCONV_APART void add_mixing(const FewOutputs::Slots& slots, float* part) const {
    const int64_t channels = g.p.in_channels;
    float** du = slots.u;
    for (int64_t s = 0; s < lanes.strips; ++s, part += channels * kWidth) {
      for (int64_t k = 0; k < slots.count; k += kLongestSum) {
        for_each_tile(channels, kVecs, [&](int64_t first, auto tile_rows, auto vecs) {
          Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
          outer_rows_tile<true>(acc, slots.x + k, first, least(kLongestSum, slots.count - k), du + k, kWidth);
          acc.for_each([&](int i, int v, Vec value) {
            float* target = part + (first + i) * kWidth + v * kLanes;
            store(target, load(target) + value);
          });
        });
      }
      for (int64_t k = 0; k < slots.count; ++k) du[k] += kWidth;
    }
  }

  void add_up() const {
    if (to.weights && chunks.copies > 1)
      add_parts(to.weights, basis_parts.data(), basis_size, chunks.copies, g.team(chunks.copies * basis_size));
    if (to.net) {
      const Buffer<float> sums(pass.basis.gradients_size());
      add_parts(sums.data(), net_parts.data(), pass.basis.gradients_size(), chunks.count, 1);
      pass.basis.hand_out(sums.data(), *to.net);
    }
    if (!to.mixing) return;
    const Buffer<float> sums(mixing_size);
    add_parts(sums.data(), mixing_parts.data(), mixing_size, chunks.count, g.team(chunks.count * mixing_size));
    lanes.for_each([&](int64_t lane, int64_t r, int64_t co) {
      for (int64_t ci = 0; ci < g.p.in_channels; ++ci)
        to.mixing[element(r, co, ci)] = sums[(lane / kWidth * g.p.in_channels + ci) * kWidth + lane % kWidth];
    });
  }

  const Geometry& g;
  const ContconvInputs& in;
  const ContconvGradients& to;
  const int64_t basis_size;
  const Chunks chunks;
  const FewOutputs pass;
  const FewLanes& lanes;
  const PanelSet panels;              // of input channels
  const int64_t mixing_size;
  const int64_t functions;            // whose gradients are wanted: a net's last one is a constant
  const Buffer<float> mixing;         // [panels][pitch][kWidth]
  const Buffer<float> mixing_parts;   // [chunks][strips][ci][kWidth]
  const Buffer<float> basis_parts;    // [copies][classes][T][rank], if there are several
  const Buffer<float> net_parts;      // [chunks][gradients of the net]
};

}  // namespace
}  // namespace contconv
