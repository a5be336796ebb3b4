#include "cuda_backend/uploader.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

namespace subbyte {
namespace {

constexpr int64_t kCopyGrain = int64_t{1} << 19;  // for a thread of the host
constexpr int64_t kAlignment = 16;                // of copies in a slot

Status check(const char* what, cudaError_t error) {
  if (error == cudaSuccess) return {};
  return cuda_error("cuda.copy", what, error);
}

}  // namespace

Status CudaUploader::start() {
  if (started_) return {};
  started_ = true;
  for (Slot& slot : slots_) {
    SUBBYTE_CHECK(slot.pinned.grow(kSlotBytes));
    SUBBYTE_CHECK(check("events", cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming)));
  }
  return {};
}

Result<std::byte*> CudaUploader::staging(int64_t bytes) {
  SUBBYTE_CHECK(staging_.grow(bytes));
  return staging_.data();
}

Status CudaUploader::next_slot() {
  SUBBYTE_CHECK(check("copy to the GPU", cudaEventRecord(slots_[current_].done, stream_)));
  current_ = (current_ + 1) % slots_.size();
  Slot& slot = slots_[current_];
  SUBBYTE_CHECK(check("copy to the GPU", cudaEventSynchronize(slot.done)));
  slot.used = 0;
  return {};
}

Status CudaUploader::enqueue(std::byte* to, int64_t count) {
  Slot& slot = slots_[current_];
  SUBBYTE_CHECK(check("copy to the GPU", cudaMemcpyAsync(to, slot.pinned.data() + slot.used, count,
                                                         cudaMemcpyHostToDevice, stream_)));
  slot.used += (count + kAlignment - 1) / kAlignment * kAlignment;
  return {};
}

Status CudaUploader::copy_pieces(std::byte* to, std::span<const UploadPiece> pieces, int64_t size) {
  if (size > kSlotBytes) {
    for (const UploadPiece& piece : pieces) SUBBYTE_CHECK(copy(to + piece.at, piece.bytes));
    return {};
  }
  if (size == 0) return {};
  SUBBYTE_CHECK(start());
  if (size > kSlotBytes - slots_[current_].used) SUBBYTE_CHECK(next_slot());
  const Slot& slot = slots_[current_];
  std::byte* const pinned = slot.pinned.data() + slot.used;
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
  return enqueue(to, size);
}

Status CudaUploader::copy(std::byte* to, std::span<const std::byte> bytes) {
  SUBBYTE_CHECK(start());
  while (!bytes.empty()) {
    if (slots_[current_].used >= kSlotBytes) SUBBYTE_CHECK(next_slot());
    Slot& slot = slots_[current_];
    const int64_t count = std::min(std::ssize(bytes), kSlotBytes - slot.used);
    std::byte* const pinned = slot.pinned.data() + slot.used;
    host_.parallel_for(count, kCopyGrain, [&](int64_t begin, int64_t end, int) {
      std::memcpy(pinned + begin, bytes.data() + begin, static_cast<std::size_t>(end - begin));
    });
    SUBBYTE_CHECK(enqueue(to, count));
    to += count;
    bytes = bytes.subspan(count);
  }
  return {};
}

Status CudaUploader::finish() {
  if (!started_ && staging_.size() == 0) return {};
  const cudaError_t error = cudaStreamSynchronize(stream_);
  release();
  if (error == cudaSuccess) return {};
  return cuda_error("cuda.launch", "packing the weights", error);
}

void CudaUploader::release() {
  for (Slot& slot : slots_) {
    if (slot.done != nullptr) cudaEventDestroy(slot.done);
    slot = {};
  }
  staging_ = CudaBuffer();
  current_ = 0;
  started_ = false;
}

}  // namespace subbyte
