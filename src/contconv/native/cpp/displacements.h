// Where a net is sampled for a class of output pixels.
#pragma once
#include "problem.h"

namespace contconv {
namespace {

// to[T][axes] = the displacements of all taps of class `index` along the last axes; returns where the next class's begin.
inline float* displacements(const ContconvProblem& p, const ContconvInputs& in, int64_t axes, int64_t index, float* to) {
  const int64_t phase[3] = {index / p.phases[2] / p.phases[1], index / p.phases[2] % p.phases[1], index % p.phases[2]};
  const float* along[3];
  for (int a = 0; a < 3; ++a) along[a] = in.offset[a] + phase[a] * p.taps[a];
  for (int64_t k0 = 0; k0 < p.taps[0]; ++k0)
    for (int64_t k1 = 0; k1 < p.taps[1]; ++k1)
      for (int64_t k2 = 0; k2 < p.taps[2]; ++k2) {
        const float d[3] = {along[0][k0], along[1][k1], along[2][k2]};
        for (int64_t a = 3 - axes; a < 3; ++a) *to++ = d[a];
      }
  return to;
}

}  // namespace
}  // namespace contconv
