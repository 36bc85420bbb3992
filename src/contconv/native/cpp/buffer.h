// Scratch memory: aligned to cache lines, owned by one call, taken before threads start.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace contconv {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache line

// An uninitialised array. Throws std::bad_alloc, so it is made outside of parallel regions.
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t count) {
    const int64_t bytes = (count * static_cast<int64_t>(sizeof(T)) / kLine + 1) * kLine;
    data_ = static_cast<T*>(std::aligned_alloc(kLine, static_cast<size_t>(bytes)));
    if (data_ == nullptr) throw std::bad_alloc();
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  T* data_;
};

// One array for each thread, far from the others': a core fetches ahead beyond the end of what it works on, and takes
// lines from the core that is writing them. What lies in between is never touched, so it takes no memory.
template <class T>
class PerThread {
 public:
  PerThread(int64_t threads, int64_t count) : step_(apart(count)), buffer_(threads * step_) {}
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
