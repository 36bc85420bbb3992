// Gradients of the factored algorithms. With dz = mixing . grad_y at each output pixel:
//   grad_x      scatters basis . dz onto the input pixels
//   grad_basis  is x . dz
//   grad_mixing is z . grad_y, z being made again
// A share is a panel of input channels times a chunk of the output: shares of different panels have nothing in common
// but grad_basis, which is added up afterwards, as are the parts of the chunks, in an order that is always the same.
// Where chunks are many, a share is all panels of one. So it is where the basis is a net, which is sampled once for all
// panels, and grad_basis goes on to the net's parameters at once.
#pragma once
#include "chunks.h"
#include "factored_output.h"

namespace contconv {
namespace {

class FactoredGradients {
 public:
  FactoredGradients(const Geometry& geometry, const ContconvInputs& inputs, const ContconvGradients& gradients)
      : g(geometry), in(inputs), to(gradients), panels(g.group_in, g.p.groups),
        turned(lanes_are_functions(g)), strips(turned ? ceil_div(g.p.rank * g.group_in, kWidth) : g.p.rank),
        mixing_size(strips * g.group_out * kWidth), basis_size(g.classes * g.taps * g.p.rank),
        chunks(g, most_chunks(), to.weights ? most(1, least(kMostChunks, kCopiesBytes / most(1, 4 * basis_size))) : 0),
        panels_at_once(in.net || chunks.count >= kFewestChunks ? panels.count() : 1),
        piece(pixels_in(kPieceBytes)), block(PixelBasis::most_pixels(g, in, pixels_in(kBlockBytes))),
        functions(to.weights ? g.p.rank : g.p.rank - 1),
        side_by_side(turned ? functions : functions / kLanes * kLanes), dz_pitch(turned ? g.group_in : kWidth),
        windows(windows_in_tile()),
        mixing(panels.count() * mixing_size), mixing_parts(to.mixing ? panels.count() * chunks.count * mixing_size : 0),
        basis_copies(panels.count() / panels_at_once * chunks.copies),
        basis_parts(to.weights && basis_copies > 1 ? basis_copies * basis_size : 0), runs(g, block),
        basis(g, in, block, to.net != nullptr),
        net_parts(to.net ? chunks.count * basis.gradients_size() : 0),
        floats(g.p.threads, ((piece + block) * strips + most(g.taps, kWidth)) * kWidth),
        rows(g.p.threads, 3 * g.taps + block) {
    const int64_t matrix = g.p.out_channels * g.group_in;
    const Strides s{g.p.rank, matrix, g.group_out, g.group_in, 1};
    if (turned) pack_strips();
#pragma omp parallel for num_threads(g.team(panels.count() * mixing_size)) schedule(static)
    for (int64_t j = 0; j < panels.count() * !turned; ++j)
      pack(mixing.data() + j * mixing_size, in.mixing + origin(panels[j]), s, panels[j].lanes, g.group_out * kWidth);
  }

  void run() const {
#pragma omp parallel num_threads(g.team(g.work))
    {
      if (to.x) fill_zero_together(to.x, g.p.batch * g.in_pixels * g.p.in_channels);
      if (to.weights) fill_zero_together(basis_part(0, 0), basis_copies * basis_size);
      for (int64_t turn = 0; turn < chunks.turns(); ++turn) {
        const int64_t across = panels.count() / panels_at_once;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < across * chunks.count_in(turn); ++i)
          run_share(i % across * panels_at_once, i / across * chunks.turns() + turn);
      }
    }
    add_up();
  }

 private:
  // dz stays in the first cache; z may be larger, as the gradient of mixing is read and written once for each block.
  static constexpr int64_t kPieceBytes = 32 << 10, kBlockBytes = 128 << 10, kCopiesBytes = 16 << 20;
  static constexpr int64_t kMostChunks = 16, kFewestChunks = 4, kPixelsPerChunk = 1024;

  // Whose dz, or z, takes no more than so many bytes in a panel.
  int64_t pixels_in(int64_t bytes) const { return least(96, most(1, bytes / (4 * strips * kWidth) / kRows) * kRows); }

