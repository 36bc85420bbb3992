// Scratch memory: aligned to cache lines, owned by one call and then kept for the next, taken before threads start.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace contconv {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache line

// Under AddressSanitizer nothing is kept for later calls, memory is full of NaN at first, and what nobody may touch
// between two arrays is as forbidden as what lies outside of all.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
inline void forbid(void* data, int64_t bytes) { ASAN_POISON_MEMORY_REGION(data, static_cast<size_t>(bytes)); }
#else
constexpr bool kSanitized = false;
inline void forbid(void*, int64_t) {}
#endif

struct Memory {
  void* data;
  int64_t bytes;
};

// What a thread's calls gave back, for its next call: memory that is new to a process costs a page fault every 4 KiB,
// which is more than the work of a small problem.
class Shelf {
 public:
  ~Shelf() {
    for (int i = 0; i < count; ++i) std::free(kept[i].data);
  }

  // At least so many bytes. Throws std::bad_alloc, so it is called outside of parallel regions.
  Memory take(int64_t bytes) {
    int best = -1;
    for (int i = 0; i < count; ++i)
      if (kept[i].bytes >= bytes && (best < 0 || kept[i].bytes < kept[best].bytes)) best = i;
    if (best >= 0 && kept[best].bytes <= 2 * bytes + kLittle) {
      const Memory memory = kept[best];
      kept[best] = kept[--count];
      total -= memory.bytes;
      return memory;
    }
    void* data = std::aligned_alloc(kLine, static_cast<size_t>(bytes));
    if (data == nullptr) throw std::bad_alloc();
    return {data, bytes};
  }

  void give_back(const Memory& memory) {
    if (count == kMost || total + memory.bytes > kMostBytes) return std::free(memory.data);
    kept[count++] = memory;
    total += memory.bytes;
  }

 private:
  static constexpr int kMost = 32;
  static constexpr int64_t kMostBytes = kSanitized ? 0 : 8 << 20, kLittle = 64 << 10;
  Memory kept[kMost];
  int count = 0;
  int64_t total = 0;
};

thread_local Shelf shelf;

// An uninitialised array.
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t count)
      : memory_(shelf.take((count * static_cast<int64_t>(sizeof(T)) / kLine + 1) * kLine)) {
    if (!kSanitized) return;
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    std::memset(memory_.data, 0xff, static_cast<size_t>(bytes));
    forbid(static_cast<char*>(memory_.data) + bytes, memory_.bytes - bytes);
  }
  ~Buffer() { shelf.give_back(memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const { return static_cast<T*>(memory_.data); }
  T& operator[](int64_t i) const { return data()[i]; }

 private:
  const Memory memory_;
};

// One array for each thread, far from the others': a core fetches ahead beyond the end of what it works on, and takes
// lines from the core that is writing them. Nobody touches what lies in between, so as a rule it takes no memory.
template <class T>
class PerThread {
 public:
  PerThread(int64_t threads, int64_t count) : step_(apart(count)), buffer_(threads * step_) {
    for (int64_t i = 0; i < threads && kSanitized; ++i)
      forbid(of(static_cast<int>(i)) + count, (step_ - count) * static_cast<int64_t>(sizeof(T)));
  }
  T* of(int thread) const { return buffer_.data() + thread * step_; }

 private:
  static constexpr int64_t kShort = 32 << 10, kApart = 256 << 10, kLittleApart = 4 << 10;   // bytes

  static int64_t apart(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    const int64_t whole = (bytes / kLine + 1) * kLine + (bytes < kShort ? kLittleApart : kApart);
    return whole / static_cast<int64_t>(sizeof(T));
  }
  int64_t step_;
  Buffer<T> buffer_;
};

inline void fill_zero(float* data, int64_t count) { std::memset(data, 0, static_cast<size_t>(count) * sizeof(float)); }

}  // namespace
}  // namespace contconv
