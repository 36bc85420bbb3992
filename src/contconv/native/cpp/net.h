// A small net at many points: the hidden layers of the internal net, each of them linear and then leaky. Units stay in
// cache between two layers, and from the way forth to the way back.
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
  int64_t in, out;       // units before and after it
  int64_t after;         // floats of the latter, padded to whole vectors
  float* forth;          // [strips of `out`][in][kWidth]
  float* back;           // [strips of `in`][out][kWidth]
  float* bias;           // [out], padded to whole strips
  int64_t hidden;        // floats of units before its own in a thread's scratch, for each point; the last layer has none
  int64_t sums;          // where its gradients begin among those of all layers: [in][after], then [after] of the biases

  int64_t forth_size() const { return in * whole_strips(out); }
  int64_t back_size() const { return out * whole_strips(in); }
  int64_t packed_size() const { return forth_size() + back_size() + whole_strips(out); }
  int64_t sums_size() const { return (in + 1) * after; }
};

class Net {
 public:
  explicit Net(const ContconvNet& net_) : net(net_), packed(packed_size(net)) {
    float* next = packed.data();
    int64_t hidden = 0, sums = 0;
    for (int64_t l = 0; l < net.layers; ++l) {
      NetLayer& layer = layers[l] = shape(net, l);
      layer.forth = next, layer.back = next + layer.forth_size(), layer.bias = layer.back + layer.back_size();
      layer.hidden = hidden, layer.sums = sums;
      next += layer.packed_size(), hidden += layer.after, sums += layer.sums_size();
      pack_strips(layer.forth, net.weight[l], layer.in, layer.out, 1, layer.in);
      pack_strips(layer.back, net.weight[l], layer.out, layer.in, layer.in, 1);
      pack_strips(layer.bias, net.bias[l], 1, layer.out, 0, 1);
    }
    hidden_size = layers[net.layers - 1].hidden, sums_size = sums, gradients_of_units = hidden;
  }

  // Floats of the units that a point has before the last layer.
  static int64_t hidden_units(const ContconvNet& net) {
    int64_t units = 0;
    for (int64_t l = 0; l + 1 < net.layers; ++l) units += shape(net, l).after;
    return units;
  }

  int64_t axes() const { return layers[0].in; }
  int64_t rank() const { return layers[net.layers - 1].out + 1; }

  // Gradients of all weights and biases, layer after layer, as `add_gradients` sums them up.
  int64_t gradients_size() const { return sums_size; }

  // What threads work in, at so many points at a time; the way back needs their hidden units, and room for gradients.
  class Scratch {
   public:
    Scratch(const Net& of, int64_t threads, int64_t most_points, bool back)
        : most(back ? most_points : kBlock), floats(threads, most * of.hidden_size + (back ? kBlock * of.gradients_of_units : 0)),
          pointers(threads, 2 * kBlock) {}

   private:
    friend class Net;
    const int64_t most;                        // points whose hidden units are kept
    const PerThread<float> floats;             // hidden units, layer by layer, and gradients of all units
    const PerThread<const float*> pointers;
  };

  // y[point] = the last layer's units, then 1
  void sample(const float* points, int64_t count, float* y, const Scratch& scratch) const {
    for (int64_t begin = 0; begin < count; begin += kBlock)
      for (int64_t l = 0; l < net.layers; ++l)
        make_units(l, {points, y, begin, least(kBlock, count - begin)}, scratch);
    for (int64_t i = 0; i < count; ++i) y[(i + 1) * rank() - 1] = 1;
  }

