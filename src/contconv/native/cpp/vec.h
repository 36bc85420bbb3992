// One vector of floats for every instruction set. Arithmetic is that of GCC's vector extension; only what the
// extension lacks (partial loads and stores) is spelled per instruction set.
//
// Everything below lives in an unnamed namespace: this code is compiled once per instruction set, and a function
// with external linkage would let the linker hand AVX-512 code to a machine without it.
#pragma once
#include <cstddef>
#include <cstdint>
#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace contconv {
namespace {

#if defined(__AVX512F__) || defined(CONTCONV_TILES_avx512)  // the latter to try its tiles on any machine
constexpr int kLanes = 16;  // floats in a vector
constexpr int kRows = 12;   // rows of a register tile: 12 x 2 accumulators; 12 row pointers just about fit
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kLanes = 8;
constexpr int kRows = 6;    // 6 x 2 accumulators, 2 of the panel, 1 broadcast: 15 of 16 registers
#else
constexpr int kLanes = 4;
constexpr int kRows = 6;
#endif
constexpr int kVecs = 2;                 // vectors of a register tile's row
constexpr int kWidth = kLanes * kVecs;   // floats of a register tile's row: the width of a panel

// For what must not be a call, or keep its accumulators in memory, whatever the compiler thinks of its length.
#define CONTCONV_INLINE inline __attribute__((always_inline))

// For a function around a register tile: inlined into its caller it would share registers with the caller's loops.
#define CONTCONV_APART __attribute__((noinline))

typedef float Vec __attribute__((vector_size(kLanes * sizeof(float))));
typedef float UnalignedVec __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

inline Vec load(const float* from) { return *reinterpret_cast<const UnalignedVec*>(from); }
inline void store(float* to, Vec v) { *reinterpret_cast<UnalignedVec*>(to) = v; }
// Asks for the cache line of something that is written after the sums that are begun now: stores wait for their lines in
// order, and those of a large output come from memory.
inline void expect_write(float* to) { __builtin_prefetch(to, 1); }
inline Vec broadcast(float v) { return v - Vec{}; }  // v - 0 is v for every v, so no subtraction is left of it

#if defined(__AVX512F__)
inline __mmask16 lane_mask(int64_t lanes) { return static_cast<__mmask16>((1u << lanes) - 1u); }
inline Vec load_partial(const float* from, int64_t lanes) { return _mm512_maskz_loadu_ps(lane_mask(lanes), from); }
inline void store_partial(float* to, Vec v, int64_t lanes) { _mm512_mask_storeu_ps(to, lane_mask(lanes), v); }
#define CONTCONV_PERMUTES   // has an instruction for the lanes from some one on of two vectors side by side
inline Vec lanes_from(int64_t first, Vec a, Vec b) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_permutex2var_ps(a, _mm512_add_epi32(lane, _mm512_set1_epi32(static_cast<int>(first))), b);
}
// The first lanes of `low`, so many, and behind them those of `high` from its first one on.
inline Vec beside(Vec low, int64_t count, Vec high) {
  return _mm512_mask_expand_ps(low, static_cast<__mmask16>(0xffffu << count), high);
}
#elif defined(__AVX2__) && defined(__FMA__)
inline __m256i lane_mask(int64_t lanes) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(lanes)), index);
}
inline Vec load_partial(const float* from, int64_t lanes) { return _mm256_maskload_ps(from, lane_mask(lanes)); }
// By halves: a masked store takes tens of cycles on some machines.
inline void store_partial(float* to, Vec v, int64_t lanes) {
  __m128 rest = _mm256_castps256_ps128(v);
  if (lanes & 4) {
    _mm_storeu_ps(to, rest);
    rest = _mm256_extractf128_ps(v, 1);
    to += 4;
  }
  if (lanes & 2) {
    _mm_storel_pi(reinterpret_cast<__m64*>(to), rest);
    rest = _mm_movehl_ps(rest, rest);
    to += 2;
  }
  if (lanes & 1) _mm_store_ss(to, rest);
}
#else
inline Vec load_partial(const float* from, int64_t lanes) {
  Vec v{};
  __builtin_memcpy(&v, from, static_cast<size_t>(lanes) * sizeof(float));
  return v;
}
inline void store_partial(float* to, Vec v, int64_t lanes) {
  __builtin_memcpy(to, &v, static_cast<size_t>(lanes) * sizeof(float));
}
#endif

