// Algorithm "filters", gradients of the weights: the filter gradient of a class in cache, contracted on the spot with
// mixing and basis (or handed out, where the filters themselves are the weights).
#pragma once
#include "apply.h"

namespace contconv {
namespace {

// to[ci][T][kWidth] += sum over the rows of a block of x[row under tap t, ci] * grad_y[row, lanes]
CONTCONV_APART void add_filter_gradient(const Filters& f, const Panel& panel, const BlockRows& rows, const float* grad_y,
                                float* to) {
  const Geometry& g = f.g;
  const int64_t offset = panel.group * g.group_in;
  for (int64_t t = 0; t < g.taps; ++t) {
    for_each_tile(g.group_in, panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
      constexpr int Rows = decltype(tile_rows)::value, Vecs = decltype(vecs)::value;
      Tile<Rows, Vecs> acc;
      outer_tile(acc, rows.in + t * g.block_rows, offset + first, rows.count, grad_y);
      acc.for_each([&](int i, int v, Vec value) {
        float* target = to + ((first + i) * g.taps + t) * kWidth + v * kLanes;
        store(target, load(target) + value);
      });
    });
  }
}

// to[rows][kWidth] = grad_y of a block's rows at the lanes of a panel, padded with zeros
inline void pack_grad_y(const Geometry& g, const Panel& panel, const BlockRows& rows, const float* grad_y, float* to) {
  const float* from = grad_y + panel.group * g.group_out + panel.first;
  for (int64_t i = 0; i < rows.count; ++i, to += kWidth) {
    const float* row = from + rows.out[i] * g.p.out_channels;
    for (int v = 0; v < kVecs; ++v) store(to + v * kLanes, load_lanes(row + v * kLanes, panel.lanes - v * kLanes));
  }
}

// mixing_gradient[row][r][kWidth] += sum over t of basis[t, r] * filter_gradient[row][t][kWidth]
// `basis_rows[r]` is the column r of the class's basis, T long and contiguous.
CONTCONV_APART void add_mixing_gradient(const Filters& f, const Panel& panel, const float* const* basis_rows, int64_t taps,
                                const float* filter_gradient, float* to) {
  for_each_tile(f.rank, panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
    constexpr int Rows = decltype(tile_rows)::value, Vecs = decltype(vecs)::value;
    for (int64_t k = 0; k < f.rows; ++k) {
      float* target = to + (k * f.rank + first) * kWidth;
      Tile<Rows, Vecs> acc;
      acc.for_each([&](int i, int v, Vec& value) { value = load(target + i * kWidth + v * kLanes); });
      dot_tile(acc, basis_rows + first, 0, 1, 0, taps, filter_gradient + k * f.g.taps * kWidth, 0);
      acc.for_each([&](int i, int v, Vec value) { store(target + i * kWidth + v * kLanes, value); });
    }
  });
}

// to[t][r] = sum over rows and lanes of filter_gradient[row][t][lane] * mixing[row][r][lane]
CONTCONV_APART void basis_gradient(const Filters& f, const Panel& panel, const float* mixing, int64_t taps,
                           const float* filter_gradient, float* to) {
  fill_zero(to, taps * f.rank);
  for_each_piece<3>(taps, [&](int64_t t, auto tile_taps) {
    const int64_t start[3] = {t * f.rank, (t + 1) * f.rank, (t + 2) * f.rank};
    for_each_piece<4>(f.rank, [&](int64_t r, auto tile_rank) {
      constexpr int Taps = decltype(tile_taps)::value, Rank = decltype(tile_rank)::value;
      Tile<Taps, Rank> acc;
      for (int64_t v = 0; v < panel.vecs(); ++v)
        lane_dot_tile(acc, f.rows, filter_gradient + t * kWidth + v * kLanes, kWidth, f.g.taps * kWidth,
                      mixing + r * kWidth + v * kLanes, kWidth, f.rank * kWidth);
      add_sums(acc, to + r, start);
    });
  });
}

