// Algorithm "filters" with many of them, gradients of the weights: the filter gradient of a class in cache, contracted on
// the spot with mixing and basis (or handed out, where the filters themselves are the weights); the gradient of the bias
// besides. Where input channels are few, grad_y is far more than all else: the gradient of x is made on the same way then.
#pragma once
#include <optional>

#include "bands.h"
#include "bias_gradient.h"
#include "grad_input.h"

namespace contconv {
namespace {

// The gradients of the filters of a few classes, lanes of one panel: [ci][classes and taps][kWidth]. What shares a
// mixing lies side by side, so that a register tile runs through it: all classes and taps (taps innermost) or, where
// every tap has a mixing of its own, all classes of a tap.
struct FilterGradients {
  int64_t classes, taps;
  int64_t class_step, tap_step;   // in vectors of kWidth

  FilterGradients(const Filters& f, int64_t classes_)
      : classes(classes_), taps(f.g.taps), class_step(f.mixings > 1 ? 1 : taps),
        tap_step(f.mixings > 1 ? classes : 1) {}
  int64_t pitch() const { return classes * taps * kWidth; }   // from one input channel to the next
  int64_t index(int64_t c, int64_t tap) const { return c * class_step + tap * tap_step; }
};

// to[ci][t][kWidth] = (what is there, unless `fresh`) + sum over a block's rows of x[row under tap t, ci] * grad_y[row]
// `starts[j]` is where element j of a window (joined tap, ci) goes, `run_step` how far apart runs are.
CONTCONV_APART void add_filter_gradient(const Geometry& g, const Panel& panel, const BlockRows& rows,
                                        const float* grad_y, const int64_t* starts, int64_t run_step, bool fresh,
                                        float* to) {
  const int64_t offset = panel.group * g.group_in, window = g.window, runs = g.runs, count = rows.count;
  const float* const* in = rows.in;
  for (int64_t r = 0; r < runs; ++r, to += run_step, in += g.block_rows) {
    for_each_tile(window, panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
      constexpr int Rows = decltype(tile_rows)::value, Vecs = decltype(vecs)::value;
      Tile<Rows, Vecs> acc;
      outer_tile(acc, in, offset + first, count, grad_y);
      float* target[Rows];
      for (int i = 0; i < Rows; ++i) target[i] = to + starts[first + i];
      acc.for_each([&](int i, int v, Vec value) {
        float* sum = target[i] + v * kLanes;
        store(sum, fresh ? value : load(sum) + value);
      });
    });
  }
}

// to[rows][kWidth] = grad_y of a block's rows at the lanes of a panel, padded with zeros
inline void pack_grad_y(const Geometry& g, const Panel& panel, const BlockRows& rows, const float* grad_y, float* to) {
  const float* from = grad_y + panel.group * g.group_out + panel.first;
  const int64_t lanes = panel.lanes, pitch = g.p.out_channels, count = rows.count, *out = rows.out;
  for (int64_t i = 0; i < count; ++i, to += kWidth)
    for (int v = 0; v < kVecs; ++v)
      store(to + v * kLanes, load_lanes(from + out[i] * pitch + v * kLanes, lanes - v * kLanes));
}

// mixing_gradient[row][r][kWidth] += sum over k < depth of basis[k, r] * filter_gradient[row][k][kWidth]
// `basis_rows[r]` is column r of the basis, contiguous; rows of the filter gradient are `pitch` apart.
CONTCONV_APART void add_mixing_gradient(const Filters& f, const Panel& panel, const float* const* basis_rows,
                                        int64_t depth, const float* filter_gradient, int64_t pitch, float* to) {
  for_each_tile(f.rank, panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
    constexpr int Rows = decltype(tile_rows)::value, Vecs = decltype(vecs)::value;
    for (int64_t k = 0; k < f.rows; ++k) {
      for (int64_t term = 0; term < depth; term += kLongestSum) {
        Tile<Rows, Vecs> acc;
        dot_tile(acc, basis_rows + first, 0, 1, term, least(kLongestSum, depth - term),
                 filter_gradient + k * pitch + term * kWidth, 0);
        acc.for_each([&](int i, int v, Vec value) {
          float* target = to + (k * f.rank + first + i) * kWidth + v * kLanes;
          store(target, load(target) + value);
        });
      }
    }
  });
}

// The gradient of the basis: dot products of filter gradients and mixing, along rows and lanes. For as many functions as
// fill whole vectors those are the lanes of the sums, and mixing lies turned around; the few that are left are summed
// across vectors.
class BasisGradient {
 public:
  // `functions`: how many are wanted, the first ones
  BasisGradient(const Filters& filters, int64_t functions)
      : f(filters), side_by_side(functions / kLanes * kLanes), left(functions - side_by_side),
        turned_size(f.rows * kWidth * ceil_div(side_by_side, kWidth) * kWidth),
        turned(f.panels.count() * f.mixings * turned_size) {
#pragma omp parallel for num_threads(f.g.team(f.panels.count() * f.mixings * turned_size)) schedule(static)
    for (int64_t i = 0; i < f.panels.count() * f.mixings; ++i)
      turn(f.packed_mixing(i / f.mixings, i % f.mixings), turned.data() + i * turned_size);
  }

