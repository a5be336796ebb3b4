#pragma once
// Copies to the GPU while weights are loaded.
//
//   file or importer's buffer -> pinned slot 0 or 1 -> device memory
//                             host threads         the stream
//
// copy() returns when the bytes are in a pinned slot, so that the host imports the next matrix
// while the stream copies and packs. A slot is filled again when its last copies are done. What is
// packed goes through one device buffer, which all matrices use in turn: the order of the stream
// keeps them apart. Many small pieces share a copy: all threads of the host bring them into a slot.

#include <array>
#include <span>

#include "cuda_backend/device_memory.h"
#include "subbyte/executor.h"

struct CUevent_st;  // cudaEvent_t, without the toolkit's headers

namespace subbyte {

/// Bytes of the host, and where they go from some place on.
struct UploadPiece {
  int64_t at = 0;
  std::span<const std::byte> bytes;
};

class CudaUploader {
 public:
  static constexpr int64_t kSlotBytes = int64_t{32} << 20;

  /// Both must outlive it. Steps on the same stream come after what was uploaded before them.
  CudaUploader(CUstream_st* stream, Executor& host) : stream_(stream), host_(host) {}
  CudaUploader(const CudaUploader&) = delete;
  CudaUploader& operator=(const CudaUploader&) = delete;
  ~CudaUploader() { release(); }

  CUstream_st* stream() const { return stream_; }

  /// Room for staging() of so many bytes. Code cuda.memory.
  Status reserve(int64_t staging_bytes) { return staging_.grow(staging_bytes); }
  /// Device memory that is free once all that was enqueued has run. Code cuda.memory.
  Result<std::byte*> staging(int64_t bytes);
  /// Enqueues a copy to device memory. Codes: cuda.memory, cuda.copy.
  Status copy(std::byte* to, std::span<const std::byte> bytes);
  /// Enqueues copies to `to` on of pieces in the order of their places, all of them before `size`.
  /// What is between them is written, too. Codes: cuda.memory, cuda.copy.
  Status copy_pieces(std::byte* to, std::span<const UploadPiece> pieces, int64_t size);
  /// Waits and gives pinned and staging memory back. Code cuda.launch for what went wrong.
  Status finish();

  int64_t staging_bytes() const { return staging_.size(); }

 private:
  struct Slot {
    CudaBuffer pinned{CudaBuffer::Place::kHost};
    CUevent_st* done = nullptr;
    int64_t used = 0;
  };

  Status start();
  Status next_slot();
  /// Enqueues a copy of the next `count` bytes of the current slot, and counts them as used.
  Status enqueue(std::byte* to, int64_t count);
  void release();

  CUstream_st* stream_;
  Executor& host_;
  CudaBuffer staging_;
  std::array<Slot, 2> slots_;
  std::size_t current_ = 0;
  bool started_ = false;
};

}  // namespace subbyte