  // Element (r, co, ci) of mixing.
  int64_t element(int64_t r, int64_t co, int64_t ci) const { return (r * g.group_out + co) * g.group_in + ci; }

  // mixing[strips][co][kWidth]: functions and channels side by side, as in dz
  void pack_strips() const {
    for (int64_t i = 0; i < strips * kWidth; ++i)
      for (int64_t co = 0; co < g.group_out; ++co) {
        const int64_t r = i / g.group_in, ci = i % g.group_in;
        mixing[(i / kWidth * g.group_out + co) * kWidth + i % kWidth] = r < g.p.rank ? in.mixing[element(r, co, ci)] : 0;
      }
  }

  // The way back, of gradients whose channels and functions lie side by side as in z.
  void unpack_strips(const float* sums) const {
    for (int64_t i = 0; i < g.group_in * g.p.rank; ++i)
      for (int64_t co = 0; co < g.group_out; ++co) {
        const int64_t ci = i / g.p.rank, r = i % g.p.rank;
        to.mixing[element(r, co, ci)] = sums[(i / kWidth * g.group_out + co) * kWidth + i % kWidth];
      }
  }

  // Vectors of a strip that are used.
  int64_t strip_vecs(const Panel& panel, int64_t strip) const {
    return turned ? (g.p.rank * g.group_in - strip * kWidth > kLanes ? 2 : 1) : panel.vecs();
  }

  int64_t origin(const Panel& panel) const { return panel.group * g.group_out * g.group_in + panel.first; }

  // Each chunk costs a copy of the gradient of mixing, which a number of pixels should be worth.
  int64_t most_chunks() const {
    const int64_t affordable = kCopiesBytes / (4 * panels.count() * mixing_size);
    const int64_t enough = most(kMostChunks / 2, g.p.batch * g.out_pixels / kPixelsPerChunk);
    return most(kFewestChunks, least(affordable, least(kMostChunks, enough)));
  }

  // Where a share adds to the gradient of the basis; there is one copy where no two shares meet.
  float* basis_part(int64_t j, int64_t chunk) const {
    if (basis_copies == 1) return to.weights;
    const int64_t of_chunk = chunks.copies > 1 ? chunk : 0, across = panels.count() / panels_at_once;
    return basis_parts.data() + (of_chunk * across + j / panels_at_once) * basis_size;
  }

  // Panels first_panel .. first_panel + panels_at_once - 1.
  void run_share(int64_t first_panel, int64_t chunk) const {
    const int64_t last_panel = first_panel + panels_at_once;
    for (int64_t j = first_panel; j < last_panel && to.mixing; ++j) fill_zero(mixing_part(j, chunk), mixing_size);
    float* net_part = to.net ? net_parts.data() + chunk * basis.gradients_size() : nullptr;
    if (net_part) fill_zero(net_part, basis.gradients_size());
    chunks.for_each_run(chunk, block, [&](int64_t first, int64_t last) {
      const PixelRun run = runs.run(omp_get_thread_num(), first, last);
      const float* samples = basis.of(run);
      float* net_gradients = to.net ? basis.fresh_gradients(run) : nullptr;
      for (int64_t image = chunks.image0(chunk); image < chunks.image1(chunk); ++image)
        for (int64_t j = first_panel; j < last_panel; ++j)
          add_run(j, chunk, run, image, samples, to.weights ? basis_part(j, chunk) : net_gradients);
      if (to.net) basis.add_gradients(run, net_part);
    });
  }

  void add_run(int64_t j, int64_t chunk, const PixelRun& run, int64_t image, const float* samples,
               float* sample_gradients) const {
    const Panel panel = panels[j];
    const float** grad_y = rows.of(omp_get_thread_num()) + 3 * g.taps;
    const int64_t first_pixel = image * g.out_pixels + run.first, channel = panel.group * g.group_out;
    for (int64_t i = 0; i < run.count; ++i) grad_y[i] = in.grad_y + (first_pixel + i) * g.p.out_channels + channel;
    for (int64_t first = 0; first < run.count; first += piece) {
      const int64_t last = least(run.count, first + piece);
      if (to.x || sample_gradients) make_dz(j, grad_y + first, last - first);
      visit_taps(panel, run, image, first, last, samples, sample_gradients);
    }
    if (to.mixing) add_mixing(panel, run, grad_y, mixing_part(j, chunk));
  }

