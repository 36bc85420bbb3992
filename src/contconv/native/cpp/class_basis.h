// The basis at the taps of every class: as it lies in memory or, where it is a net, sampled before anything else.
#pragma once
#include "displacements.h"
#include "net.h"

namespace contconv {
namespace {

class ClassBasis {
 public:
  ClassBasis(const ContconvProblem& p, const ContconvInputs& in)
      : net(in.net), rank(p.rank),
        count(p.phases[0] * p.phases[1] * p.phases[2] * p.taps[0] * p.taps[1] * p.taps[2]),
        points(net ? count * net->widths[0] : 0), sampled(net ? count * rank : 0),
        values(net ? sampled.data() : in.weights) {
    if (!net) return;
    float* next = points.data();
    for (int64_t p0 = 0; p0 < p.phases[0]; ++p0)
      for (int64_t p1 = 0; p1 < p.phases[1]; ++p1)
        for (int64_t p2 = 0; p2 < p.phases[2]; ++p2) {
          const int64_t phase[3] = {p0, p1, p2};
          next = displacements(p, in, net->widths[0], phase, next);
        }
    Net(*net).forward(points.data(), sampled.data());
  }

  // From the gradient of a net's samples to those of its parameters.
  void hand_down(const float* gradient, const ContconvNetGradients& to) const {
    Net(*net).backward(points.data(), gradient, to);
  }

 private:
  const ContconvNet* net;             // or null

 public:
  const int64_t rank, count;          // functions; taps of all classes

 private:
  const Buffer<float> points, sampled;

 public:
  const float* values;                // [count][rank]
};

}  // namespace
}  // namespace contconv