  // to[k * step + r] += sum over rows and lanes of filter_gradient[row][k][lane] * mixing[row][r][lane], for k < count
  void add(int64_t panel, int64_t tap, int64_t count, const float* filter_gradient, int64_t pitch, float* to,
           int64_t step) const {
    const float* mixing = turned.data() + (panel * f.mixings + (f.mixings > 1 ? tap : 0)) * turned_size;
    const Panel lanes = f.panels[panel];
    for (int64_t r = 0; r < side_by_side; r += kWidth, mixing += f.rows * kWidth * kWidth)
      add_lanes_of(lanes.lanes, least(kWidth, side_by_side - r), mixing, count, filter_gradient, pitch, to + r, step);
    if (left > 0)
      add_sums_of(lanes.vecs(), f.packed_mixing(panel, tap) + side_by_side * kWidth, count, filter_gradient, pitch,
                  to + side_by_side, step);
  }

 private:
  // to[r / kWidth][row][lane][r % kWidth] = from[row][r][lane]
  void turn(const float* from, float* to) const {
    for (int64_t r = 0; r < side_by_side; ++r)
      for (int64_t row = 0; row < f.rows; ++row) {
        float* column = to + (r / kWidth * f.rows + row) * kWidth * kWidth + r % kWidth;
        for (int64_t lane = 0; lane < kWidth; ++lane) column[lane * kWidth] = from[(row * f.rank + r) * kWidth + lane];
      }
  }

  CONTCONV_APART void add_lanes_of(int64_t lanes, int64_t functions, const float* mixing, int64_t count,
                                   const float* filter_gradient, int64_t pitch, float* to, int64_t step) const {
    const int64_t rows = f.rows;
    for_each_tile(count, ceil_div(functions, kLanes), [&](int64_t first, auto tile_rows, auto vecs) {
      constexpr int Rows = decltype(tile_rows)::value;
      const float* row[Rows];
      for (int i = 0; i < Rows; ++i) row[i] = filter_gradient + (first + i) * kWidth;
      for (int64_t k0 = 0; k0 < rows; k0 += kLongestSum / kWidth) {
        Tile<Rows, decltype(vecs)::value> acc;
        for (int64_t k = k0; k < least(rows, k0 + kLongestSum / kWidth); ++k)
          dot_tile(acc, row, 0, 1, k * pitch, lanes, mixing + k * kWidth * kWidth, 0);
        acc.for_each([&](int i, int v, Vec value) {
          float* target = to + (first + i) * step + v * kLanes;
          store(target, load(target) + value);
        });
      }
    });
  }

  CONTCONV_APART void add_sums_of(int64_t vecs, const float* mixing, int64_t count, const float* filter_gradient,
                                  int64_t pitch, float* to, int64_t step) const {
    for_each_piece<3>(count, [&](int64_t k, auto tile_count) {
      const int64_t start[3] = {k * step, (k + 1) * step, (k + 2) * step};
      for_each_piece<4>(left, [&](int64_t r, auto tile_rank) {
        Tile<decltype(tile_count)::value, decltype(tile_rank)::value> acc;
        for (int64_t v = 0; v < vecs; ++v)
          lane_dot_tile(acc, f.rows, filter_gradient + k * kWidth + v * kLanes, kWidth, pitch,
                        mixing + r * kWidth + v * kLanes, kWidth, f.rank * kWidth);
        add_sums(acc, to + r, start);
      });
    });
  }

  const Filters& f;
  const int64_t side_by_side, left, turned_size;
  const Buffer<float> turned;   // [panels][mixings][side_by_side / kWidth][rows][lanes][kWidth]
};

