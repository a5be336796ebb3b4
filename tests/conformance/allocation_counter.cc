#include "conformance/allocation_counter.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

// Atomic, since models are loaded by several threads. The peak is exact where one thread allocates.
std::atomic<std::size_t> live = 0;
std::atomic<std::size_t> peak = 0;

/// nullptr when there is no memory.
void* try_allocate(std::size_t size) noexcept {
  void* const block = std::malloc(size == 0 ? 1 : size);
  if (block == nullptr) return nullptr;
  const std::size_t size_of_block = ::malloc_usable_size(block);
  peak = std::max(peak.load(), live += size_of_block);
  return block;
}

void* allocate(std::size_t size) {
  void* const block = try_allocate(size);
  if (block == nullptr) throw std::bad_alloc();
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
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return try_allocate(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return try_allocate(size);
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

void operator delete(void* block, const std::nothrow_t&) noexcept {
  release(block);
}
void operator delete[](void* block, const std::nothrow_t&) noexcept {
  release(block);
}

namespace subbyte::conformance {

AllocationPeak::AllocationPeak() : before_(live) {
  peak = before_;
}

std::size_t AllocationPeak::bytes() const {
  return peak - before_;
}

}  // namespace subbyte::conformance
