#pragma once
// Matrices of the host on their way to the packed form of one.

#include <cstdint>
#include <span>
#include <vector>

#include "device/uploader.h"
#include "kernels/gpu/packed_weights.h"
#include "matrix/matrix.h"

namespace subbyte::device {

/// Says whether matrices become one below the other: those of one format, codebook and order of
/// inputs.
bool can_join(std::span<const Matrix> matrices);

/// Such matrices, of formats that gpu::support() has made. They go to staging memory, and from
/// there to the packed form.
///
///   JoinedMatrices joined(matrices)          reads scales and zero points, by any thread
///   joined.stage_at(staging + ..., order)    where they go, and what they become
///   joined.add_pieces(...)                   what is to be copied there
///   joined.pack(to, gpu)
class JoinedMatrices {
 public:
  /// The bytes of the matrices must stay until they have been copied.
  explicit JoinedMatrices(std::span<const Matrix> matrices);
  JoinedMatrices(JoinedMatrices&&) = default;
  JoinedMatrices& operator=(JoinedMatrices&&) = default;

  /// Room that they need in staging memory.
  int64_t staged_bytes() const { return sections().end; }
  /// `place` is a multiple of 256. Codes: those of gpu::packed_format().
  Status stage_at(std::byte* place, gpu::RowOrder order);
  /// Appends the pieces that stage_at() has placed; `at` is from the begin of the copy to that
  /// place.
  void add_pieces(int64_t at, std::vector<UploadPiece>& pieces) const;
  const gpu::PackedFormat& format() const { return format_; }
  /// Shape, format and all but the codes, in memory of the host.
  const MatrixView& view() const { return on_host_; }
  /// Enqueues packing to `to`, format().bytes. Code cuda.launch.
  Status pack(std::byte* to, const Gpu& gpu) const;

 private:
  struct Sections {  // places from the begin of the staged bytes
    int64_t codes, scales, zeros, order, end;
  };
  Sections sections() const;

  std::vector<std::span<const std::byte>> codes_;  // of each
  std::vector<std::byte> scales_, zeros_;          // of more than one
  MatrixView on_host_;
  MatrixView staged_;
  gpu::PackedFormat format_ = {};
};

}  // namespace subbyte::device
