// Picks the best instruction set of the machine, checks the tables, calls the kernels.
#include <cstdlib>
#include <cstring>
#include <new>

#include "pages.h"
#include "problem.h"

namespace contconv {

extern const KernelTable kernels_portable;
#if defined(CONTCONV_HAS_avx2)
extern const KernelTable kernels_avx2;
#endif
#if defined(CONTCONV_HAS_avx512)
extern const KernelTable kernels_avx512;
#endif

namespace {

const KernelTable* best_up_to(const char* limit) {
  [[maybe_unused]] const bool portable_only = limit && std::strcmp(limit, "portable") == 0;
  [[maybe_unused]] const bool avx2_only = limit && std::strcmp(limit, "avx2") == 0;
#if defined(CONTCONV_HAS_avx2) || defined(CONTCONV_HAS_avx512)
  __builtin_cpu_init();
  [[maybe_unused]] const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#if defined(CONTCONV_HAS_avx512)
  if (avx2 && __builtin_cpu_supports("avx512f") && !portable_only && !avx2_only) return &kernels_avx512;
#endif
#if defined(CONTCONV_HAS_avx2)
  if (avx2 && !portable_only) return &kernels_avx2;
#endif
  return &kernels_portable;
}

const KernelTable* kernels = best_up_to(std::getenv("CONTCONV_ISA"));

// No table may lead out of the tensors: a table is an argument like any other.
bool tables_are_sound(const ContconvProblem& p) {
  for (int a = 0; a < 3; ++a) {
    const int32_t* entry = p.table[a];
    for (int64_t o = 0; o < p.out[a]; ++o) {
      if (*entry < 0 || *entry >= p.phases[a]) return false;
      ++entry;
      for (int64_t k = 0; k < p.taps[a]; ++k, ++entry)
        if (*entry < -1 || *entry >= p.in[a]) return false;
    }
  }
  return true;
}

template <class Call>
int with_memory(Call&& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return CONTCONV_NO_MEMORY;
  }
}

template <class Call>
int checked(const ContconvProblem& p, Call&& call) {
  return tables_are_sound(p) ? with_memory(call) : static_cast<int>(CONTCONV_BAD_TABLE);
}

}  // namespace
}  // namespace contconv

extern "C" {

__attribute__((visibility("default"))) const char* contconv_isa() { return contconv::kernels->name; }

// Limits the instruction set ("portable", "avx2", "avx512"; null: no limit) and returns the one in use from now on.
__attribute__((visibility("default"))) const char* contconv_limit_isa(const char* limit) {
  contconv::kernels = contconv::best_up_to(limit);
  return contconv::kernels->name;
}

// For an array that will be written from one end to the other.
__attribute__((visibility("default"))) void contconv_ask_for_large_pages(void* data, int64_t bytes) {
  contconv::ask_for_large_pages(data, bytes);
}

__attribute__((visibility("default"))) int contconv_forward(const ContconvProblem* p, const ContconvInputs* in,
                                                            float* y, int algorithm) {
  return contconv::checked(*p, [&] { return contconv::kernels->forward(*p, *in, y, algorithm); });
}

__attribute__((visibility("default"))) int contconv_backward(const ContconvProblem* p, const ContconvInputs* in,
                                                             const ContconvGradients* to, int algorithm) {
  return contconv::checked(*p, [&] { return contconv::kernels->backward(*p, *in, *to, algorithm); });
}

__attribute__((visibility("default"))) int contconv_net_forward(const ContconvNet* net, const float* points, float* y) {
  return contconv::with_memory([&] { return contconv::kernels->net_forward(*net, points, y), CONTCONV_OK; });
}

__attribute__((visibility("default"))) int contconv_net_backward(const ContconvNet* net, const float* points,
                                                                 const float* grad_y, const ContconvNetGradients* to) {
  return contconv::with_memory([&] { return contconv::kernels->net_backward(*net, points, grad_y, *to), CONTCONV_OK; });
}

}  // extern "C"