  float* mixing_part(int64_t j, int64_t chunk) const {
    return mixing_parts.data() + (j * chunks.count + chunk) * mixing_size;
  }

  float* dz_of(int thread) const { return floats.of(thread); }                           // [piece][strips][kWidth]
  float* z_of(int thread) const { return floats.of(thread) + piece * strips * kWidth; }  // [strips][block][kWidth]
  float* x_of(int thread) const { return z_of(thread) + block * strips * kWidth; }       // [T or kWidth][kWidth]

  // dz[pixel][r][lane] = sum over co of grad_y[pixel, co] * mixing[r, co, lane], for `count` pixels
  CONTCONV_APART void make_dz(int64_t j, const float* const* grad_y, int64_t count) const {
    float* dz = dz_of(omp_get_thread_num());
    const float* packed = mixing.data() + j * mixing_size;
    for (int64_t s = 0; s < strips; ++s, packed += g.group_out * kWidth) {
      for_each_tile(count, strip_vecs(panels[j], s), [&](int64_t first, auto tile_rows, auto vecs) {
        Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
        dot_tile(acc, grad_y + first, 0, 1, 0, g.group_out, packed, 0);
        acc.for_each([&](int i, int v, Vec value) {
          store(dz + ((first + i) * strips + s) * kWidth + v * kLanes, value);
        });
      });
    }
  }

  // All that goes through the taps of the pixels first .. last - 1 of a run: grad_x, grad_basis, and z for grad_mixing.
  void visit_taps(const Panel& panel, const PixelRun& run, int64_t image, int64_t first, int64_t last,
                  const float* samples, float* sample_gradients) const {
    const int me = omp_get_thread_num();
    const float** own = rows.of(me);
    const TapRows taps{own, own + g.taps};
    const int64_t channel = panel.group * g.group_in + panel.first;
    const int64_t image_step = image * g.in_pixels * g.p.in_channels;
    for (int64_t i = first; i < last; ++i) {
      taps_of_pixel(g, in.x + image_step, samples, run, i, taps);
      const float* dz = dz_of(me) + (i - first) * strips * kWidth;
      if (to.x && windows > 0 && run.whole[i]) {
        scatter_windows(run.source + i * g.taps, taps.basis, dz, to.x + image_step);
      } else if (to.x) {
        scatter(panel, run, i, taps.basis, dz, to.x + image_step + channel);
      }
      if (sample_gradients)
        add_basis(panel, run, i, taps.x, dz, sample_gradients + run.sample[i] * g.taps * g.p.rank);
      if (!to.mixing) continue;
      if (turned) {
        make_turned_z(g.p.rank, g.group_in, run.taps[i], taps, z_of(me) + i * strips * kWidth, own + 2 * g.taps);
      } else {
        sum_over_taps(run.taps[i], taps.basis, g.p.rank, taps.x, channel, panel.lanes, z_of(me) + i * kWidth,
                      block * kWidth, own + 2 * g.taps);
      }
    }
  }

  // grad_x[source of tap p, lanes] += sum over r of basis[p, r] * dz[r, lanes]; one after the other, as sources repeat
  CONTCONV_APART void scatter(const Panel& panel, const PixelRun& run, int64_t pixel, const float* const* basis,
                              const float* dz, float* grad_x) const {
    const int64_t* source = run.source + pixel * g.taps;
    for_each_tile(run.taps[pixel], panel.vecs(), [&](int64_t first, auto tile_rows, auto vecs) {
      Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
      dot_tile(acc, basis + first, 0, 1, 0, g.p.rank, dz, 0, dz_pitch);
      acc.for_each([&](int i, int v, Vec value) {
        float* target = grad_x + source[first + i] * g.p.in_channels + v * kLanes;
        const int64_t lanes = panel.lanes - v * kLanes;
        store_lanes(target, load_lanes(target, lanes) + value, lanes);
      });
    });
  }