#if !defined(__AVX512F__)
inline Vec beside(Vec low, int64_t count, Vec high) {
  float lanes[2 * kLanes];
  store(lanes, low);
  store(lanes + count, high);
  return load(lanes);
}
#endif

// The first `lanes` floats at `from` (any number: none at all, or more than a vector holds), zeros after them.
inline Vec load_lanes(const float* from, int64_t lanes) {
  if (lanes >= kLanes) return load(from);
  return lanes > 0 ? load_partial(from, lanes) : Vec{};
}

inline void store_lanes(float* to, Vec v, int64_t lanes) {
  if (lanes >= kLanes) {
    store(to, v);
  } else if (lanes > 0) {
    store_partial(to, v, lanes);
  }
}

typedef float Vec4 __attribute__((vector_size(16)));
typedef int32_t Index4 __attribute__((vector_size(16)));

// The sum of v's quarters (of four lanes each).
CONTCONV_INLINE Vec4 folded(Vec v) {
  Vec4 part[kLanes / 4];
  __builtin_memcpy(part, &v, sizeof v);
  Vec4 total = part[0];
  for (int i = 1; i < kLanes / 4; ++i) total += part[i];
  return total;
}

// The lanes i .. l of the eight of a and b.
#if defined(__clang__)
#define CONTCONV_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define CONTCONV_SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, Index4{i, j, k, l})
#endif

// The sums over lanes of four vectors: four at once cost little more than one.
CONTCONV_INLINE Vec4 sums(Vec a, Vec b, Vec c, Vec d) {
  const Vec4 a4 = folded(a), b4 = folded(b), c4 = folded(c), d4 = folded(d);
  const Vec4 ab = CONTCONV_SHUFFLE(a4, b4, 0, 4, 1, 5) + CONTCONV_SHUFFLE(a4, b4, 2, 6, 3, 7);
  const Vec4 cd = CONTCONV_SHUFFLE(c4, d4, 0, 4, 1, 5) + CONTCONV_SHUFFLE(c4, d4, 2, 6, 3, 7);
  return CONTCONV_SHUFFLE(ab, cd, 0, 1, 4, 5) + CONTCONV_SHUFFLE(ab, cd, 2, 3, 6, 7);
}

inline void copy_four(float* to, const float* from) {
  Vec4 v;
  __builtin_memcpy(&v, from, sizeof v);
  __builtin_memcpy(to, &v, sizeof v);
}

// to[j][i] = from[i][j] for four rows of four
CONTCONV_INLINE void transpose_four(const float* from, int64_t from_step, float* to, int64_t to_step) {
  Vec4 row[4];
  for (int i = 0; i < 4; ++i) __builtin_memcpy(&row[i], from + i * from_step, sizeof row[i]);
  // Pairs of rows side by side: the first two columns of two rows, the last two
  const Vec4 a = CONTCONV_SHUFFLE(row[0], row[1], 0, 4, 1, 5), b = CONTCONV_SHUFFLE(row[0], row[1], 2, 6, 3, 7);
  const Vec4 c = CONTCONV_SHUFFLE(row[2], row[3], 0, 4, 1, 5), d = CONTCONV_SHUFFLE(row[2], row[3], 2, 6, 3, 7);
  const Vec4 column[4] = {CONTCONV_SHUFFLE(a, c, 0, 1, 4, 5), CONTCONV_SHUFFLE(a, c, 2, 3, 6, 7),
                          CONTCONV_SHUFFLE(b, d, 0, 1, 4, 5), CONTCONV_SHUFFLE(b, d, 2, 3, 6, 7)};
  for (int j = 0; j < 4; ++j) __builtin_memcpy(to + j * to_step, &column[j], sizeof column[j]);
}

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t whole_vectors(int64_t lanes) { return ceil_div(lanes, kLanes) * kLanes; }

}  // namespace
}  // namespace contconv
