#include "conformance/allocation_counter.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

std::size_t live = 0;
std::size_t peak = 0;

void* allocate(std::size_t size) {
  void* const block = std::malloc(size == 0 ? 1 : size);
  if (block == nullptr) throw std::bad_alloc();
  live += ::malloc_usable_size(block);
  peak = std::max(peak, live);
  return block;
}

void release(void* block) noexcept {
  if (block == nullptr) return;
  live -= ::malloc_usable_size(block);
  std::free(block);
}

}  // namespace

void* operator new(std::size_t size) {
  return allocate(size);
}
void* operator new[](std::size_t size) {
  return allocate(size);
}
void operator delete(void* block) noexcept {
  release(block);
}
void operator delete[](void* block) noexcept {
  release(block);
}
void operator delete(void* block, std::size_t) noexcept {
  release(block);
}
void operator delete[](void* block, std::size_t) noexcept {
  release(block);
}

namespace subbyte::conformance {

AllocationPeak::AllocationPeak() : before_(live) {
  peak = live;
}

std::size_t AllocationPeak::bytes() const {
  return peak - before_;
}

}  // namespace subbyte::conformance
