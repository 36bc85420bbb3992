// Algorithm "few outputs": u = mixing . x at each input pixel, then y = basis . u, as factored at the input, but with basis
// functions for lanes, which a few output channels would not fill. What is known of output pixels, and a basis that is
// made for them, serve all images of a cell.
#pragma once
#include "panels.h"
#include "patches.h"
#include "pixel_basis.h"

namespace contconv {
namespace {

// How the functions and output channels of a pixel of u lie side by side: for each channel vectors of functions ("wide"
// ones), and then for each function that is left vectors of channels.
class FewLanes {
 public:
  FewLanes(int64_t rank_, int64_t channels_)
      : rank(rank_), channels(channels_), wide(rank / kLanes + (rank % kLanes * ceil_div(channels, kLanes) > channels)),
        left(most(0, rank - wide * kLanes)), left_vecs(ceil_div(channels, kLanes)),
        strips(ceil_div(channels * wide + left * left_vecs, kVecs)), pitch(strips * kWidth) {}

  // Where the functions of a channel begin, and the channels of one of the functions that are left.
  int64_t channel_start(int64_t channel) const { return channel * wide * kLanes; }
  int64_t left_start(int64_t function) const { return (channels * wide + function * left_vecs) * kLanes; }

  // Calls body(lane, function, channel) for each lane that is used.
  template <class Body>
  void for_each(Body&& body) const {
    for (int64_t co = 0; co < channels; ++co)
      for (int64_t r = 0; r < rank; ++r)
        body(r < rank - left ? channel_start(co) + r : left_start(r - (rank - left)) + co, r, co);
  }

  const int64_t rank, channels;
  const int64_t wide;               // vectors of functions of a channel, the last of which may have empty lanes
  const int64_t left, left_vecs;    // functions that are left, and the vectors of each
  const int64_t strips, pitch;      // kWidth lanes each; floats of a pixel of u
};

class FewOutputs {
 public:
  // Cells are cut along an axis. back: gradients are wanted, of a net as well if `net_back`.
  FewOutputs(const Geometry& geometry, const ContconvInputs& inputs, int along_, bool back, bool net_back)
      : g(geometry), in(inputs), along(along_), axis(g.axis[along]), lanes(g.p.rank, g.p.out_channels), rows(rows_at_once()), images(images_at_once()),
        patches(g, Cells(g, 1), along), most_slots(most_slots_of(rows)),
        block(PixelBasis::most_pixels(g, in, kMostPixels)), mixing(lanes.strips * g.p.in_channels * kWidth),
        runs(g, block), basis(g, in, block, net_back),
        floats(g.p.threads, (back ? 2 : 1) * images * most_slots * lanes.pitch),
        x_rows(g.p.threads, most_slots), u_rows(g.p.threads, most_slots), sources(g.p.threads, most_slots),
        places(g.p.threads, block + g.taps) {
    fill_zero(mixing.data(), lanes.strips * g.p.in_channels * kWidth);
    lanes.for_each([&](int64_t lane, int64_t r, int64_t co) {
      const float* from = in.mixing + (r * g.p.out_channels + co) * g.p.in_channels;
      for (int64_t ci = 0; ci < g.p.in_channels; ++ci)
        mixing[(lane / kWidth * g.p.in_channels + ci) * kWidth + lane % kWidth] = from[ci];
    });
  }

  // The valid input pixels under a cell, in one image: their slots in the patch, their places in the image.
  struct Slots {
    const float** x;    // [count]: the channels in x
    float** u;          // [count]: the pixel in the patch
    int64_t* source;    // [count]: the pixel of the image
    int64_t count;
  };
  // A block of output pixels, and where in the patch of an image their first taps are.
  struct Pixels {
    const PixelRun& run;
    const float* samples;
    const int64_t* start;   // [count], in floats
    const int64_t* tap;     // [taps]: from there
  };

  float* u_of(int thread, int64_t image) const { return floats.of(thread) + image * most_slots * lanes.pitch; }
  float* du_of(int thread, int64_t image) const { return u_of(thread, images + image); }

  Slots slots_of(const Patch& patch, int64_t image, float* u) const {
    const int me = omp_get_thread_num();
    Slots slots{x_rows.of(me), u_rows.of(me), sources.of(me), 0};
    const float* x = in.x + image * g.in_pixels * g.p.in_channels;
    patches.for_each_slot(patch, [&](int64_t slot, int64_t pixel) {
      if (pixel < 0) return;
      slots.x[slots.count] = x + pixel * g.p.in_channels;
      slots.u[slots.count] = u + slot * lanes.pitch;
      slots.source[slots.count++] = pixel;
    });
    return slots;
  }