// Partial sums are kept per chunk (of cells, or of classes), as many whatever the number of threads, and added up in
// order: results do not depend on who computed what.
class WeightGradient {
 public:
  WeightGradient(const Geometry& geometry, const ContconvInputs& inputs, const ContconvGradients& gradients)
      : g(geometry), in(inputs), to(gradients), f(g, inputs, Lanes::output), panels(f.panels.count()),
        resident(f.are_few()), filter_size(g.group_in * g.taps * kWidth), filters_size(g.classes * panels * filter_size),
        cell_chunks(resident ? cell_chunk_count() : 0), class_chunks(class_chunk_count()),
        mixing_size(f.mixings * f.mixing_size), filters(cell_chunks * filters_size),
        mixing_parts(g.p.rank > 0 && to.mixing ? panels * class_chunks * mixing_size : 0),
        basis_parts(g.p.rank > 0 && to.weights ? panels * g.classes * g.taps * g.p.rank : 0),
        floats(g.p.threads, filter_size + g.block_rows * kWidth + g.taps * g.p.rank),
        basis_rows_of(g.p.threads, g.p.rank), scratch(g) {}

  void run() const {
    if (resident) sum_over_cells();
    const int team = g.team((resident ? 0 : g.work) + filters_size * most(1, f.rank));
#pragma omp parallel for num_threads(team) schedule(dynamic, 1)
    for (int64_t i = 0; i < panels * class_chunks; ++i) contract_share(i % panels, i / panels);
    if (g.p.rank > 0) add_up();
  }

 private:
  static constexpr int64_t kCellBytes = 256 << 10;

  // Each chunk of cells costs a copy of all filters.
  int64_t cell_chunk_count() const {
    const int64_t affordable = most(4, (4 << 20) / most(1, 4 * filters_size));
    return most(1, least(least(affordable, 16), Cells::of_size(g, kCellBytes).count()));
  }

  // With filters as weights nothing is shared between classes. Else each chunk costs a copy of mixing's gradient.
  int64_t class_chunk_count() const {
    if (g.p.rank == 0) return g.classes;
    const int64_t affordable = most(4, (8 << 20) / most(1, 4 * panels * f.mixings * f.mixing_size));
    return most(1, least(least(g.classes, affordable), ceil_div(32, panels)));
  }

  // Few classes: go through the batch once, with the filter gradients of all classes at hand.
  void sum_over_cells() const {
    const Cells cells = Cells::of_size(g, kCellBytes);
    const int64_t parts = cell_chunks >= 16 ? 1 : panels;
#pragma omp parallel num_threads(g.team(g.work))
    {
#pragma omp for schedule(dynamic, 1)
      for (int64_t i = 0; i < cell_chunks * parts; ++i) {
        const int64_t chunk = i / parts, panel0 = i % parts * panels / parts, panel1 = (i % parts + 1) * panels / parts;
        float* sums = filters.data() + chunk * filters_size;
        for (int64_t c = 0; c < g.classes; ++c)
          fill_zero(sums + (c * panels + panel0) * filter_size, (panel1 - panel0) * filter_size);
        for (int64_t j = chunk * cells.count() / cell_chunks; j < (chunk + 1) * cells.count() / cell_chunks; ++j)
          for (int64_t c = 0; c < g.classes; ++c) add_class(cells[j], c, panel0, panel1, sums + c * panels * filter_size);
      }
#pragma omp for schedule(static)
      for (int64_t i = 0; i < filters_size; ++i)
        for (int64_t chunk = 1; chunk < cell_chunks; ++chunk) filters[i] += filters[chunk * filters_size + i];
    }
  }

  // sums[panel][ci][T][kWidth] += the filter gradient of a class over a cell
  void add_class(const Cell& cell, int64_t class_index, int64_t panel0, int64_t panel1, float* sums) const {
    const PixelClass c = g.pixel_class(class_index, cell.low, cell.high);
    if (c.pixels == 0) return;
    const int me = omp_get_thread_num();
    float* grad_y = floats.of(me) + filter_size;
    const Blocks blocks(g, c, cell.image0, cell.image1);
    for (int64_t b = 0; b < blocks.count(); ++b) {
      const BlockRows rows = scratch.rows_of(me, c, blocks[b], in.x);
      for (int64_t j = panel0; j < panel1; ++j) {
        pack_grad_y(g, f.panels[j], rows, in.grad_y, grad_y);
        add_filter_gradient(f, f.panels[j], rows, grad_y, sums + j * filter_size);
      }
    }
  }