  // sums += the gradients of all weights and biases, from that of y, which `sample` made with this scratch before
  void add_gradients(const float* points, int64_t count, float* y, const float* grad_y, float* sums,
                     const Scratch& scratch) const {
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const Part part{points, y, begin, least(kBlock, count - begin)};
      take_gradients(part, grad_y, scratch);
      for (int64_t l = net.layers - 1; l >= 0; --l) {
        add_sums_of(l, part, scratch, sums + layers[l].sums);
        if (l > 0) pull_through(l, part, scratch);
      }
    }
  }

  void hand_out(const float* sums, const ContconvNetGradients& to) const {
    for (int64_t l = 0; l < net.layers; ++l) hand_out(layers[l], sums + layers[l].sums, to.weight[l], to.bias[l]);
  }

  void forward(const float* points, float* y) const {
    const Scratch scratch(*this, net.threads, kBlock, false);
#pragma omp parallel for num_threads(team()) schedule(static)
    for (int64_t b = 0; b < blocks(); ++b) {
      const int64_t begin = b * kBlock;
      sample(points + begin * axes(), least(kBlock, net.points - begin), y + begin * rank(), scratch);
    }
  }

  // Sums are made for chunks of points, as many whatever the number of threads, and added up in order.
  void backward(const float* points, const float* grad_y, const ContconvNetGradients& to) const {
    const int64_t chunks = most(1, least(blocks(), 16));
    const Scratch scratch(*this, net.threads, kBlock, true);
    const PerThread<float> samples(net.threads, kBlock * rank());
    const Buffer<float> parts(chunks * sums_size), sums(sums_size);
#pragma omp parallel for num_threads(team()) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      float *part = parts.data() + chunk * sums_size, *y = samples.of(omp_get_thread_num());
      fill_zero(part, sums_size);
      const int64_t end = least(net.points, (chunk + 1) * blocks() / chunks * kBlock);
      for (int64_t begin = chunk * blocks() / chunks * kBlock; begin < end; begin += kBlock) {
        const int64_t here = least(kBlock, end - begin);
        sample(points + begin * axes(), here, y, scratch);
        add_gradients(points + begin * axes(), here, y, grad_y + begin * rank(), part, scratch);
      }
    }
    add_parts(sums.data(), parts.data(), sums_size, chunks, 1);
    hand_out(sums.data(), to);
  }

 private:
  static constexpr int64_t kBlock = 48;   // points that go through a layer, or back, at a time

  // Some of the points that a scratch has room for.
  struct Part {
    const float* points;
    float* y;
    int64_t begin, count;
  };

  static NetLayer shape(const ContconvNet& net, int64_t l) {
    const int64_t in = net.widths[l], out = net.widths[l + 1];
    return {in, out, whole_vectors(out), nullptr, nullptr, nullptr, 0, 0};
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

  int team() const {
    int64_t work = 0;
    for (int64_t l = 0; l < net.layers; ++l) work += net.points * layers[l].in * layers[l].out;
    return work < Geometry::kWorthSharing ? 1 : static_cast<int>(net.threads);
  }

  bool is_last(int64_t l) const { return l == net.layers - 1; }

  // Rows of units, one for each point of a part.
  struct Rows {
    float* first;
    int64_t step;
    float* operator[](int64_t i) const { return first + i * step; }
  };

  // The units after a layer.
  Rows units(int64_t l, const Part& part, const Scratch& scratch) const {
    if (is_last(l)) return {part.y + part.begin * rank(), rank()};
    float* all = scratch.floats.of(omp_get_thread_num()) + layers[l].hidden * scratch.most;
    return {all + part.begin % scratch.most * layers[l].after, layers[l].after};
  }

  // Their gradients, before the leak.
  Rows gradients(int64_t l, const Scratch& scratch) const {
    float* all = scratch.floats.of(omp_get_thread_num()) + hidden_size * scratch.most;
    return {all + layers[l].hidden * kBlock, layers[l].after};
  }

  static const float* const* point_at(const Rows& rows, int64_t count, const float** to) {
    for (int64_t i = 0; i < count; ++i) to[i] = rows[i];
    return to;
  }

  const float* const* units_before(int64_t l, const Part& part, const Scratch& scratch) const {
    const float** to = scratch.pointers.of(omp_get_thread_num());
    if (l > 0) return point_at(units(l - 1, part, scratch), part.count, to);
    for (int64_t i = 0; i < part.count; ++i) to[i] = part.points + (part.begin + i) * axes();
    return to;
  }

  // Calls body(first column, Constant<vectors>) for strips of `columns` units.
  template <class Body>
  static void for_each_strip(int64_t columns, Body&& body) {
    for (int64_t c = 0; c < columns; c += kWidth)
      with_constant<kVecs>(columns - c > kLanes ? kVecs : 1, [&](auto vecs) { body(c, vecs); });
  }

  CONTCONV_APART void make_units(int64_t l, const Part& part, const Scratch& scratch) const {
    const NetLayer& layer = layers[l];
    const float* const* from = units_before(l, part, scratch);
    const Rows to = units(l, part, scratch);
    const int64_t width = is_last(l) ? layer.out : layer.after;
    for_each_strip(layer.out, [&](int64_t c, auto vecs) {
      for_each_piece<kRows>(part.count, [&](int64_t first, auto rows) {
        Tile<decltype(rows)::value, decltype(vecs)::value> acc;
        acc.for_each([&](int, int v, Vec& value) { value = load(layer.bias + c + v * kLanes); });
        dot_tile(acc, from + first, 0, 1, 0, layer.in, layer.forth + c * layer.in, 0);
        acc.for_each([&](int i, int v, Vec value) {
          store_lanes(to[first + i] + c + v * kLanes, value > 0 ? value : value * net.slope, width - c - v * kLanes);
        });
      });
    });
  }

  // gradient * slope where a unit is not positive
  Vec pulled_through_leak(Vec gradient, Vec unit) const { return unit > 0 ? gradient : gradient * net.slope; }

  // Those of the last layer's units; the last column of y is none of them.
  void take_gradients(const Part& part, const float* grad_y, const Scratch& scratch) const {
    const NetLayer& last = layers[net.layers - 1];
    const Rows to = gradients(net.layers - 1, scratch);
    for (int64_t i = 0; i < part.count; ++i) {
      const int64_t row = (part.begin + i) * rank();
      for (int64_t c = 0; c < last.after; c += kLanes) {
        const int64_t lanes = last.out - c;
        store(to[i] + c, pulled_through_leak(load_lanes(grad_y + row + c, lanes), load_lanes(part.y + row + c, lanes)));
      }
    }
  }

  // sums[in][after] += sum over points of units before[point][in] * gradients[point][after], and those of the biases
  CONTCONV_APART void add_sums_of(int64_t l, const Part& part, const Scratch& scratch, float* sums) const {
    const NetLayer& layer = layers[l];
    const float* const* before = units_before(l, part, scratch);
    const Rows after = gradients(l, scratch);
    const float** lanes = scratch.pointers.of(omp_get_thread_num()) + kBlock;
    for_each_strip(layer.out, [&](int64_t c, auto vecs) {
      for (int64_t i = 0; i < part.count; ++i) lanes[i] = after[i] + c;
      for_each_piece<kRows>(layer.in, [&](int64_t first, auto rows) {
        Tile<decltype(rows)::value, decltype(vecs)::value> acc;
        outer_rows_tile<true>(acc, before, first, part.count, lanes, kWidth);
        acc.for_each([&](int i, int v, Vec value) {
          float* target = sums + (first + i) * layer.after + c + v * kLanes;
          store(target, load(target) + value);
        });
      });
    });
    float* biases = sums + layer.in * layer.after;
    for (int64_t c = 0; c < layer.after; c += kLanes) {
      Vec total[4] = {};   // four sums at a time: an addition waits for the one before it
      for (int64_t i = 0; i < part.count; ++i) total[i % 4] += load(after[i] + c);
      store(biases + c, load(biases + c) + ((total[0] + total[1]) + (total[2] + total[3])));
    }
  }

  // The gradients of the units before a layer: sums over the units after it of gradient * weight.
  CONTCONV_APART void pull_through(int64_t l, const Part& part, const Scratch& scratch) const {
    const NetLayer& layer = layers[l];
    const float** pointers = scratch.pointers.of(omp_get_thread_num());
    const float* const* after = point_at(gradients(l, scratch), part.count, pointers);
    const Rows to = gradients(l - 1, scratch), unit = units(l - 1, part, scratch);
    for_each_strip(layer.in, [&](int64_t c, auto vecs) {
      for_each_piece<kRows>(part.count, [&](int64_t first, auto rows) {
        Tile<decltype(rows)::value, decltype(vecs)::value> acc;
        dot_tile(acc, after + first, 0, 1, 0, layer.out, layer.back + c * layer.out, 0);
        acc.for_each([&](int i, int v, Vec value) {
          const int64_t column = c + v * kLanes;
          store(to[first + i] + column, pulled_through_leak(value, load(unit[first + i] + column)));
        });
      });
    });
  }

  static void hand_out(const NetLayer& layer, const float* sums, float* weight, float* bias) {
    for (int64_t o = 0; o < layer.out; ++o)
      for (int64_t i = 0; i < layer.in; ++i) weight[o * layer.in + i] = sums[i * layer.after + o];
    for (int64_t o = 0; o < layer.out; ++o) bias[o] = sums[layer.in * layer.after + o];
  }

  const ContconvNet& net;
  const Buffer<float> packed;
  NetLayer layers[CONTCONV_MOST_LAYERS];
  int64_t hidden_size, gradients_of_units;   // floats for each point: hidden units, and gradients of all units
  int64_t sums_size;                         // floats of all gradients of weights and biases
};

}  // namespace
}  // namespace contconv