  // u[slot][lanes] = sum over ci of x * mixing, zero where it is padding
  void make_u(const Patch& patch, int64_t image, float* u) const {
    const Slots slots = slots_of(patch, image, u);
    if (slots.count < patch.slots()) fill_zero(u, patch.slots() * lanes.pitch);
    for (int64_t s = 0; s < lanes.strips; ++s) make_strip(slots, s);
  }

  // Calls body(pixels) for all output pixels of a cell, a block at a time.
  template <class Body>
  void for_each_block(const Patch& patch, Body&& body) const {
    const int me = omp_get_thread_num();
    int64_t *start = places.of(me), *tap = start + block;
    patches.tap_slots(patch, tap);
    for (int64_t t = 0; t < g.taps; ++t) tap[t] *= lanes.pitch;
    g.for_each_run(along, patch.cell.low, patch.cell.high, block, [&](int64_t first, int64_t last) {
      const PixelRun run = runs.run(me, first, last);
      for (int64_t k = 0; k < run.count; ++k) start[k] = patches.first_slot(patch, first + k) * lanes.pitch;
      body(Pixels{run, basis.of(run), start, tap});
    });
  }

  // Calls body(patch) for the cells of some images and outputs along the axis.
  template <class Body>
  void for_each_cell(int64_t image0, int64_t image1, int64_t low, int64_t high, Body&& body) const {
    for (int64_t o = low; o < high; o += rows)
      for (int64_t n = image0; n < image1; n += images)
        body(patches.of(Cell{n, least(image1, n + images), o, least(high, o + rows)}));
  }

  const Geometry& g;
  const ContconvInputs& in;
  const int along;
  const Axis& axis;
  const FewLanes lanes;
  const int64_t rows, images;      // of a cell: outputs along the axis, images
  const Patches patches;
  const int64_t most_slots, block;
  const Buffer<float> mixing;      // [strips][ci][kWidth]

 private:
  static constexpr int64_t kBytes = 512 << 10, kMostPixels = 96, kFewestRows = 4, kShares = 16, kTogether = 8;

  // Bytes of u under one output along the axis ("a row"), or more.
  int64_t row_bytes() const {
    int64_t slots = 1;
    for (int a = 0; a < 3; ++a)
      if (a != along) slots *= least(g.axis[a].in + 2 * g.axis[a].taps, g.axis[a].out * g.axis[a].taps);
    return most(1, 4 * slots * lanes.pitch);
  }
  // Rows of the input that are made twice, at the borders of cells, should be few beside the others; but a net that is
  // sampled for a cell should serve several images.
  int64_t rows_at_once() const {
    const int64_t together = in.net ? least(g.p.batch, kTogether) : 1;
    const int64_t inputs = most(2 * axis.taps, kBytes / row_bytes() / most(1, together / 2));
    const int64_t outputs = most(kFewestRows, inputs * axis.out / most(1, axis.in));
    return most(1, least(outputs, most(kFewestRows, axis.out / kShares)));
  }
  int64_t images_at_once() const {
    const int64_t inputs = rows * axis.in / most(1, axis.out) + axis.taps;
    return most(1, least(g.p.batch, 2 * kBytes / (inputs * row_bytes())));
  }
  // Of a patch in one image, for cells that begin anywhere.
  int64_t most_slots_of(int64_t cell_rows) const {
    int64_t slots = 0;
    for (int64_t o = 0; o < axis.out; ++o)
      slots = most(slots, patches.of(Cell{0, 1, o, least(axis.out, o + cell_rows)}).slots());
    return slots;
  }

  CONTCONV_APART void make_strip(const Slots& slots, int64_t strip) const {
    const int64_t depth = g.p.in_channels, first = strip * kWidth;
    const float* packed = mixing.data() + strip * depth * kWidth;
    const float* const* x = slots.x;
    float* const* u = slots.u;
    for_each_tile(slots.count, kVecs, [&](int64_t row, auto tile_rows, auto vecs) {
      constexpr int Rows = decltype(tile_rows)::value;
      Tile<Rows, decltype(vecs)::value> acc;
      dot_tile(acc, x + row, 0, 1, 0, depth, packed, 0);
      float* to[Rows];
      for (int i = 0; i < Rows; ++i) to[i] = u[row + i] + first;
      acc.for_each([&](int i, int v, Vec value) { store(to[i] + v * kLanes, value); });
    });
  }

