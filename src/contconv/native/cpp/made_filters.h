// Algorithm "made filters": all filters are made of basis and mixing before anything else, and then are what they would be
// if they had been given; the gradients of filters are contracted with mixing and basis at last. For few filters, which
// many pixels share. Where the basis is a net, it is sampled before that, and the gradients go on to the net's.
#pragma once
#include "class_basis.h"
#include "panels.h"

namespace contconv {
namespace {

class MadeFilters {
 public:
  MadeFilters(const ContconvProblem& p, const ContconvInputs& inputs_)
      : problem(p), inputs(inputs_), basis(p, inputs_), mixing(inputs_.mixing), rank(p.rank), count(basis.count),
        size(p.out_channels * p.in_channels / p.groups),
        threads(count * size * rank < Geometry::kWorthSharing ? 1 : static_cast<int>(p.threads)), filters(count * size) {
    problem.rank = 0;
    inputs.weights = filters.data();
    inputs.mixing = nullptr;
    inputs.net = nullptr;
  }

  int64_t floats() const { return count * size; }

  // filters[count][size] = basis[count][rank] . mixing[rank][size]
  void make() const {
    const Buffer<float> columns(rank * count);   // of the basis
    const Buffer<const float*> column(rank);
    for (int64_t r = 0; r < rank; ++r) {
      column[r] = columns.data() + r * count;
      for (int64_t i = 0; i < count; ++i) columns[r * count + i] = basis.values[i * rank + r];
    }
    sum_rows(filters.data(), count, column.data(), rank, mixing);
  }

  // From the gradients of filters to those that are wanted.
  void hand_down(const float* gradients, const ContconvGradients& to) const {
    if (to.weights) contract_with_mixing(gradients, to.weights);
    if (to.net) {
      const Buffer<float> grad_basis(count * rank);
      contract_with_mixing(gradients, grad_basis.data());
      basis.hand_down(grad_basis.data(), *to.net);
    }
    if (!to.mixing) return;
    const Buffer<const float*> row(count);
    for (int64_t i = 0; i < count; ++i) row[i] = basis.values + i * rank;
    sum_rows(to.mixing, rank, row.data(), count, gradients);
  }

  ContconvProblem problem;   // with filters for weights
  ContconvInputs inputs;

 private:
  // to[rows][size] = sum over k < terms of factors[k][rows] * from[k][size]
  void sum_rows(float* to, int64_t rows, const float* const* factors, int64_t terms, const float* from) const {
    const PerThread<const float*> at(threads, terms);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t j = 0; j < ceil_div(size, kWidth); ++j) {
      const float** line = at.of(omp_get_thread_num());
      for (int64_t k = 0; k < terms; ++k) line[k] = from + k * size + j * kWidth;
      const int64_t lanes = least(kWidth, size - j * kWidth);
      if (lanes == kWidth) {
        sum_lanes<true>(to + j * kWidth, rows, factors, terms, line, lanes);
      } else {
        sum_lanes<false>(to + j * kWidth, rows, factors, terms, line, lanes);
      }
    }
  }

  template <bool Full>
  CONTCONV_APART void sum_lanes(float* to, int64_t rows, const float* const* factors, int64_t terms,
                                const float* const* from, int64_t lanes) const {
    for (int64_t k = 0; k < terms; k += kLongestSum)
      for_each_tile(rows, lanes > kLanes ? 2 : 1, [&](int64_t first, auto tile_rows, auto vecs) {
        Tile<decltype(tile_rows)::value, decltype(vecs)::value> acc;
        outer_rows_tile<Full>(acc, factors + k, first, least(kLongestSum, terms - k), from + k, lanes);
        acc.for_each([&](int i, int v, Vec value) {
          float* target = to + (first + i) * size + v * kLanes;
          const int64_t rest = lanes - v * kLanes;
          store_lanes(target, k == 0 ? value : load_lanes(target, rest) + value, rest);
        });
      });
  }

  // to[count][rank] = gradients[count][size] . mixing[rank][size]
  void contract_with_mixing(const float* gradients, float* to) const {
    constexpr int64_t kTogether = 3;
    fill_zero(to, count * rank);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t piece = 0; piece < ceil_div(count, kTogether); ++piece) {
      const int64_t first = piece * kTogether;
      with_constant<kTogether>(least(kTogether, count - first), [&](auto together) {
        dot_rows<decltype(together)::value>(gradients + first * size, to + first * rank);
      });
    }
  }

  template <int Count>
  CONTCONV_APART void dot_rows(const float* gradients, float* to) const {
    const int64_t vectors = size / kLanes, start[4] = {0, rank, 2 * rank, 3 * rank};
    for_each_piece<4>(rank, [&](int64_t r, auto tile_rank) {
      constexpr int Rank = decltype(tile_rank)::value;
      const float* other = mixing + r * size;
      for (int64_t n = 0; n < vectors; n += kLongestSum) {
        Tile<Count, Rank> acc;
        lane_dot_tile(acc, least(kLongestSum, vectors - n), gradients + n * kLanes, size, kLanes, other + n * kLanes,
                      size, kLanes);
        add_sums(acc, to + r, start);
      }
      for (int i = 0; i < Count; ++i)
        for (int j = 0; j < Rank; ++j)
          for (int64_t k = vectors * kLanes; k < size; ++k)
            to[start[i] + r + j] += gradients[i * size + k] * other[j * size + k];
    });
  }

  const ClassBasis basis;
  const float* mixing;
  const int64_t rank, count, size;   // functions; filters' taps, all of them; weights of a tap
  const int threads;
  const Buffer<float> filters;
};

}  // namespace
}  // namespace contconv
