// Where a net is sampled for a class of output pixels.
#pragma once
#include "problem.h"

namespace contconv {
namespace {

// to[T][axes] = the displacements along the last axes of all taps of the class with those phases; returns where the next
// class's begin.
inline float* displacements(const ContconvProblem& p, const ContconvInputs& in, int64_t axes, const int64_t* phase,
                            float* to) {
  const float* along[3];
  for (int a = 0; a < 3; ++a) along[a] = in.offset[a] + phase[a] * p.taps[a];
  for (int64_t k0 = 0; k0 < p.taps[0]; ++k0)
    for (int64_t k1 = 0; k1 < p.taps[1]; ++k1)
      for (int64_t k2 = 0; k2 < p.taps[2]; ++k2, to += axes) {
        if (axes > 2) to[axes - 3] = along[0][k0];
        if (axes > 1) to[axes - 2] = along[1][k1];
        to[axes - 1] = along[2][k2];
      }
  return to;
}

}  // namespace
}  // namespace contconv
