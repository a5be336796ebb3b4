#pragma once
// Copies to the GPU while weights are loaded.
//
//   file or importer's buffer -> pinned slot 0 or 1 -> device memory
//                             host threads         the stream
//
// copy() returns when the bytes are in a pinned slot, so that the host imports the next matrix
// while the stream copies and packs. A slot is filled again when its last copies are done. What is
// packed goes through one device buffer, which all matrices use in turn: the order of the stream
// keeps them apart.

#include <array>

#include "base/executor.h"
#include "cuda_backend/device_memory.h"

struct CUevent_st;  // cudaEvent_t, without the toolkit's headers

namespace subbyte {

class CudaUploader {
 public:
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
  void release();

  CUstream_st* stream_;
  Executor& host_;
  CudaBuffer staging_;
  std::array<Slot, 2> slots_;
  std::size_t current_ = 0;
  bool started_ = false;
};

}  // namespace subbyte
