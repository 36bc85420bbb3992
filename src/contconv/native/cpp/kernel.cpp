// Everything, for one instruction set: compiled once per set, with the flags of that set and its name as CONTCONV_ISA.
#include "apply.h"
#include "depthwise.h"
#include "factored_gradients.h"
#include "factored_input.h"
#include "factored_output.h"
#include "few_gradients.h"
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
  const Geometry g(p);
  if (algorithm == CONTCONV_FACTORED_OUTPUT) {
    FactoredOutput(g, in, y).run();
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

void few_grad_input(const Geometry& g, const ContconvInputs& in, float* grad_x) {
  const Transposed transposed(g);
  if (transposed.pays()) {
    transposed.run(in, grad_x);
  } else if (FewInputGradient::pays(g)) {
    FewInputGradient(g, in, grad_x).run();
  } else {
    InputGradient(g, Windows(g), in, grad_x).run();
  }
}

int backward(const ContconvProblem& p, const ContconvInputs& in, const ContconvGradients& to, int algorithm) {
  if (algorithm == CONTCONV_MADE_FILTERS) {
    const MadeFilters made(p, in);
    if (to.x) made.make();
    const bool down = to.weights || to.mixing || to.net;
    const Buffer<float> gradients(down ? made.floats() : 0);
    backward(made.problem, made.inputs, {to.x, down ? gradients.data() : nullptr, nullptr}, CONTCONV_FILTERS);
    if (down) made.hand_down(gradients.data(), to);
    return CONTCONV_OK;
  }
  const Geometry g(p);
  if (algorithm != CONTCONV_FILTERS) {
    FactoredGradients(g, in, to).run();
  } else if (Depthwise::serves(g)) {
    if (to.x) Depthwise(g, in).grad_input(to.x);
    if (to.weights) Depthwise(g, in).grad_filters(to.weights);
  } else if (filters_are_few(g)) {
    if (to.x) few_grad_input(g, in, to.x);
    if (to.weights) FewFilterGradient(g, in, to.weights).run();
  } else {
    const Windows windows(g);
    if (to.x) InputGradient(g, windows, in, to.x).run();
    if (to.weights || to.mixing) WeightGradient(g, windows, in, to).run();
  }
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
