// Large results on large pages: memory that is new to a process costs a page fault for each page that is first written.
#pragma once
#include <cstdint>
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace contconv {

// Asks the system for large pages (on x86 of 2 MiB instead of 4 KiB) under an array that is about to be written. It is
// only advice: where the system has none to give, or knows none, the array is what it was. Torch's own allocator
// doesn't ask, and an array beyond the allocator's largest bin is new to the process each time.
inline void advise_large_pages([[maybe_unused]] const float* data, [[maybe_unused]] int64_t count) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kWorthIt = 4 << 20;   // bytes
  const uintptr_t bytes = static_cast<uintptr_t>(count) * sizeof(float);
  if (data == nullptr || bytes < kWorthIt) return;
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (address + page - 1) / page * page, end = (address + bytes) / page * page;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace contconv
