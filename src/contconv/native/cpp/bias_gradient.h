// The gradient of the bias: grad_y summed over all pixels.
#pragma once
#include <omp.h>

#include "panels.h"

namespace contconv {
namespace {

// to[kWidth] += the sum of rows[count][kWidth]
CONTCONV_APART void add_rows(const float* rows, int64_t count, float* to) {
  Tile<4, kVecs> sum;   // four at a time: one would wait for itself
  int64_t i = 0;
  for (; i + 4 <= count; i += 4)
    sum.for_each([&](int n, int v, Vec& value) { value += load(rows + (i + n) * kWidth + v * kLanes); });
  for (; i < count; ++i)
    for (int v = 0; v < kVecs; ++v) sum.at[0][v] += load(rows + i * kWidth + v * kLanes);
  for (int v = 0; v < kVecs; ++v) {
    const Vec total = (sum.at[0][v] + sum.at[1][v]) + (sum.at[2][v] + sum.at[3][v]);
    store(to + v * kLanes, load(to + v * kLanes) + total);
  }
}

// Sums of parts of grad_y, as many whatever the number of threads, which are added up in order.
class BiasSums {
 public:
  // Nothing at all where `wanted` is null.
  BiasSums(const PanelSet& panels_, int64_t parts_, float* wanted)
      : panels(panels_), parts(wanted ? parts_ : 0), to(wanted), sums(parts * panels.count() * kWidth) {
    fill_zero(sums.data(), parts * panels.count() * kWidth);
  }

  // Rows of grad_y, lanes of a panel, join a part.
  void add(int64_t part, int64_t panel, const float* rows, int64_t count) const {
    if (to) add_rows(rows, count, sums.data() + (part * panels.count() + panel) * kWidth);
  }

  void hand_out() const {
    for (int64_t j = 0; to && j < panels.count(); ++j) {
      const Panel panel = panels[j];
      float* target = to + panel.group * panels.group_channels + panel.first;
      for (int64_t lane = 0; lane < panel.lanes; ++lane) {
        float total = 0;
        for (int64_t part = 0; part < parts; ++part) total += sums[(part * panels.count() + j) * kWidth + lane];
        target[lane] = total;
      }
    }
  }

 private:
  const PanelSet panels;
  const int64_t parts;
  float* to;
  const Buffer<float> sums;   // [parts][panels][kWidth]
};

// By itself, where nothing else passes over all of grad_y.
class BiasGradient {
 public:
  BiasGradient(const Geometry& geometry, const float* grad_y_, float* to)
      : g(geometry), grad_y(grad_y_), pixels(g.p.batch * g.out_pixels), blocks(ceil_div(pixels, kBlock)),
        panels(g.p.out_channels, 1), sums(panels, most(1, least(kParts, blocks)), to),
        parts(most(1, least(kParts, blocks))), rows(g.p.threads, kBlock * kWidth) {}

  void run() const {
#pragma omp parallel for num_threads(g.team(pixels * g.p.out_channels)) schedule(static)
    for (int64_t part = 0; part < parts; ++part)
      for (int64_t b = part * blocks / parts; b < (part + 1) * blocks / parts; ++b)
        for (int64_t j = 0; j < panels.count(); ++j) add_block(part, j, b * kBlock, least(pixels, (b + 1) * kBlock));
    sums.hand_out();
  }

 private:
  static constexpr int64_t kBlock = 64, kParts = 16;

  void add_block(int64_t part, int64_t j, int64_t first, int64_t last) const {
    const Panel panel = panels[j];
    float* to = rows.of(omp_get_thread_num());
    for (int64_t i = first; i < last; ++i)
      for (int v = 0; v < kVecs; ++v) {
        const float* from = grad_y + i * g.p.out_channels + panel.first + v * kLanes;
        store(to + (i - first) * kWidth + v * kLanes, load_lanes(from, panel.lanes - v * kLanes));
      }
    sums.add(part, j, to, last - first);
  }

  const Geometry& g;
  const float* grad_y;
  const int64_t pixels, blocks;
  const PanelSet panels;
  const BiasSums sums;
  const int64_t parts;
  const PerThread<float> rows;   // [kBlock][kWidth]
};

}  // namespace
}  // namespace contconv
