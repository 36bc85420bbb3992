// Algorithm "filters" where all of them fit into a cache: the gradients of x, and of the filters and the bias.
#pragma once
#include <optional>

#include "bias_gradient.h"
#include "few_filters.h"

namespace contconv {
namespace {

// Every pixel scatters grad_y . filter onto the windows under it, in a patch that is added to grad_x at last.
class alignas(kLine) PatchScatter {
 public:
  PatchScatter(const Geometry& geometry, const ContconvInputs& inputs, const Patches& patches_, float* grad_x_)
      : g(geometry), in(inputs), patches(patches_), grad_x(grad_x_), f(g, inputs.weights), run_size(g.group_out * kWidth),
        runs(g.runs / f.windows_at_once), packed(g.classes * runs * f.strips.count() * run_size),
        written(g.p.threads, patches.cells.images_per_cell) {
#pragma omp parallel for num_threads(g.team(4 * g.classes * runs * f.strips.count() * run_size)) schedule(static)
    for (int64_t i = 0; i < g.classes * runs * f.strips.count(); ++i) {
      const int64_t j = i % f.strips.count(), r = i / f.strips.count() % runs, c = i / f.strips.count() / runs;
      f.pack_strip(c, r, f.strips[j], packed.data() + i * run_size);
    }
  }

  // Before the first patch of some images, whose rows in range will be written.
  void begin(const Cell& images, const RowRange& range) const {
    for (int64_t n = images.image0; n < images.image1; ++n) written.of(omp_get_thread_num())[n - images.image0] = range.low;
  }

  // What rows of a class send. Their windows begin `shift` floats behind those that `rows` names.
  void add_block(int64_t c, const PatchRows& rows, const int64_t* starts, int64_t shift) const {
    if (f.windows_at_once > 1) return scatter_windows(packed.data() + c * run_size, rows, starts, shift);
    for (int64_t r = 0; r < runs; ++r)
      for (int64_t j = 0; j < f.strips.count(); ++j)
        scatter(f.strips[j], packed.data() + ((c * runs + r) * f.strips.count() + j) * run_size, rows, starts[r] + shift);
  }

  // grad_x[rows in range] += a patch
  void add_patch(const Patch& patch, float* data, const RowRange& range) const {
    patches.add(patch, data, range, written.of(omp_get_thread_num()), grad_x);
  }

  // After the last one.
  void end(const Cell& images, const RowRange& range) const {
    for (int64_t n = images.image0; n < images.image1; ++n)
      patches.zero_up_to(range.high, n, written.of(omp_get_thread_num()) + (n - images.image0), grad_x);
  }

 private:
  // patch[windows of the rows, lanes of the strip] += filter . grad_y, in order: windows may overlap
  CONTCONV_APART void scatter(const Panel& strip, const float* filter, const PatchRows& rows, int64_t start) const {
    const int64_t lanes = strip.lanes, depth = g.group_out, pitch = g.p.out_channels, *out = rows.out;
    const float* from = in.grad_y + strip.group * g.group_out;
    const int64_t place = start + strip.group * g.group_in * (g.p.groups > 1) + strip.first;
    float* const* windows = rows.in;
    for_each_tile(rows.count, strip.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
      constexpr int Rows = decltype(tile_rows)::value;
      Tile<Rows, decltype(vecs)::value> acc;
      const float* row[Rows];
      for (int i = 0; i < Rows; ++i) row[i] = from + out[first + i] * pitch;
      dot_tile(acc, row, 0, 1, 0, depth, filter, 0);
      float* to[Rows];
      for (int i = 0; i < Rows; ++i) to[i] = windows[first + i] + place;
      acc.for_each([&](int i, int v, Vec value) {
        float* target = to[i] + v * kLanes;
        store_lanes(target, load_lanes(target, lanes - v * kLanes) + value, lanes - v * kLanes);
      });
    });
  }

  // The same with all windows in one strip.
  CONTCONV_APART void scatter_windows(const float* filter, const PatchRows& rows, const int64_t* starts,
                                      int64_t shift) const {
    const int64_t depth = g.group_out, pitch = g.p.out_channels, count = g.runs, window = g.window, *out = rows.out;
    const float* from = in.grad_y;
    float* const* windows = rows.in;
    for_each_tile(rows.count, f.strips[0].vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
      constexpr int Rows = decltype(tile_rows)::value;
      Tile<Rows, decltype(vecs)::value> acc;
      const float* row[Rows];
      for (int i = 0; i < Rows; ++i) row[i] = from + out[first + i] * pitch;
      dot_tile(acc, row, 0, 1, 0, depth, filter, 0);
      add_lanes(acc, count, window, [&](int i, int64_t part) { return windows[first + i] + starts[part] + shift; });
    });
  }

