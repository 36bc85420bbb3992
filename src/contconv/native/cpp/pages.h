// Large pages: memory that is new to a process costs a fault for each page that is first written.
#pragma once
#include <cstdint>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace contconv {

// Asks the system for pages of 2 MiB under an array that is about to be written. It is only advice: where there are
// none to be had, the array is what it was.
inline void ask_for_large_pages([[maybe_unused]] void* data, [[maybe_unused]] int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kPage = 2 << 20;
  const uintptr_t address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (address + kPage - 1) / kPage * kPage;
  const uintptr_t end = (address + static_cast<uintptr_t>(bytes)) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace contconv
