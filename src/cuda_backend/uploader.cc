#include "cuda_backend/uploader.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

namespace subbyte {
namespace {

constexpr int64_t kSlotBytes = int64_t{32} << 20;
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
    SUBBYTE_CHECK(check("copy to the GPU",
                        cudaMemcpyAsync(to, pinned, count, cudaMemcpyHostToDevice, stream_)));
    slot.used += (count + kAlignment - 1) / kAlignment * kAlignment;
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