  const Geometry& g;
  const ContconvInputs& in;
  const Patches& patches;
  float* grad_x;
  const FewFilters f;
  const int64_t run_size, runs;             // floats of a strip, and strips along the taps
  const Buffer<float> packed;               // [classes][runs][strips][output channels of a group][kWidth]
  const PerThread<int64_t> written;         // rows of each image of a cell that hold sums
};

// The gradient of x alone. Sums run over cells, classes, runs and pixels, in an order that is the same whatever the
// shares of the threads are.
class alignas(kLine) FewInputGradient {
 public:
  FewInputGradient(const Geometry& geometry, const ContconvInputs& inputs, float* grad_x)
      : g(geometry), pass(g), scatter(g, inputs, pass.patches, grad_x) {}

  // Each cell reads all filters: where those are large beside grad_x, it is better to take one filter after the other and
  // scatter to the whole of grad_x, which stays in cache then.
  static bool pays(const Geometry& g) {
    const int64_t filters = filter_bytes(g), grad_x = 4 * g.p.batch * g.in_pixels * g.p.in_channels;
    return filters <= 256 << 10 || grad_x >= 9 * filters;
  }

  // A share is some images, all their cells. Where images are fewer than threads, it is a part of their rows: cells at
  // the border of two parts are then computed for either.
  void run() const {
    const int64_t rows = g.p.in[0] * g.p.in[1], groups = pass.cells.image_groups();
    const int64_t parts = groups >= g.p.threads ? 1 : least(rows, g.p.threads);
#pragma omp parallel for num_threads(g.team(g.work)) schedule(dynamic, 1)
    for (int64_t i = 0; i < groups * parts; ++i)
      scatter_share(i / parts * pass.cells.bands(), {i % parts * rows / parts, (i % parts + 1) * rows / parts});
  }

 private:
  // One image after the other, or several in one cell: all bands from cell `first` on.
  void scatter_share(int64_t first, const RowRange& range) const {
    float* data = pass.data.of(omp_get_thread_num());
    const Cell images = pass.cells[first];
    scatter.begin(images, range);
    for (int64_t i = first; i < first + pass.cells.bands(); ++i) {
      const Patch patch = pass.patches.of(pass.cells[i]);
      if (!pass.patches.shows(patch, range)) continue;
      fill_zero(data, patch.size());
      pass.for_each_block(patch, [&](int64_t c, const PatchRows& rows, const int64_t* starts) {
        scatter.add_block(c, rows, starts, 0);
      });
      scatter.add_patch(patch, data, range);
    }
    scatter.end(images, range);
  }

  const Geometry& g;
  const CellPass pass;
  const PatchScatter scatter;
};

// Sums are kept for each chunk of cells, as many whatever the number of threads, and added up in order. Where input
// channels are few, grad_y is far more than all else: the gradient of x is made on the same way then.
class alignas(kLine) FewFilterGradient {
 public:
  // With the gradient of x as well, if `grad_x` is not null.
  FewFilterGradient(const Geometry& geometry, const ContconvInputs& inputs, const ContconvGradients& gradients,
                    float* grad_x)
      : g(geometry), in(inputs), to(gradients.weights), f(g, inputs.weights), pass(g, grad_x ? 2 : 1),
        run_size(g.window * kWidth),
        class_size(f.panels.count() * g.runs * run_size), size(g.classes * class_size), chunks(chunk_count()),
        sums(chunks * size), bias(f.panels, chunks, gradients.bias), grad_y(g.p.threads, g.block_rows * kWidth) {
    if (grad_x) scatter.emplace(g, inputs, pass.patches, grad_x);
  }

  // Whether the gradient of x can come along, and chunks are images: those have their own part of it.
  static bool can_scatter(const Geometry& g) {
    return windows_in_lanes(g) > 0 && Cells(g, kCellBytes).image_groups() >= kFewChunks;
  }

  void run() const {
#pragma omp parallel num_threads(g.team(g.work))
    {
#pragma omp for schedule(dynamic, 1)
      for (int64_t chunk = 0; chunk < chunks; ++chunk) add_chunk(chunk, sums.data() + chunk * size);
#pragma omp for schedule(static)
      for (int64_t i = 0; i < size / run_size; ++i) hand_out(i);
    }
    bias.hand_out();
  }

 private:
  static constexpr int64_t kMostChunks = 16, kFewChunks = 4, kCellsPerChunk = 6;

  // Each chunk costs a copy of all filters, which a few cells should be worth.
  int64_t chunk_count() const {
    const int64_t affordable = most(kFewChunks, (4 << 20) / (4 * size)), cells = pass.cells.count();
    return most(1, least(cells, most(kFewChunks, least(least(affordable, kMostChunks), cells / kCellsPerChunk))));
  }