// Partial sums are kept per chunk of classes, as many whatever the number of threads, and added up in
// order: results do not depend on who computed what.
class WeightGradient {
 public:
  // With the gradient of x as well, if `grad_x` is not null, which needs bands.
  WeightGradient(const Geometry& geometry, const Windows& windows, const ContconvInputs& inputs,
                 const ContconvGradients& gradients, float* grad_x_ = nullptr)
      : g(geometry), in(inputs), to(gradients), grad_x(grad_x_), f(g, inputs, Lanes::output), panels(f.panels.count()),
        filter_size(g.group_in * g.taps * kWidth), few(f, classes_at_once()),
        bands(g, g.band_axis, Bands::Of::phases, scatters_in_bands(g) ? Bands::kMost : 1),
        class_chunks(bands.count > 1 ? bands.count : class_chunk_count()),
        panels_at_once(all_panels_at_once() ? panels : 1), mixing_size(f.mixings * f.mixing_size),
        mixing_parts(g.p.rank > 0 && to.mixing ? panels * class_chunks * mixing_size : 0),
        basis_parts(g.p.rank > 0 && to.weights ? panels * g.classes * g.taps * g.p.rank : 0),
        sums(g.p.threads, panels_at_once * few.classes * filter_size),
        floats(g.p.threads, few.classes * g.taps * g.p.rank + g.block_rows * kWidth),
        basis_rows_of(g.p.threads, g.p.rank), starts(g.window), bias(f.panels, class_chunks, to.bias), scratch(g, windows) {
    for (int64_t j = 0; j < g.window; ++j)
      starts[j] = j % g.group_in * few.pitch() + few.index(0, j / g.group_in) * kWidth;
    if (grad_x) scatter.emplace(g, windows, inputs, grad_x);
    if (g.p.rank > 0 && to.weights) of_basis.emplace(f, in.net ? f.rank - 1 : f.rank);
  }

