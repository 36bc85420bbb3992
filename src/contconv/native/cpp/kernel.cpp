// Everything, for one instruction set: compiled once per set, with the flags of that set and its name as CONTCONV_ISA.
#include "apply.h"
#include "bias_gradient.h"
#include "class_basis.h"
#include "depthwise.h"
#include "factored_gradients.h"
#include "factored_input.h"
#include "factored_output.h"
#include "few_gradients.h"
#include "few_outputs_gradients.h"
#include "grad_input.h"
#include "grad_weights.h"
#include "made_filters.h"
#include "net.h"
#include "problem.h"
#include "transposed.h"

namespace contconv {
namespace {

int forward(const ContconvProblem& p, const ContconvInputs& in, float* y, int algorithm) {
  if (algorithm == CONTCONV_MADE_FILTERS) {
    const MadeFilters made(p, in);
    made.make();
    return forward(made.problem, made.inputs, y, CONTCONV_FILTERS);
  }
  if (algorithm == CONTCONV_FILTERS && in.net && !in.weights) {
    const ClassBasis basis(p, in);
    return forward(p, {in.x, nullptr, basis.values, in.mixing, in.bias}, y, algorithm);
  }
  const Geometry g(p);
  if (algorithm == CONTCONV_FACTORED_OUTPUT) {
    FactoredOutput(g, in, y).run();
  } else if (algorithm == CONTCONV_FEW_OUTPUTS) {
    if (g.out_pixels > 0) FewOutputsForward(g, in, y).run();
  } else if (algorithm == CONTCONV_FACTORED_INPUT) {
    FactoredInput(g, in, y).run();
  } else if (Depthwise::serves(g)) {
    Depthwise(g, in).forward(y);
  } else if (filters_are_few(g)) {
    FewForward(g, in, y).run();
  } else {
    Application(g, Windows(g), in, y).run();
  }
  return CONTCONV_OK;
}

void many_grad_input(const Geometry& g, const Windows& windows, const ContconvInputs& in, float* grad_x) {
  if (WindowGradient::serves(g)) {
    WindowGradient(g, windows, in, grad_x).run();
  } else {
    InputGradient(g, windows, in, grad_x).run();
  }
}

// All that is wanted of few filters.
void few_gradients(const Geometry& g, const ContconvInputs& in, const ContconvGradients& to) {
  float* together = nullptr;   // grad_x, where it comes along with the gradient of the filters
  if (to.x) {
    const Transposed transposed(g);
    if (transposed.pays()) {
      transposed.run(in, to.x);
    } else if (!FewInputGradient::pays(g)) {
      many_grad_input(g, Windows(g), in, to.x);
    } else if (to.weights && FewFilterGradient::can_scatter(g)) {
      together = to.x;
    } else {
      FewInputGradient(g, in, to.x).run();
    }
  }
  if (to.weights) FewFilterGradient(g, in, to, together).run();
}

int backward(const ContconvProblem& p, const ContconvInputs& in, const ContconvGradients& to, int algorithm) {
  if (algorithm == CONTCONV_MADE_FILTERS) {
    const MadeFilters made(p, in);
    if (to.x) made.make();
    const bool down = to.weights || to.mixing || to.net;
    const Buffer<float> gradients(down ? made.floats() : 0);
    backward(made.problem, made.inputs, {to.x, down ? gradients.data() : nullptr, nullptr, nullptr, to.bias},
             CONTCONV_FILTERS);
    if (down) made.hand_down(gradients.data(), to);
    return CONTCONV_OK;
  }
  if (algorithm == CONTCONV_FILTERS && in.net && !in.weights) {
    const ClassBasis basis(p, in);
    const Buffer<float> gradient(to.net ? basis.count * basis.rank : 0);
    backward(p, {in.x, in.grad_y, basis.values, in.mixing, in.bias, in.net},   // with samples of a net: its constant
             {to.x, to.net ? gradient.data() : nullptr, to.mixing, nullptr, to.bias}, algorithm);   // function needs none
    if (to.net) basis.hand_down(gradient.data(), *to.net);
    return CONTCONV_OK;
  }
  const Geometry g(p);
  const bool filters = algorithm == CONTCONV_FILTERS && !Depthwise::serves(g);
  const bool passes_over_grad_y = filters && (to.weights || to.mixing);   // and sums up the gradient of the bias
  if (algorithm == CONTCONV_FEW_OUTPUTS && g.out_pixels > 0) {
    FewOutputsGradients(g, in, to).run();
  } else if (algorithm != CONTCONV_FILTERS) {
    FactoredGradients(g, in, to).run();
  } else if (Depthwise::serves(g)) {
    if (to.x) Depthwise(g, in).grad_input(to.x);
    if (to.weights) Depthwise(g, in).grad_filters(to.weights);
  } else if (filters_are_few(g)) {
    few_gradients(g, in, to);
  } else {
    const Windows windows(g);
    const bool together = to.x && (to.weights || to.mixing) && scatters_in_bands(g);
    if (to.x && !together) many_grad_input(g, windows, in, to.x);
    if (to.weights || to.mixing) WeightGradient(g, windows, in, to, together ? to.x : nullptr).run();
  }
  if (to.bias && !passes_over_grad_y) BiasGradient(g, in.grad_y, to.bias).run();
  return CONTCONV_OK;
}

void net_forward(const ContconvNet& net, const float* points, float* y) { Net(net).forward(points, y); }

void net_backward(const ContconvNet& net, const float* points, const float* grad_y, const ContconvNetGradients& to) {
  Net(net).backward(points, grad_y, to);
}

}  // namespace

#define CONTCONV_STRING_(name) #name
#define CONTCONV_STRING(name) CONTCONV_STRING_(name)
#define CONTCONV_TABLE_(name) kernels_##name
#define CONTCONV_TABLE(name) CONTCONV_TABLE_(name)

extern const KernelTable CONTCONV_TABLE(CONTCONV_ISA);
const KernelTable CONTCONV_TABLE(CONTCONV_ISA) = {CONTCONV_STRING(CONTCONV_ISA), forward, backward,
                                                          net_forward, net_backward};

}  // namespace contconv