  void add_chunk(int64_t chunk, float* sum) const {
    const int64_t unit = can_scatter(g) ? pass.cells.bands() : 1;   // cells that go together
    const int64_t units = pass.cells.count() / unit;
    fill_zero(sum, size);
    for (int64_t i = chunk * units / chunks; i < (chunk + 1) * units / chunks; ++i) {
      const Cell images = pass.cells[i * unit];
      const RowRange all{0, g.p.in[0] * g.p.in[1]};
      if (scatter) scatter->begin(images, all);
      for (int64_t cell = i * unit; cell < (i + 1) * unit; ++cell)
        add_cell(pass.patches.of(pass.cells[cell]), all, chunk, sum);
      if (scatter) scatter->end(images, all);
    }
  }

  void add_cell(const Patch& patch, const RowRange& all, int64_t chunk, float* sum) const {
    float *data = pass.data.of(omp_get_thread_num()), *grad_data = data + pass.most_floats;
    pass.patches.read(patch, in.x, data);
    if (scatter) fill_zero(grad_data, patch.size());
    pass.for_each_block(patch, [&](int64_t c, const PatchRows& rows, const int64_t* starts) {
      add_block(rows, starts, chunk, sum + c * class_size);
      if (scatter) scatter->add_block(c, rows, starts, pass.most_floats);
    });
    if (scatter) scatter->add_patch(patch, grad_data, all);
  }

  // sum[panel][run][window][kWidth] += sum over a few rows of x * grad_y
  void add_block(const PatchRows& rows, const int64_t* starts, int64_t chunk, float* sum) const {
    for (int64_t j = 0; j < f.panels.count(); ++j) {
      const Panel panel = f.panels[j];
      float* packed = grad_y.of(omp_get_thread_num());
      pack_rows(panel, rows, packed);
      bias.add(chunk, j, packed, rows.count);
      for (int64_t r = 0; r < g.runs; ++r, sum += run_size)
        add_run(panel, rows, starts[r] + panel.group * g.group_in, packed, sum);
    }
  }

  // to[rows][kWidth] = grad_y of the rows at the lanes of a panel, padded with zeros
  void pack_rows(const Panel& panel, const PatchRows& rows, float* to_) const {
    const float* from = in.grad_y + panel.group * g.group_out + panel.first;
    const int64_t lanes = panel.lanes, pitch = g.p.out_channels, count = rows.count, *out = rows.out;
    for (int64_t i = 0; i < count; ++i, to_ += kWidth)
      for (int v = 0; v < kVecs; ++v)
        store(to_ + v * kLanes, load_lanes(from + out[i] * pitch + v * kLanes, lanes - v * kLanes));
  }

  CONTCONV_APART void add_run(const Panel& panel, const PatchRows& rows, int64_t start, const float* packed,
                              float* sum) const {
    float* const* windows = rows.in;
    const int64_t count = rows.count;
    for_each_tile(g.window, panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
      Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
      outer_tile(acc, windows, start + first, count, packed);
      float* target = sum + first * kWidth;
      acc.for_each([&](int i, int v, Vec value) {
        float* element = target + i * kWidth + v * kLanes;
        store(element, load(element) + value);
      });
    });
  }

  // Adds up the chunks of one run of one panel of a class, and turns it into the order of the weights.
  void hand_out(int64_t i) const {
    float* sum = sums.data() + i * run_size;
    for (int64_t chunk = 1; chunk < chunks; ++chunk)
      for (int64_t k = 0; k < run_size; ++k) sum[k] += sum[chunk * size + k];
    const int64_t r = i % g.runs, c = i / g.runs / f.panels.count();
    const Panel panel = f.panels[i / g.runs % f.panels.count()];
    for (int64_t k2 = 0; k2 < g.joined; ++k2)
      for (int64_t lane = 0; lane < panel.lanes; ++lane) {
        const int64_t out = panel.group * g.group_out + panel.first + lane;
        float* target = to + ((c * g.taps + r * g.joined + k2) * g.p.out_channels + out) * g.group_in;
        for (int64_t k = 0; k < g.group_in; ++k) target[k] = sum[(k2 * g.group_in + k) * kWidth + lane];
      }
  }

  const Geometry& g;
  const ContconvInputs& in;
  float* to;
  const FewFilters f;
  const CellPass pass;
  const int64_t run_size, class_size, size, chunks;
  const Buffer<float> sums;         // [chunks][classes][panels][runs][window][kWidth]
  const BiasSums bias;
  const PerThread<float> grad_y;    // [block_rows][kWidth]
  std::optional<PatchScatter> scatter;
};

}  // namespace
}  // namespace contconv
