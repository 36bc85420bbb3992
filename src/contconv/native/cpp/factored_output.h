// Algorithm "factored at the output", forward: z = basis . x at each output pixel, then y = mixing . z. What is known of a
// run of pixels, and a basis that is made for them, serve one image after the other.
#pragma once
#include <omp.h>

#include "panels.h"
#include "pixel_basis.h"

namespace contconv {
namespace {

// Pointers to the taps of one pixel, as register tiles want them.
struct TapRows {
  const float** basis;  // [T]: rank values each
  const float** x;      // [T]: the channels of the input pixel
};

inline void taps_of_pixel(const Geometry& g, const float* x, const float* basis, const PixelRun& run, int64_t i,
                          const TapRows& to) {
  basis += run.sample[i] * g.taps * g.p.rank;
  for (int64_t p = 0; p < run.taps[i]; ++p) {
    to.basis[p] = basis + run.tap[i * g.taps + p] * g.p.rank;
    to.x[p] = x ? x + run.source[i * g.taps + p] * g.p.in_channels : nullptr;
  }
}

// to[i * step + lane] = sum over taps of left[tap][i] * right[tap][offset + lane], for i < count and so many lanes
CONTCONV_APART void sum_over_taps(int64_t taps, const float* const* left, int64_t count, const float* const* right,
                                  int64_t offset, int64_t lanes, float* to, int64_t step, const float** rows) {
  for (int64_t p = 0; p < taps; ++p) rows[p] = right[p] + offset;
  for (int64_t p = 0; p < most(1, taps); p += kLongestSum) {
    const int64_t terms = least(kLongestSum, taps - p);
    for_each_tile(count, lanes > kLanes ? 2 : 1, [&](int64_t first, auto tile_rows, auto vecs) {
      Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
      if (lanes % kLanes == 0) {
        outer_rows_tile<true>(acc, left + p, first, terms, rows + p, lanes);
      } else {
        outer_rows_tile<false>(acc, left + p, first, terms, rows + p, lanes);
      }
      acc.for_each([&](int i, int v, Vec value) {
        float* target = to + (first + i) * step + v * kLanes;
        const int64_t rest = lanes - v * kLanes;
        store_lanes(target, p == 0 ? value : load_lanes(target, rest) + value, rest);
      });
    });
  }
}

// Whether the lanes of z are basis functions, [ci][rank], as input channels are too few to fill a vector: [rank][ci].
inline bool lanes_are_functions(const Geometry& g) {
  const bool few = g.p.groups == 1 && g.group_in <= kLanes;
  return few && g.group_in * ceil_div(g.p.rank, kLanes) < g.p.rank;
}

// z of one pixel, lanes being functions
inline void make_turned_z(int64_t rank, int64_t channels, int64_t taps, const TapRows& from, float* z,
                          const float** rows) {
  for (int64_t r = 0; r < rank; r += kWidth)
    sum_over_taps(taps, from.x, channels, from.basis, r, least(kWidth, rank - r), z + r, rank, rows);
}

class FactoredOutput {
 public:
  FactoredOutput(const Geometry& geometry, const ContconvInputs& inputs, float* y_)
      : g(geometry), in(inputs), y(y_), panels(g.group_out, g.p.groups), depth(g.p.rank * g.group_in),
        block(PixelBasis::most_pixels(g, in, least(96, most(1, kBlockBytes / (4 * depth) / kRows) * kRows))),
        turned(lanes_are_functions(g)), mixing(panels.count() * depth * kWidth), runs(g, block), basis(g, in, block, false),
        z(g.p.threads, block * depth), rows(g.p.threads, 3 * g.taps + block) {
    const int64_t matrix = g.p.out_channels * g.group_in;
    const Strides s = turned ? Strides{g.group_in, 1, g.p.rank, matrix, g.group_in}
                             : Strides{g.p.rank, matrix, g.group_in, 1, g.group_in};
#pragma omp parallel for num_threads(g.team(panels.count() * depth * kWidth)) schedule(static)
    for (int64_t j = 0; j < panels.count(); ++j) {
      const Panel panel = panels[j];
      const float* from = in.mixing + (panel.group * g.group_out + panel.first) * g.group_in;
      pack(mixing.data() + j * depth * kWidth, from, s, panel.lanes, s.inner * kWidth);
    }
  }