  // The same for a pixel whose taps along the last axis lie side by side: what goes to them is put together and added at
  // once, as the next pixel's windows overlap, and a load waits for stores to parts of what it wants.
  CONTCONV_APART void scatter_windows(const int64_t* source, const float* const* basis, const float* dz,
                                      float* grad_x) const {
    const int64_t joined = g.axis[2].taps, channels = g.group_in, rank = g.p.rank, all = g.taps;
    for (int64_t t = 0; t < all; t += windows * joined) {
      with_constant<kRows>(least(windows * joined, all - t), [&](auto tile_rows) {
        constexpr int Rows = decltype(tile_rows)::value;
        Tile<Rows, 1> acc;
        dot_tile(acc, basis + t, 0, 1, 0, rank, dz, 0, channels);
        Vec window{};
        int64_t lanes = 0;
#pragma GCC unroll 16
        for (int i = 0; i < Rows; ++i) {
          window = beside(window, lanes, acc.at[i][0]);
          lanes += channels;
          if (lanes < joined * channels) continue;
          float* target = grad_x + source[t + i + 1 - joined] * channels;
          store_lanes(target, load_lanes(target, lanes) + window, lanes);
          lanes = 0;
        }
      });
    }
  }

  // Windows in one register tile, if they have room in a vector, and in all tiles; or none.
  int64_t windows_in_tile() const {
    const int64_t joined = g.axis[2].taps, rows = g.taps / joined, at_once = most(1, least(rows, kRows / joined));
    const bool sizes = is_size(at_once * joined) && (rows % at_once == 0 || is_size(rows % at_once * joined));
    return turned && joined * g.group_in <= kLanes && at_once * joined <= kRows && sizes ? at_once : 0;
  }

  // basis_gradient[tap p][r] += sum over channels of x[p, channel] * dz[r, channel]
  void add_basis(const Panel& panel, const PixelRun& run, int64_t pixel, const float* const* x, const float* dz,
                 float* basis_gradient) const {
    const int32_t* tap = run.tap + pixel * g.taps;
    for (int64_t r = 0; r < side_by_side; r += kWidth)
      add_basis_lanes(panel, run.taps[pixel], tap, x, dz + r * dz_pitch, least(kWidth, side_by_side - r),
                      basis_gradient + r);
    if (side_by_side < functions)
      add_basis_sums(panel, run.taps[pixel], tap, x, dz + side_by_side * kWidth, functions - side_by_side,
                     basis_gradient + side_by_side);
  }

  // For as many basis functions as fill whole vectors, or all, which become the lanes: no sum has to go across a vector
  // then.
  CONTCONV_APART void add_basis_lanes(const Panel& panel, int64_t taps, const int32_t* tap, const float* const* x,
                                      const float* dz, int64_t count, float* basis_gradient) const {
    float* functions_of = x_of(omp_get_thread_num());   // [channel][kWidth]
    for (int64_t r = 0; r < count; r += 4)
      for (int64_t c = 0; c < panel.lanes; c += 4)
        transpose_four(dz + r * dz_pitch + c, dz_pitch, functions_of + c * kWidth + r, kWidth);
    const int64_t channel = panel.group * g.group_in + panel.first;
    for_each_tile(taps, ceil_div(count, kLanes), [&](int64_t first, auto tile_rows, auto vecs) {
      Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
      dot_tile(acc, x + first, 0, 1, channel, panel.lanes, functions_of, 0);
      acc.for_each([&](int i, int v, Vec value) {
        float* target = basis_gradient + tap[first + i] * g.p.rank + v * kLanes;
        store_lanes(target, load_lanes(target, count - v * kLanes) + value, count - v * kLanes);
      });
    });
  }

