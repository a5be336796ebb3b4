#pragma once
// Memory of a GPU, whoever gives it: the driver, torch's caching allocator, the arena of a model.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/common/elements.h"

namespace subbyte::device {

using Stream = cuda::Stream;

/// Bytes that an allocation uses up where several share one.
constexpr int64_t aligned(int64_t bytes) {
  constexpr int64_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Bytes of a GPU, shared by their copies; the last one gives them back to where they came from.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<const void> owner, std::byte* data, int64_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  std::span<const std::byte> span() const { return {data_, static_cast<std::size_t>(size_)}; }

 private:
  std::shared_ptr<const void> owner_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

/// Where memory of the current GPU comes from.
class Memory {
 public:
  virtual ~Memory() = default;
  /// `bytes` at a multiple of 256 for work on `stream`; no address for 0 bytes. They may be given
  /// back as soon as the last work that uses them was launched there. Codes: cuda.memory;
  /// cuda.capture where the stream is captured and this memory cannot be allocated then.
  virtual Result<Buffer> allocate(int64_t bytes, Stream stream) = 0;
};

/// cudaMalloc(). Giving back waits for the GPU.
Memory& driver_memory();

/// Pinned memory of the host, which a GPU copies to and from while the host goes on.
SUBBYTE_BY_NVCC Memory& pinned_memory();

/// Memory that calls on a stream use one after the other: each call gets the same bytes, so it asks
/// once. Calls on two streams have some each. What became too small stays allocated as long as
/// this: a graph may have its address.
class Workspaces : public Memory {
 public:
  /// Allocates where there are fewer bytes than asked for, which cannot be while the stream is
  /// captured. Waits for another thread as long as that has a buffer for work on the stream: so a
  /// thread has one at a time, and gives it back itself.
  Result<Buffer> allocate(int64_t bytes, Stream stream) override;

 private:
  struct OfStream {
    std::mutex in_use;
    Buffer memory;
    std::vector<Buffer> outgrown;
  };
  std::mutex mutex_;
  std::map<std::pair<Stream, std::thread::id>, OfStream> of_streams_;  // cudaStreamPerThread
};

/// Workspaces by the number of their GPU.
class WorkspacesOfGpus {
 public:
  Workspaces& of(int gpu) {
    const std::scoped_lock lock(mutex_);
    return of_gpus_[gpu];
  }

 private:
  std::mutex mutex_;
  std::map<int, Workspaces> of_gpus_;
};

}  // namespace subbyte::device