  void run() const {
    const int64_t blocks = ceil_div(g.out_pixels, block), parts = least(g.p.batch, ceil_div(kShares, most(1, blocks)));
#pragma omp parallel for num_threads(g.team(g.work)) schedule(dynamic, 1)
    for (int64_t i = 0; i < blocks * parts; ++i) {
      const int64_t b = i / parts, part = i % parts;
      const PixelRun run = runs.run(omp_get_thread_num(), b * block, least(g.out_pixels, (b + 1) * block));
      const float* samples = basis.of(run);
      for (int64_t image = part * g.p.batch / parts; image < (part + 1) * g.p.batch / parts; ++image)
        for (int64_t group = 0; group < g.p.groups; ++group) {
          make_z(run, image, samples, group);
          for (int64_t j = 0; j < panels.per_group; ++j) mix(run, image, group * panels.per_group + j);
        }
    }
  }

 private:
  static constexpr int64_t kBlockBytes = 128 << 10, kShares = 16;

  // z[pixel][rank][ci of the group], or turned
  void make_z(const PixelRun& run, int64_t image, const float* samples, int64_t group) const {
    const int me = omp_get_thread_num();
    const float* x = in.x + image * g.in_pixels * g.p.in_channels;
    const float** own = rows.of(me);
    const TapRows taps{own, own + g.taps};
    for (int64_t i = 0; i < run.count; ++i) {
      taps_of_pixel(g, x, samples, run, i, taps);
      float* to = z.of(me) + i * depth;
      if (turned) {
        make_turned_z(g.p.rank, g.group_in, run.taps[i], taps, to, own + 2 * g.taps);
        continue;
      }
      for (int64_t first = 0; first < g.group_in; first += kWidth)
        sum_over_taps(run.taps[i], taps.basis, g.p.rank, taps.x, group * g.group_in + first,
                      least(kWidth, g.group_in - first), to + first, g.group_in, own + 2 * g.taps);
    }
  }

  void mix(const PixelRun& run, int64_t image, int64_t j) const {
    const int me = omp_get_thread_num();
    const float** z_rows = rows.of(me) + 3 * g.taps;
    for (int64_t i = 0; i < run.count; ++i) z_rows[i] = z.of(me) + i * depth;
    for (int64_t k = 0; k < depth; k += kLongestSum) mix_terms(run, image, j, z_rows, k, least(depth, k + kLongestSum));
  }

  // y[pixels of the run, lanes of a panel] = mixing . z over some terms + (bias or, where terms were added before, y)
  CONTCONV_APART void mix_terms(const PixelRun& run, int64_t image, int64_t j, const float* const* z_rows, int64_t k0,
                                int64_t k1) const {
    const Panel panel = panels[j];
    const int64_t first_pixel = image * g.out_pixels + run.first;
    const int64_t channel = panel.group * g.group_out + panel.first;
    for_each_tile(run.count, panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
      Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
      dot_tile(acc, z_rows + first, 0, 1, k0, k1 - k0, mixing.data() + (j * depth + k0) * kWidth, 0);
      acc.for_each([&](int i, int v, Vec value) {
        const int64_t lanes = panel.lanes - v * kLanes;
        float* to = y + (first_pixel + first + i) * g.p.out_channels + channel + v * kLanes;
        if (k0 > 0) {
          value += load_lanes(to, lanes);
        } else if (in.bias) {
          value += load_lanes(in.bias + channel + v * kLanes, lanes);
        }
        store_lanes(to, value, lanes);
      });
    });
  }

  const Geometry& g;
  const ContconvInputs& in;
  float* y;
  const PanelSet panels;
  const int64_t depth, block;        // rank * ci of a group; pixels of a block
  const bool turned;                 // z lies as [ci][rank], and so does mixing
  const Buffer<float> mixing;        // [panels][rank][ci][kWidth]
  const PixelRuns runs;
  const PixelBasis basis;
  const PerThread<float> z;          // [block][rank][ci]
  const PerThread<const float*> rows;
};

}  // namespace
}  // namespace contconv
