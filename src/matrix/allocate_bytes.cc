// Memory for weights and activations. Pieces for huge pages are cut one after the other from
// regions of address space, so that a huge page is shared by what would not fill it: the
// matrices of small models, and the scales of all. With small pages decoding took 1.01 to 1.04
// times as long (0.6b, AMX).
//
//   | codes | scales | zeros | codes | ... | not handed out yet |   kRegion bytes, from a multiple
//                                          ^ next               ^ end              of kHugePage on
//
// A piece that is freed is unmapped and its place not used again, so that all pieces are zeros.
// What is far smaller than a page comes from the heap: a megabyte may hold 50,000 experts.

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>

#include "base/checked.h"
#include "matrix/matrix.h"

namespace subbyte {
namespace {

constexpr std::size_t kSmallPage = 4096;
constexpr std::size_t kSmallest = kSmallPage / 2;  // below it no page of its own
constexpr std::size_t kReadBeyond = 64;            // bytes after the end that kernels may read
constexpr std::align_val_t kLine{64};
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kRegion = std::size_t{64} << 20;
constexpr std::size_t kLargestPiece = std::size_t{16} << 20;  // larger ones have their own mapping

std::byte* map(std::size_t bytes, int flags = 0) {
  flags |= MAP_PRIVATE | MAP_ANONYMOUS;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(data);
}

void unmap(std::byte* data, std::size_t bytes) {
  if (bytes > 0) munmap(data, bytes);
}

/// A mapping that begins at a multiple of kHugePage, as `bytes` is one.
std::byte* map_huge(std::size_t bytes) {
  std::byte* data = map(bytes + kHugePage);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(data) % kHugePage;
  unmap(data, before);
  unmap(data + before + bytes, kHugePage - before);
  madvise(data + before, bytes, MADV_HUGEPAGE);
  return data + before;
}

/// What is left of the present region.
struct Region {
  std::mutex mutex;
  std::byte* next = nullptr;
  std::byte* end = nullptr;

  std::byte* cut(std::size_t bytes) {
    const std::lock_guard lock(mutex);
    if (static_cast<std::size_t>(end - next) < bytes) {
      std::byte* fresh = map_huge(kRegion);
      unmap(next, end - next);
      next = fresh;
      end = fresh + kRegion;
    }
    next += bytes;
    return next - bytes;
  }
};

constinit Region region;

std::shared_ptr<std::byte[]> owned(std::byte* data, std::size_t bytes) {
  return {data, [bytes](std::byte* p) { munmap(p, bytes); }};
}

std::shared_ptr<std::byte[]> from_heap(std::size_t bytes) {
  auto* data = static_cast<std::byte*>(::operator new(bytes, kLine));
  std::memset(data, 0, bytes);
  return {data, [](std::byte* p) { ::operator delete(p, kLine); }};
}

}  // namespace

std::shared_ptr<std::byte[]> allocate_bytes(std::size_t size, Pages pages) {
  if (size < kSmallest) return from_heap(size + kReadBeyond);
  std::size_t bytes = round_up(size + 1, kSmallPage);
  if (pages == Pages::kSmall) {
    std::byte* data = map(bytes, MAP_NORESERVE);  // more than the machine has, most of it unused
    madvise(data, bytes, MADV_NOHUGEPAGE);
    return owned(data, bytes);
  }
  if (bytes <= kLargestPiece) return owned(region.cut(bytes), bytes);
  bytes = round_up(bytes, kHugePage);
  return owned(map_huge(bytes), bytes);
}

}  // namespace subbyte
