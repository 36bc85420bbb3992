// A small net at many points: the hidden layers of the internal net, each of them linear and then leaky. Between two
// layers units stay in cache; the way back makes them anew instead of reading them from memory.
#pragma once
#include <omp.h>

#include "buffer.h"
#include "panels.h"
#include "problem.h"

namespace contconv {
namespace {

inline int64_t whole_strips(int64_t count) { return ceil_div(count, kWidth) * kWidth; }

// One layer, packed for both ways through it.
struct NetLayer {
  int64_t in, out;         // units before and after it
  int64_t before, after;   // their floats, padded to whole vectors
  float* forth;            // [strips of `after`][in][kWidth]
  float* back;             // [strips of `before`][out][kWidth]
  float* bias;             // [after], padded to whole strips
  int64_t units;           // where the units after it begin in a thread's scratch, which begins with the points
  int64_t sums;            // where its gradients begin among those of all layers: [out][before], then [after]

  int64_t forth_size() const { return in * whole_strips(out); }
  int64_t back_size() const { return out * whole_strips(in); }
  int64_t packed_size() const { return forth_size() + back_size() + whole_strips(out); }
  int64_t sums_size() const { return out * before + after; }
};

class Net {
 public:
  explicit Net(const ContconvNet& net_) : net(net_), packed(packed_size(net)) {
    float* next = packed.data();
    int64_t units = kBlock * whole_vectors(net.widths[0]), sums = 0;
    for (int64_t l = 0; l < net.layers; ++l) {
      NetLayer& layer = layers[l] = shape(net, l);
      layer.forth = next, layer.back = next + layer.forth_size(), layer.bias = layer.back + layer.back_size();
      layer.units = units, layer.sums = sums;
      next += layer.packed_size(), units += kBlock * layer.after, sums += layer.sums_size();
      pack_strips(layer.forth, net.weight[l], layer.in, layer.out, 1, layer.in);
      pack_strips(layer.back, net.weight[l], layer.out, layer.in, layer.in, 1);
      pack_strips(layer.bias, net.bias[l], 1, layer.out, 0, 1);
    }
    units_size = units, sums_size = sums;
  }

  int64_t axes() const { return layers[0].in; }
  int64_t rank() const { return layers[net.layers - 1].out + 1; }

  // Gradients of all weights and biases, layer after layer, as `add_gradients` sums them up.
  int64_t gradients_size() const { return sums_size; }

  // What threads work in; the way back needs room for gradients too.
  class Scratch {
   public:
    Scratch(const Net& of, int64_t threads, bool back)
        : floats(threads, (back ? 2 : 1) * of.units_size), pointers(threads, (back ? 2 : 1) * kBlock) {}

   private:
    friend class Net;
    const PerThread<float> floats;             // units, and their gradients
    const PerThread<const float*> pointers;
  };

  // y[point] = the last layer's units, then 1
  void sample(const float* points, int64_t count, float* y, const Scratch& scratch) const {
    const NetLayer& last = layers[net.layers - 1];
    const int me = omp_get_thread_num();
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t here = least(kBlock, count - begin);
      make_units(points + begin * axes(), here, scratch.floats.of(me), scratch.pointers.of(me));
      const float* from = scratch.floats.of(me) + last.units;
      for (int64_t i = 0; i < here; ++i, from += last.after, y += last.out + 1) {
        for (int64_t c = 0; c < last.out; c += kLanes) store_lanes(y + c, load(from + c), last.out - c);
        y[last.out] = 1;
      }
    }
  }

  // sums += the gradients of all weights and biases, from that of y
  void add_gradients(const float* points, int64_t count, const float* grad_y, float* sums, const Scratch& scratch) const {
    const int me = omp_get_thread_num();
    float *units = scratch.floats.of(me), *gradients = units + units_size;
    const float** pointers = scratch.pointers.of(me);
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t here = least(kBlock, count - begin);
      make_units(points + begin * axes(), here, units, pointers);
      take_gradients(grad_y + begin * rank(), here, gradients);
      for (int64_t l = net.layers - 1; l >= 0; --l) {
        pull_through_leak(layers[l], units, here, gradients);
        add_sums_of(l, units, gradients, here, pointers, sums + layers[l].sums);
        if (l > 0) pull_through(l, gradients, here, pointers);
      }
    }
  }