  void run() const {
    const int64_t across = panels / panels_at_once;
#pragma omp parallel num_threads(g.team(g.work))
    {
      if (grad_x) clear_input_gradient(g, grad_x);
      const int64_t turns = grad_x ? bands.turns : 1;
      for (int64_t turn = 0; turn < turns; ++turn) {
        const int64_t chunks = grad_x ? bands.count_in(turn) : class_chunks;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < across * chunks; ++i)
          contract_share(i % across * panels_at_once, i / across * turns + turn);
      }
    }
    if (g.p.rank > 0) add_up();
    bias.hand_out();
  }

 private:
  static constexpr int64_t kFewClassesBytes = 192 << 10, kPanelsBytes = 512 << 10;
  static constexpr int64_t kLongEnough = 18;   // terms of a sum that hide what a register tile costs around it
  static constexpr int64_t kMostChunks = 16;

  // The first class of a chunk.
  int64_t class_of(int64_t chunk) const {
    return bands.count > 1 ? bands.first_class(chunk) : chunk * g.classes / class_chunks;
  }

  // Gradients of filters are contracted for a few classes together: one class is too short a sum.
  int64_t classes_at_once() const {
    if (f.rank == 0) return 1;
    const int64_t enough = ceil_div(kLongEnough, f.mixings > 1 ? 1 : g.taps);
    return most(1, least(enough, kFewClassesBytes / (4 * filter_size)));
  }

  // With filters as weights nothing is shared between classes. Else each chunk costs a copy of mixing's gradient.
  int64_t class_chunk_count() const {
    if (g.p.rank == 0) return g.classes;
    const int64_t affordable = most(4, (8 << 20) / most(1, 4 * panels * f.mixings * f.mixing_size));
    const int64_t enough = most(ceil_div(kMostChunks, panels), all_panels_at_once() ? kMostChunks / 2 : 1);
    return most(1, least(least(g.classes, affordable), enough));
  }

  // What is read for one panel serves the others, as long as the gradients of all stay in cache.
  bool all_panels_at_once() const { return grad_x || 4 * panels * few.classes * filter_size <= kPanelsBytes; }

  // to[panel][ci][T][kWidth] = (what is there, unless `fresh`) + the filter gradient of a class, lanes of some panels,
  // which are few.classes * filter_size apart
  void add_class(int64_t class_index, int64_t first_panel, int64_t chunk, bool fresh, float* to_) const {
    const PixelClass c = g.pixel_class(class_index);
    if (c.pixels == 0) return;
    const int me = omp_get_thread_num();
    float* grad_y = floats.of(me);
    const Blocks blocks(g, c, 0, g.p.batch);
    for (int64_t b = 0; b < blocks.count(); ++b) {
      const BlockRows rows = scratch.rows_of(me, c, blocks[b], in.x);
      for (int64_t j = 0; j < panels_at_once; ++j) {
        const Panel panel = f.panels[first_panel + j];
        pack_grad_y(g, panel, rows, in.grad_y, grad_y);
        bias.add(chunk, first_panel + j, grad_y, rows.count);
        add_filter_gradient(g, panel, rows, grad_y, starts.data(), few.index(0, g.joined) * kWidth, fresh && b == 0,
                            to_ + j * few.classes * filter_size);
      }
      if (scatter) scatter->add(c, blocks[b], [](int64_t) { return true; });
    }
  }

  void contract_share(int64_t first_panel, int64_t chunk) const {
    const bool mixes = g.p.rank > 0 && to.mixing;
    for (int64_t j = first_panel; j < first_panel + panels_at_once && mixes; ++j)
      fill_zero(mixing_part(j, chunk), mixing_size);
    const int64_t last = class_of(chunk + 1);
    for (int64_t c = class_of(chunk); c < last; c += few.classes) {
      const int64_t count = least(few.classes, last - c);
      float* filters = sums.of(omp_get_thread_num());
      const bool fresh = have_pixels(c, count);
      if (!fresh) fill_zero(filters, panels_at_once * few.classes * filter_size);
      for (int64_t i = 0; i < count; ++i)
        add_class(c + i, first_panel, chunk, fresh, filters + few.index(i, 0) * kWidth);
      for (int64_t j = first_panel; j < first_panel + panels_at_once; ++j, filters += few.classes * filter_size) {
        if (g.p.rank > 0) {
          contract(c, count, j, filters, mixes ? mixing_part(j, chunk) : nullptr);
        } else {
          for (int64_t i = 0; i < count; ++i) hand_out(c + i, j, filters + few.index(i, 0) * kWidth);
        }
      }
    }
  }

  float* mixing_part(int64_t panel, int64_t chunk) const {
    return mixing_parts.data() + (panel * class_chunks + chunk) * mixing_size;
  }

  bool have_pixels(int64_t c, int64_t count) const {
    for (int64_t i = 0; i < count; ++i)
      if (g.p.batch == 0 || g.pixel_class(c + i).pixels == 0) return false;
    return true;
  }

  // Adds the filter gradients of classes c .. c + count - 1 to those of mixing and basis.
  void contract(int64_t c, int64_t count, int64_t panel, const float* filter, float* mixing_sums) const {
    const int me = omp_get_thread_num();
    const float* basis = in.weights + c * g.taps * f.rank;   // [count][T][rank]
    float* columns = floats.of(me) + g.block_rows * kWidth;   // [rank][as few]
    const float** basis_rows = basis_rows_of.of(me);
    for (int64_t r = 0; r < f.rank; ++r) {
      basis_rows[r] = columns + r * few.classes * g.taps;
      for (int64_t i = 0; i < count; ++i)
        for (int64_t t = 0; t < g.taps; ++t)
          columns[r * few.classes * g.taps + few.index(i, t)] = basis[(i * g.taps + t) * f.rank + r];
    }
    float* basis_part = to.weights ? basis_parts.data() + (panel * g.classes + c) * g.taps * f.rank : nullptr;
    if (basis_part) fill_zero(basis_part, count * g.taps * f.rank);
    const int64_t depth = f.mixings > 1 ? count : count * g.taps;   // that share a mixing
    const int64_t step = f.mixings > 1 ? g.taps * f.rank : f.rank;
    for (int64_t t = 0; t < f.mixings; ++t, filter += few.tap_step * kWidth) {
      if (mixing_sums)
        add_mixing_gradient(f, f.panels[panel], basis_rows, depth, filter, few.pitch(), mixing_sums + t * f.mixing_size);
      if (basis_part)
        of_basis->add(panel, t, depth, filter, few.pitch(), basis_part + t * f.rank, step);
      for (int64_t r = 0; r < f.rank; ++r) basis_rows[r] += few.tap_step;
    }
  }

  void hand_out(int64_t c, int64_t panel, const float* filter) const {
    const Panel lanes = f.panels[panel];
    for (int64_t t = 0; t < g.taps; ++t) {
      float* target = to.weights + (c * g.taps + t) * f.matrix() + f.origin(lanes);
      for (int64_t lane = 0; lane < lanes.lanes; ++lane)
        for (int64_t k = 0; k < f.rows; ++k)
          target[lane * f.g.group_in + k] = filter[k * few.pitch() + few.index(0, t) * kWidth + lane];
    }
  }

  void add_up() const {
    const int64_t basis_size = g.classes * g.taps * f.rank;
    if (to.weights) add_parts(to.weights, basis_parts.data(), basis_size, panels, g.team(basis_size * panels));
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
  float* grad_x;                     // or null
  const Filters f;
  const int64_t panels;
  const int64_t filter_size;         // floats of one class's filter gradient, lanes of one panel
  const FilterGradients few;
  const Bands bands;                 // whose classes are chunks, where grad_x can come along
  const int64_t class_chunks, panels_at_once, mixing_size;
  const Buffer<float> mixing_parts;  // [panels][class_chunks][mixings][ci][rank][kWidth]
  const Buffer<float> basis_parts;   // [panels][classes][T][rank]
  const PerThread<float> sums;       // filter gradients of a few classes, lanes of the panels at once
  const PerThread<float> floats;     // a block of grad_y, those classes' basis
  const PerThread<const float*> basis_rows_of;
  const Buffer<int64_t> starts;      // [window]: where an element of a window is in the gradient of a filter
  const BiasSums bias;
  const RowScratch scratch;
  std::optional<WindowScatter> scatter;
  std::optional<BasisGradient> of_basis;
};

}  // namespace
}  // namespace contconv