  // For the few that are left: dot products, whose lanes are summed at the end.
  CONTCONV_APART void add_basis_sums(const Panel& panel, int64_t taps, const int32_t* tap, const float* const* x,
                                     const float* dz, int64_t count, float* basis_gradient) const {
    const int64_t channel = panel.group * g.group_in + panel.first;
    float* lanes = x_of(omp_get_thread_num());
    for (int64_t p = 0; p < taps; ++p)
      for (int v = 0; v < kVecs; ++v)
        store(lanes + p * kWidth + v * kLanes, load_lanes(x[p] + channel + v * kLanes, panel.lanes - v * kLanes));
    for_each_piece<3>(taps, [&](int64_t p, auto tile_taps) {
      int64_t start[3];
      for (int i = 0; i < decltype(tile_taps)::value; ++i) start[i] = tap[p + i] * g.p.rank;
      for_each_piece<4>(count, [&](int64_t r, auto tile_rank) {
        Tile<decltype(tile_taps)::value, decltype(tile_rank)::value> acc;
        lane_dot_tile(acc, panel.vecs(), lanes + p * kWidth, kWidth, kLanes, dz + r * kWidth, kWidth, kLanes);
        add_sums(acc, basis_gradient + r, start);
      });
    });
  }

  // part[r][co][lane] += sum over pixels of grad_y[pixel, co] * z[r][pixel][lane]
  CONTCONV_APART void add_mixing(const Panel& panel, const PixelRun& run, const float* const* grad_y,
                                 float* part) const {
    const float* z = z_of(omp_get_thread_num());
    const int64_t step = turned ? kWidth : block * kWidth, pitch = turned ? strips * kWidth : kWidth;
    for (int64_t s = 0; s < strips; ++s, z += step, part += g.group_out * kWidth) {
      for_each_tile(g.group_out, strip_vecs(panel, s), [&](int64_t first, auto tile_rows, auto vecs) {
        Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
        outer_tile(acc, grad_y, first, run.count, z, pitch);
        acc.for_each([&](int i, int v, Vec value) {
          float* target = part + (first + i) * kWidth + v * kLanes;
          store(target, load(target) + value);
        });
      });
    }
  }

  void add_up() const {
    if (to.weights && basis_copies > 1)
      add_parts(to.weights, basis_parts.data(), basis_size, basis_copies, g.team(basis_copies * basis_size));
    if (to.net) {
      const Buffer<float> sums(basis.gradients_size());
      add_parts(sums.data(), net_parts.data(), basis.gradients_size(), chunks.count, 1);
      basis.hand_out(sums.data(), *to.net);
    }
    if (!to.mixing) return;
    const Strides s{g.p.rank, g.p.out_channels * g.group_in, g.group_out, g.group_in, 1};
    const int team = g.team(panels.count() * chunks.count * mixing_size);
    for (int64_t j = 0; j < panels.count(); ++j)
      add_parts(mixing_part(j, 0), mixing_part(j, 0), mixing_size, chunks.count, team);
    if (turned) return unpack_strips(mixing_part(0, 0));
#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t j = 0; j < panels.count(); ++j)
      unpack(to.mixing + origin(panels[j]), mixing_part(j, 0), s, panels[j].lanes, g.group_out * kWidth);
  }

  const Geometry& g;
  const ContconvInputs& in;
  const ContconvGradients& to;
  const PanelSet panels;              // of input channels
  const bool turned;                  // lanes are functions: in z and dz, functions and channels lie side by side,
  const int64_t strips;               // so many strips of kWidth: [ci][rank] and [rank][ci]. Else one for each function
  const int64_t mixing_size, basis_size;
  const Chunks chunks;
  const int64_t panels_at_once;
  const int64_t piece, block;         // pixels whose dz, and whose z, are made before they are used
  const int64_t functions;            // whose gradients are wanted: a net's last one is a constant
  const int64_t side_by_side;         // those of them that fill whole vectors (all, if `turned`)
  const int64_t dz_pitch;             // floats of dz from one function to the next
  const int64_t windows;              // of a pixel that grad_x is added to at a time, if any
  const Buffer<float> mixing;         // [panels][strips][co][kWidth]
  const Buffer<float> mixing_parts;   // [panels][chunks][strips][co][kWidth]
  const int64_t basis_copies;
  const Buffer<float> basis_parts;    // [basis_copies][classes][T][rank], if there are several
  const PixelRuns runs;
  const PixelBasis basis;
  const Buffer<float> net_parts;      // [chunks][gradients of the net]
  const PerThread<float> floats;      // dz, z, and x or a turned dz
  const PerThread<const float*> rows;
};

}  // namespace
}  // namespace contconv