  void contract_share(int64_t panel, int64_t chunk) const {
    float* sums = g.p.rank > 0 && to.mixing ? mixing_parts.data() + (panel * class_chunks + chunk) * mixing_size : nullptr;
    if (sums) fill_zero(sums, mixing_size);
    for (int64_t c = chunk * g.classes / class_chunks; c < (chunk + 1) * g.classes / class_chunks; ++c) {
      float* filter = resident ? filters.data() + (c * panels + panel) * filter_size : floats.of(omp_get_thread_num());
      if (!resident) {
        fill_zero(filter, filter_size);
        add_class(Cells::whole(g)[0], c, panel, panel + 1, filter - panel * filter_size);
      }
      if (g.p.rank == 0) {
        hand_out(c, panel, filter);
      } else {
        contract(c, panel, filter, sums);
      }
    }
  }

  void contract(int64_t c, int64_t panel, const float* filter, float* sums) const {
    const int me = omp_get_thread_num();
    const float* basis = in.weights + c * g.taps * f.rank;   // [T][rank]
    float* columns = floats.of(me) + filter_size + g.block_rows * kWidth;   // [rank][T]
    const float** basis_rows = basis_rows_of.of(me);
    for (int64_t r = 0; r < f.rank; ++r) {
      for (int64_t t = 0; t < g.taps; ++t) columns[r * g.taps + t] = basis[t * f.rank + r];
      basis_rows[r] = columns + r * g.taps;
    }
    float* basis_part = to.weights ? basis_parts.data() + (panel * g.classes + c) * g.taps * f.rank : nullptr;
    const int64_t taps = f.mixings > 1 ? 1 : g.taps;   // taps that share a mixing
    for (int64_t t = 0; t < g.taps; t += taps) {
      if (sums)
        add_mixing_gradient(f, f.panels[panel], basis_rows, taps, filter + t * kWidth,
                            sums + (f.mixings > 1 ? t : 0) * f.mixing_size);
      if (basis_part)
        basis_gradient(f, f.panels[panel], f.packed_mixing(panel, t), taps, filter + t * kWidth,
                       basis_part + t * f.rank);
      if (f.mixings > 1)
        for (int64_t r = 0; r < f.rank; ++r) ++basis_rows[r];
    }
  }

  void hand_out(int64_t c, int64_t panel, const float* filter) const {
    const Panel lanes = f.panels[panel];
    for (int64_t t = 0; t < g.taps; ++t) {
      float* target = to.weights + (c * g.taps + t) * f.matrix() + f.origin(lanes);
      for (int64_t lane = 0; lane < lanes.lanes; ++lane)
        for (int64_t k = 0; k < f.rows; ++k)
          target[lane * f.g.group_in + k] = filter[(k * g.taps + t) * kWidth + lane];
    }
  }

  void add_up() const {
    if (to.weights) add_parts(to.weights, basis_parts.data(), g.classes * g.taps * f.rank, panels, g.team(g.classes * g.taps * f.rank * panels));
    if (!to.mixing) return;
    const int64_t tap_size = f.rank * f.matrix();
    const Strides s = f.strides_of(f.rank, f.matrix());
#pragma omp parallel for num_threads(g.team(mixing_size * panels * class_chunks)) schedule(static)
    for (int64_t i = 0; i < panels * f.mixings; ++i) {
      const Panel panel = f.panels[i / f.mixings];
      float* parts = mixing_parts.data() + i / f.mixings * class_chunks * mixing_size + i % f.mixings * f.mixing_size;
      for (int64_t chunk = 1; chunk < class_chunks; ++chunk)
        for (int64_t k = 0; k < f.mixing_size; ++k) parts[k] += parts[chunk * mixing_size + k];
      unpack(to.mixing + i % f.mixings * tap_size + f.origin(panel), parts, s, panel.lanes, f.rank * kWidth);
    }
  }

  const Geometry& g;
  const ContconvInputs& in;
  const ContconvGradients& to;
  const Filters f;
  const int64_t panels;
  const bool resident;
  const int64_t filter_size, filters_size, cell_chunks, class_chunks, mixing_size;
  const Buffer<float> filters;       // [cell_chunks][classes][panels][ci][T][kWidth]
  const Buffer<float> mixing_parts;  // [panels][class_chunks][mixings][ci][rank][kWidth]
  const Buffer<float> basis_parts;   // [panels][classes][T][rank]
  const PerThread<float> floats;     // filter gradient of a panel, a block of grad_y, the class's basis transposed
  const PerThread<const float*> basis_rows_of;
  const BlockScratch scratch;
};

}  // namespace
}  // namespace contconv
