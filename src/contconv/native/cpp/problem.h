// The C ABI: what Python hands over, and what it gets back.
#pragma once
#include <cstdint>

extern "C" {

// One continuous convolution. Problems of fewer than three spatial axes have leading axes of size 1.
//
//   x       [batch, in[0], in[1], in[2], in_channels]          channels last, contiguous, float32
//   y       [batch, out[0], out[1], out[2], out_channels]      likewise
//   basis   [phases[0], phases[1], phases[2], T, rank]         T = product of `taps`, row major
//   mixing  [rank, out_channels, in_channels / groups], with a leading T if `per_tap`
//   filters [phases[0], phases[1], phases[2], T, out_channels, in_channels / groups]   (where rank is 0)
struct ContconvProblem {
  int64_t batch, in_channels, out_channels, groups, rank;
  int64_t in[3], out[3], taps[3], phases[3];
  const int32_t* table[3];  // [out][1 + taps]: the phase of an output, then the input index of each tap or -1
  int64_t per_tap;          // 0 or 1
  int64_t threads;
};

// Results; the first three are also the meaning of a return value that is not zero.
enum ContconvError { CONTCONV_OK = 0, CONTCONV_BAD_TABLE = 1, CONTCONV_NO_MEMORY = 2 };

enum ContconvAlgorithm {
  CONTCONV_FILTERS = 0,          // form each class's filter in cache, apply it to all pixels of the class
  CONTCONV_FACTORED_OUTPUT = 1,  // z = basis . x at each output pixel, then y = mixing . z
  CONTCONV_FACTORED_INPUT = 2,   // u = mixing . x at each input pixel, then y = basis . u
  CONTCONV_MADE_FILTERS = 3,     // form all filters, then go on as with given ones
  CONTCONV_FEW_OUTPUTS = 4,      // factored at the input both ways, with basis functions for lanes; one group
};

// A net of linear layers, each followed by a leaky one: x where it is positive, slope * x elsewhere (slope > 0).
enum { CONTCONV_MOST_LAYERS = 8 };
struct ContconvNet {
  int64_t points, layers, threads;
  int64_t widths[CONTCONV_MOST_LAYERS + 1];      // of the points, then of each layer
  const float* weight[CONTCONV_MOST_LAYERS];     // [widths[l + 1], widths[l]]
  const float* bias[CONTCONV_MOST_LAYERS];       // [widths[l + 1]]
  float slope;
};
struct ContconvNetGradients {
  float *weight[CONTCONV_MOST_LAYERS], *bias[CONTCONV_MOST_LAYERS];
};

// Inputs of a call. `weights` is the basis, or the filters where rank is 0; `mixing` and `bias` may be null.
//
// Except with CONTCONV_FACTORED_INPUT, the basis may be a net instead, whose last units and a 1 are the `rank` functions:
// `weights` is null then. Factored, it is made where it is used, at the displacements of each output pixel's taps, and
// never stored. The net looks at the last axes, as many as its points have.
struct ContconvInputs {
  const float *x, *grad_y, *weights, *mixing, *bias;
  const ContconvNet* net = nullptr;
  const float* offset[3] = {};  // [phases][taps]: displacements along each axis
};

// Gradients wanted; a null pointer means "not this one".
struct ContconvGradients {
  float *x, *weights, *mixing;
  const ContconvNetGradients* net = nullptr;
  float* bias = nullptr;
};

}  // extern "C"

namespace contconv {

// What each instruction set's object offers to the dispatcher.
struct KernelTable {
  const char* name;
  int (*forward)(const ContconvProblem&, const ContconvInputs&, float* y, int algorithm);
  int (*backward)(const ContconvProblem&, const ContconvInputs&, const ContconvGradients&, int algorithm);
  void (*net_forward)(const ContconvNet&, const float* points, float* y);
  void (*net_backward)(const ContconvNet&, const float* points, const float* grad_y, const ContconvNetGradients&);
};

}  // namespace contconv
