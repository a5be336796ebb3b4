#pragma once
// Copies of the host's bytes to a GPU.
//
//   file or importer's buffer -> pinned slot 0 or 1 -> memory of the GPU
//                             host threads         the stream
//
// A copy returns when the bytes have left the caller's memory, so that the host imports the next
// matrix while the stream copies and packs. A slot is filled again when its last copies are done.
// What is packed goes through one buffer of the GPU, which all matrices use in turn: the order of
// the stream keeps them apart. Many small pieces share a copy: all threads of the host bring them
// into a slot.

#include <array>
#include <cstdint>
#include <span>

#include "device/gpu.h"
#include "subbyte/executor.h"

namespace subbyte::device {

/// Bytes of the host, and where they go from some place on.
struct UploadPiece {
  int64_t at = 0;
  std::span<const std::byte> bytes;
};

/// For one GPU and one stream.
class Uploader {
 public:
  static constexpr int64_t kSlotBytes = int64_t{32} << 20;

  enum class Copies : uint8_t {
    kMany,  // through slots, which take longer to make than a few copies
    kFew,   // by the driver, each waited for
  };

  /// `staging`: where the buffer comes from that matrices are packed from. Both must outlive it.
  explicit Uploader(Executor& host, Memory& staging = driver_memory(),
                    Copies copies = Copies::kMany)
      : host_(host), memory_(staging), copies_(copies) {}
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;
  /// Waits for the copies from its slots.
  ~Uploader();

  Executor& host() const { return host_; }

  /// Memory of the GPU that is free once all that was enqueued has run. Code cuda.memory.
  Result<std::byte*> staging(int64_t bytes, const Gpu& gpu);
  /// Enqueues a copy to memory of the GPU. Codes: cuda.memory, cuda.copy.
  Status copy(std::byte* to, std::span<const std::byte> bytes, const Gpu& gpu);
  /// Enqueues copies to `to` on of pieces in the order of their places, all of them before `size`.
  /// What is between them may be written, too. Codes: cuda.memory, cuda.copy.
  Status copy_pieces(std::byte* to, std::span<const UploadPiece> pieces, int64_t size,
                     const Gpu& gpu);
  /// Waits and gives pinned and staging memory back. Code cuda.launch for what went wrong.
  Status finish(const Gpu& gpu);

  int64_t staging_bytes() const { return staging_.size(); }

 private:
  struct Slot {
    Buffer pinned;
    Event done;
    int64_t used = 0;
  };

  /// Room for `bytes` in the current slot, or in the next one, as soon as it can be written.
  Result<std::byte*> room(int64_t bytes, const Gpu& gpu);
  /// Enqueues a copy of the next `count` bytes of the current slot, and counts them as used.
  Status enqueue(std::byte* to, int64_t count, const Gpu& gpu);

  Executor& host_;
  Memory& memory_;
  Copies copies_;
  Buffer staging_;
  std::array<Slot, 2> slots_;
  std::size_t current_ = 0;
};

}  // namespace subbyte::device