  void hand_out(const float* sums, const ContconvNetGradients& to) const {
    for (int64_t l = 0; l < net.layers; ++l) hand_out(layers[l], sums + layers[l].sums, to.weight[l], to.bias[l]);
  }

  void forward(const float* points, float* y) const {
    const Scratch scratch(*this, net.threads, false);
#pragma omp parallel for num_threads(team()) schedule(static)
    for (int64_t b = 0; b < blocks(); ++b) {
      const int64_t begin = b * kBlock;
      sample(points + begin * axes(), least(kBlock, net.points - begin), y + begin * rank(), scratch);
    }
  }

  // Sums are made for chunks of points, as many whatever the number of threads, and added up in order.
  void backward(const float* points, const float* grad_y, const ContconvNetGradients& to) const {
    const int64_t chunks = most(1, least(blocks(), 16));
    const Scratch scratch(*this, net.threads, true);
    const Buffer<float> parts(chunks * sums_size), sums(sums_size);
#pragma omp parallel for num_threads(team()) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      float* part = parts.data() + chunk * sums_size;
      fill_zero(part, sums_size);
      const int64_t begin = chunk * blocks() / chunks * kBlock;
      const int64_t end = least(net.points, (chunk + 1) * blocks() / chunks * kBlock);
      add_gradients(points + begin * axes(), end - begin, grad_y + begin * rank(), part, scratch);
    }
    add_parts(sums.data(), parts.data(), sums_size, chunks, 1);
    hand_out(sums.data(), to);
  }

 private:
  static constexpr int64_t kBlock = 48;   // points whose units stay in the first cache

  static NetLayer shape(const ContconvNet& net, int64_t l) {
    const int64_t in = net.widths[l], out = net.widths[l + 1];
    return {in, out, whole_vectors(in), whole_vectors(out), nullptr, nullptr, nullptr, 0, 0};
  }

  static int64_t packed_size(const ContconvNet& net) {
    int64_t size = 0;
    for (int64_t l = 0; l < net.layers; ++l) size += shape(net, l).packed_size();
    return size;
  }

  // to = [strips of columns][rows][kWidth]; element (row, column) is at from[row * row_step + column * column_step]
  static void pack_strips(float* to, const float* from, int64_t rows, int64_t columns, int64_t row_step,
                          int64_t column_step) {
    const Strides s{1, 0, rows, row_step, column_step};
    for (int64_t c = 0; c < columns; c += kWidth)
      pack(to + c * rows, from + c * column_step, s, least(kWidth, columns - c), 0);
  }

  int64_t blocks() const { return ceil_div(net.points, kBlock); }

  // Of a register tile's row over so many units.
  static int64_t vectors(int64_t units) { return least(kVecs, units / kLanes); }

  int team() const {
    int64_t work = 0;
    for (int64_t l = 0; l < net.layers; ++l) work += net.points * layers[l].in * layers[l].out;
    return work < Geometry::kWorthSharing ? 1 : static_cast<int>(net.threads);
  }

  // Where the units before a layer begin in a thread's scratch.
  int64_t units_before(int64_t l) const { return l == 0 ? 0 : layers[l - 1].units; }

  static const float* const* point_at(const float** to, const float* from, int64_t step, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = from + i * step;
    return to;
  }

  // The units of all layers at the points of a block.
  CONTCONV_APART void make_units(const float* points, int64_t count, float* units, const float** pointers) const {
    const int64_t pitch = layers[0].before;
    fill_zero(units, count * pitch);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t a = 0; a < axes(); ++a) units[i * pitch + a] = points[i * axes() + a];
    for (int64_t l = 0; l < net.layers; ++l) {
      const NetLayer& layer = layers[l];
      const float* const* from = point_at(pointers, units + units_before(l), layer.before, count);
      for (int64_t c = 0; c < layer.after; c += kWidth) {
        float* to = units + layer.units + c;
        for_each_tile(count, vectors(layer.after - c), [&](int64_t first, auto tile_rows, auto vecs) {
          Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
          acc.for_each([&](int, int v, Vec& value) { value = load(layer.bias + c + v * kLanes); });
          dot_tile(acc, from + first, 0, 1, 0, layer.in, layer.forth + c * layer.in, 0);
          acc.for_each([&](int i, int v, Vec value) {
            store(to + (first + i) * layer.after + v * kLanes, value > 0 ? value : value * net.slope);
          });
        });
      }
    }
  }

  // The gradients of the last layer's units; the last column of y was none of them.
  void take_gradients(const float* grad_y, int64_t count, float* gradients) const {
    const NetLayer& last = layers[net.layers - 1];
    float* to = gradients + last.units;
    for (int64_t i = 0; i < count; ++i, grad_y += last.out + 1, to += last.after)
      for (int64_t c = 0; c < last.after; c += kLanes) store(to + c, load_lanes(grad_y + c, last.out - c));
  }

  // gradient *= slope where a unit is not positive
  void pull_through_leak(const NetLayer& layer, const float* units, int64_t count, float* gradients) const {
    for (int64_t i = layer.units; i < layer.units + count * layer.after; i += kLanes) {
      const Vec gradient = load(gradients + i);
      store(gradients + i, load(units + i) > 0 ? gradient : gradient * net.slope);
    }
  }

  // sums[after][before] += sum over points of gradients[point][after] * units[point][before], and those of the biases
  CONTCONV_APART void add_sums_of(int64_t l, const float* units, const float* gradients, int64_t count,
                                  const float** pointers, float* sums) const {
    const NetLayer& layer = layers[l];
    const float* const* after = point_at(pointers, gradients + layer.units, layer.after, count);
    for (int64_t c = 0; c < layer.before; c += kWidth) {
      const float* const* before = point_at(pointers + kBlock, units + units_before(l) + c, layer.before, count);
      for_each_tile(layer.out, vectors(layer.before - c), [&](int64_t first, auto tile_rows, auto vecs) {
        Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
        outer_rows_tile<true>(acc, after, first, count, before, kWidth);
        acc.for_each([&](int i, int v, Vec value) {
          float* target = sums + (first + i) * layer.before + c + v * kLanes;
          store(target, load(target) + value);
        });
      });
    }
    float* biases = sums + layer.out * layer.before;
    for (int64_t c = 0; c < layer.after; c += kLanes) {
      Vec total{};
      for (int64_t i = 0; i < count; ++i) total += load(after[i] + c);
      store(biases + c, load(biases + c) + total);
    }
  }

  // The gradients of the units before a layer: sums over the units after it of gradient * weight.
  CONTCONV_APART void pull_through(int64_t l, float* gradients, int64_t count, const float** pointers) const {
    const NetLayer& layer = layers[l];
    const float* const* after = point_at(pointers, gradients + layer.units, layer.after, count);
    for (int64_t c = 0; c < layer.before; c += kWidth) {
      float* to = gradients + units_before(l) + c;
      for_each_tile(count, vectors(layer.before - c), [&](int64_t first, auto tile_rows, auto vecs) {
        Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
        dot_tile(acc, after + first, 0, 1, 0, layer.out, layer.back + c * layer.out, 0);
        acc.for_each([&](int i, int v, Vec value) { store(to + (first + i) * layer.before + v * kLanes, value); });
      });
    }
  }

  static void hand_out(const NetLayer& layer, const float* sums, float* weight, float* bias) {
    for (int64_t o = 0; o < layer.out; ++o)
      for (int64_t i = 0; i < layer.in; ++i) weight[o * layer.in + i] = sums[o * layer.before + i];
    for (int64_t o = 0; o < layer.out; ++o) bias[o] = sums[layer.out * layer.before + o];
  }

  const ContconvNet& net;
  const Buffer<float> packed;
  NetLayer layers[CONTCONV_MOST_LAYERS];
  int64_t units_size, sums_size;   // floats of the units of a block, and of all gradients
};

}  // namespace
}  // namespace contconv
