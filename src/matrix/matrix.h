#pragma once
// The canonical form of a weight matrix: what every importer makes, every exporter takes, and the
// CPU kernels read directly.
//
// W is [rows][cols] = [outputs][inputs]; y = W x. Row after row, and inside a row the codes of
// consecutive inputs follow each other as one little-endian stream of bits:
//
//   code (n, k) = bits [k*b, k*b + b) of row n,     row n starts at byte n * row_bytes
//
//   4 bits, row n:   byte 0            byte 1            ...
//                    k=1:hi  k=0:lo    k=3:hi  k=2:lo
//
// This is byte for byte what gpt-oss files hold, so MXFP4 is used where it lies in the file.
//
// Scales and zero points are [rows][groups]; group g covers inputs [g*group_size, ...).
//   dequantized w(n, k) = (element(code) - zero(n, g)) * scale(n, g) * tensor_scale
//
// without zero point and scale where the format is dense,
//
// or, where float zero points are kept (Zero::kF16, kBF16, kF32: offsets, in `zeros` then),
//
//                w(n, k) = (element(code) * scale(n, g) + offset(n, g)) * tensor_scale
//
// A matrix whose codes are indices of a codebook (nfl2 to nfl5) may bring one of its own, which
// element() is then. One of vectors (vq2, vq4) has to: a byte of a row is the index of a vector for
// 4 or 2 inputs (formats/vectors.cc).
//
// With format.rotation what the above says are the rotated weights; each run of them is rotated
// back for w (formats/rotation.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "formats/weight_format.h"

namespace subbyte {

/// A canonical matrix whose bytes belong to another object.
struct MatrixView {
  WeightFormat format;
  int64_t rows = 0;                   // N, outputs
  int64_t cols = 0;                   // K, inputs
  std::span<const std::byte> codes;   // rows * row_bytes()
  std::span<const std::byte> scales;  // [rows][groups] of format.scale; empty for dense formats
  std::span<const std::byte> zeros;   // [rows][groups] of format.zero; empty when there are none
  /// One more factor of all weights: NVFP4's scales are too coarse to hold it. A float, or what
  /// divides by a float (compressed-tensors), which only a double keeps exactly enough to go back.
  double tensor_scale = 1;
  /// Values of the codes of this matrix, num_codes() numbers, in host memory always: increasing for
  /// nfl2 to nfl5, vector after vector for vq2 and vq4 (matrix/codebook.h). Empty: what the element
  /// says.
  std::span<const float> codebook;
  /// Act-order: stored column k multiplies input input_order[k]. Empty means k itself.
  std::span<const uint32_t> input_order;

  int64_t num_codes() const {
    const FormatInfo& element = info(format.element);
    return element.vector_size > 1 ? int64_t{kVectors} * element.vector_size
                                   : int64_t{1} << element.bits;
  }
  /// The number that a code stands for, before zero point and scale.
  double value_of(uint32_t code) const {
    return codebook.empty() ? info(format.element).decode(code) : double{codebook[code]};
  }
  int64_t row_bytes() const { return (cols * info(format.element).bits + 7) / 8; }
  int64_t group_size() const { return format.group_size == 0 ? cols : format.group_size; }
  /// A group may be larger than a row, up to the largest number.
  int64_t groups() const {
    return is_dense(format) || cols < 1 ? 0 : (cols - 1) / group_size() + 1;
  }
  /// All that a product with this matrix has to read.
  int64_t bytes() const {
    return static_cast<int64_t>(codes.size() + scales.size() + zeros.size() +
                                input_order.size_bytes());
  }
};

/// A canonical matrix together with what keeps its bytes alive: buffers of its own, the mapped
/// file, or some of each.
struct Matrix {
  MatrixView view;
  std::vector<std::shared_ptr<const void>> owners;
};

/// kHuge asks for 2 MiB pages, which small buffers share, for what will be filled and streamed;
/// kSmall keeps to small pages, for what is filled bit by bit and may stay half empty: there may be
/// more of it than the machine has.
enum class Pages : uint8_t { kHuge, kSmall };

/// Zeroed bytes, aligned to 64, from 2 KiB on whole pages that writing makes resident. Throws.
std::shared_ptr<std::byte[]> allocate_bytes(std::size_t size, Pages pages = Pages::kHuge);

/// Code (row, col) of the canonical stream; of vectors the place of the number in the codebook.
uint32_t code_at(const MatrixView& matrix, int64_t row, int64_t col);

/// The dequantized weight (row, col) in double precision: the oracle of every test. `col` is the
/// stored column; with act-order it belongs to input input_order[col].
double weight_at(const MatrixView& matrix, int64_t row, int64_t col);

}  // namespace subbyte
