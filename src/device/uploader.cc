#include "device/uploader.h"

#include <algorithm>
#include <cstring>

namespace subbyte::device {
namespace {

constexpr int64_t kCopyGrain = int64_t{1} << 19;  // for a thread of the host
constexpr int64_t kAlignment = 16;                // of copies in a slot

}  // namespace

Uploader::~Uploader() {
  for (const Slot& slot : slots_) static_cast<void>(slot.done.wait());
}

Result<std::byte*> Uploader::staging(int64_t bytes, const Gpu& gpu) {
  if (staging_.size() < bytes) {
    staging_ = Buffer();  // first: its contents are not kept
    SUBBYTE_TRY(staging_, memory_.allocate(bytes, gpu.stream()));
  }
  return staging_.data();
}

Result<std::byte*> Uploader::room(int64_t bytes, const Gpu& gpu) {
  if (bytes > kSlotBytes - slots_[current_].used) {
    current_ = (current_ + 1) % slots_.size();
    SUBBYTE_CHECK(slots_[current_].done.wait());
    slots_[current_].used = 0;
  }
  Slot& slot = slots_[current_];
  if (slot.pinned.size() == 0) {
    SUBBYTE_TRY(slot.pinned, pinned_memory().allocate(kSlotBytes, gpu.stream()));
  }
  return slot.pinned.data() + slot.used;
}

Status Uploader::enqueue(std::byte* to, int64_t count, const Gpu& gpu) {
  Slot& slot = slots_[current_];
  SUBBYTE_CHECK(gpu.copy(to, slot.pinned.data() + slot.used, count));
  slot.used += (count + kAlignment - 1) / kAlignment * kAlignment;
  return slot.done.record(gpu);
}

Status Uploader::copy_pieces(std::byte* to, std::span<const UploadPiece> pieces, int64_t size,
                             const Gpu& gpu) {
  if (size > kSlotBytes || copies_ == Copies::kFew) {
    for (const UploadPiece& piece : pieces) SUBBYTE_CHECK(copy(to + piece.at, piece.bytes, gpu));
    return {};
  }
  if (size == 0) return {};
  SUBBYTE_TRY(std::byte* const pinned, room(size, gpu));
  // By bytes and not by pieces, which may be a few large ones.
  host_.parallel_for(size, kCopyGrain, [&](int64_t begin, int64_t end, int) {
    auto piece = std::ranges::partition_point(
        pieces, [=](const UploadPiece& one) { return one.at + std::ssize(one.bytes) <= begin; });
    for (; piece != pieces.end() && piece->at < end; ++piece) {
      const int64_t first = std::max(begin, piece->at);
      const int64_t last = std::min(end, piece->at + std::ssize(piece->bytes));
      if (first >= last) continue;
      std::memcpy(pinned + first, piece->bytes.data() + (first - piece->at),
                  static_cast<std::size_t>(last - first));
    }
  });
  return enqueue(to, size, gpu);
}

Status Uploader::copy(std::byte* to, std::span<const std::byte> bytes, const Gpu& gpu) {
  if (copies_ == Copies::kFew) {
    SUBBYTE_CHECK(gpu.copy(to, bytes.data(), std::ssize(bytes)));
    return gpu.wait("copying the weights");
  }
  while (!bytes.empty()) {
    SUBBYTE_TRY(std::byte* const pinned, room(1, gpu));
    const int64_t count = std::min(std::ssize(bytes), kSlotBytes - slots_[current_].used);
    host_.parallel_for(count, kCopyGrain, [&](int64_t begin, int64_t end, int) {
      std::memcpy(pinned + begin, bytes.data() + begin, static_cast<std::size_t>(end - begin));
    });
    SUBBYTE_CHECK(enqueue(to, count, gpu));
    to += count;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Status Uploader::finish(const Gpu& gpu) {
  const Status done = gpu.wait("packing the weights");
  for (Slot& slot : slots_) {
    slot.pinned = Buffer();
    slot.used = 0;
  }
  staging_ = Buffer();
  current_ = 0;
  return done;
}

}  // namespace subbyte::device