  const PixelRuns runs;

 public:
  const PixelBasis basis;

 private:
  const PerThread<float> floats;           // u, and du, of the images of a cell
  const PerThread<const float*> x_rows;
  const PerThread<float*> u_rows;
  const PerThread<int64_t> sources, places;
};

class FewOutputsForward {
 public:
  FewOutputsForward(const Geometry& geometry, const ContconvInputs& inputs, float* y_)
      : g(geometry), pass(g, inputs, g.long_axis, false, false), bias(inputs.bias), y(y_) {}

  void run() const {
    const int64_t length = pass.axis.out, bands = ceil_div(length, pass.rows);
    const int64_t groups = ceil_div(g.p.batch, pass.images);
#pragma omp parallel for num_threads(g.team(g.work)) schedule(dynamic, 1)
    for (int64_t i = 0; i < groups * bands; ++i) {
      const int64_t n = i / bands * pass.images, o = i % bands * pass.rows;
      pass.for_each_cell(n, least(g.p.batch, n + pass.images), o, least(length, o + pass.rows),
                         [&](const Patch& patch) { write(patch); });
    }
  }

 private:
  void write(const Patch& patch) const {
    const int me = omp_get_thread_num();
    for (int64_t n = patch.cell.image0; n < patch.cell.image1; ++n)
      pass.make_u(patch, n, pass.u_of(me, n - patch.cell.image0));
    pass.for_each_block(patch, [&](const FewOutputs::Pixels& pixels) {
      for (int64_t n = patch.cell.image0; n < patch.cell.image1; ++n)
        for (int64_t co = 0; co < g.p.out_channels; co += 4)
          with_constant<4>(least(4, g.p.out_channels - co), [&](auto channels) {
            write_pixels<decltype(channels)::value>(pixels, pass.u_of(me, n - patch.cell.image0), co,
                                                    y + (n * g.out_pixels + pixels.run.first) * g.p.out_channels);
          });
    });
  }

  // Some channels of y = bias + sum over taps and functions of basis * u
  template <int Channels>
  CONTCONV_APART void write_pixels(const FewOutputs::Pixels& pixels, const float* u, int64_t co, float* to) const {
    const FewLanes& lanes = pass.lanes;
    const int64_t taps = g.taps, rank = lanes.rank, left = lanes.left, *tap = pixels.tap;
    const int64_t step = lanes.channel_start(1), first = lanes.channel_start(co), whole = rank - left;
    const int64_t left_vec = lanes.left_start(0) + co, left_step = lanes.left_vecs * kLanes;
    const int64_t at_once = most(1, kLongestSum / ceil_div(rank, kLanes));   // taps
    float added[4] = {};
    for (int i = 0; i < Channels && bias; ++i) added[i] = bias[co + i];
    for (int64_t k = 0; k < pixels.run.count; ++k) {
      const float *values = pixels.samples + pixels.run.sample[k] * taps * rank, *window = u + pixels.start[k];
      Vec4 total;
      __builtin_memcpy(&total, added, sizeof total);
      for (int64_t t0 = 0; t0 < taps; t0 += at_once) {
        Vec sum[4] = {};
        Vec4 rest{};
        for (int64_t t = t0; t < least(taps, t0 + at_once); ++t, values += rank) {
          const float* under = window + tap[t];
          for (int64_t r = 0; r < whole; r += kLanes) {
            const Vec function = load_lanes(values + r, whole - r);
#pragma GCC unroll 4
            for (int i = 0; i < Channels; ++i) sum[i] += function * load_lanes(under + first + i * step + r, whole - r);
          }
          for (int64_t r = 0; r < left; ++r) {
            Vec4 channels;
            __builtin_memcpy(&channels, under + left_vec + r * left_step, sizeof channels);
            rest += values[whole + r] * channels;
          }
        }
        total += rest + sums(sum[0], sum[1], sum[2], sum[3]);
      }
      __builtin_memcpy(to + k * lanes.channels + co, &total, Channels * sizeof(float));
    }
  }

  const Geometry& g;
  const FewOutputs pass;
  const float* bias;
  float* y;
};

}  // namespace
}  // namespace contconv
