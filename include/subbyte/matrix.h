#pragma once
// Weight matrices in the one form that all of the library reads: what importers and quantizers
// make, what is written, and what the kernels of the CPU multiply by.
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
// Scales and zero points are [rows][groups]; group g is of inputs [g*group_size, ...), and the last
// may be short. Where they have two levels, a row has a byte for each of its groups, then an f16
// for each 256 inputs, and a scale is the integer of its group times the f16.
//   dequantized w(n, k) = (element(code) - zero(n, g)) * scale(n, g) * tensor_scale
//
// without zero point and scale where the format is dense,
//
// or, where float zero points are kept (Zero::kF16 and all after it: offsets, in `zeros` then),
//
//                w(n, k) = (element(code) * scale(n, g) + offset(n, g)) * tensor_scale
//
// A matrix whose codes are indices of a codebook (nfl2 to nfl5) may bring one of its own, which
// element() is then. One of vectors (vq2, vq4) has to: a byte of a row is the index of a vector for
// 4 or 2 inputs.
//
// With format.rotation what the above says are the rotated weights; each run of them is rotated
// back for w. Every number is little-endian and may lie at any address.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "subbyte/format.h"
#include "subbyte/status.h"

SUBBYTE_BEGIN_NAMESPACE

/// A matrix whose bytes belong to another object.
struct MatrixView {
  WeightFormat format = {};
  int64_t rows = 0;                        // N, outputs, 0 to 2^24
  int64_t cols = 0;                        // K, inputs, 1 to 2^24
  std::span<const std::byte> codes = {};   // rows * row_bytes()
  std::span<const std::byte> scales = {};  // rows * scale_row_bytes(); empty where dense
  std::span<const std::byte> zeros = {};   // rows * zero_row_bytes(); empty without
  /// One more factor of all weights, finite: NVFP4's scales are too coarse to hold it. A float, or
  /// what divides by a float (compressed-tensors), which only a double keeps exactly enough to go
  /// back.
  double tensor_scale = 1;
  /// Values of the codes of this matrix, num_codes() numbers, in host memory always: increasing for
  /// nfl2 to nfl5, vector after vector for vq2 and vq4. Empty: what the element says.
  std::span<const float> codebook = {};
  /// Act-order: stored column k multiplies input input_order[k]. Empty: input k.
  std::span<const uint32_t> input_order = {};

  int64_t num_codes() const;
  /// The number that a code stands for, before zero point and scale.
  double value_of(uint32_t code) const;
  int64_t row_bytes() const { return (cols * bits(format.element) + 7) / 8; }
  int64_t scale_row_bytes() const;
  int64_t zero_row_bytes() const;
  int64_t group_size() const { return format.group_size == 0 ? cols : format.group_size; }
  /// A group may be larger than a row, up to the largest number.
  int64_t groups() const {
    return format.scale == Format::kNone || cols < 1 ? 0 : (cols - 1) / group_size() + 1;
  }
  /// All that a product with this matrix has to read.
  int64_t bytes() const {
    return static_cast<int64_t>(codes.size() + scales.size() + zeros.size() +
                                input_order.size_bytes());
  }
};

/// A matrix together with what keeps its bytes alive: buffers of its own, the mapped file, or some
/// of each. Copies are cheap, share the bytes and may be used by several threads.
struct Matrix {
  MatrixView view = {};
  std::vector<std::shared_ptr<const void>> owners = {};

  /// A matrix of bytes that are there already, such as a mapped file; they are not copied and must
  /// not change. `owner`, if there is one, is kept as long as the matrix; without one the bytes
  /// outlive it. Codes: matrix.argument (sizes that disagree, formats that do not go together, an
  /// order that is no permutation, values of codes that do not increase).
  static Result<Matrix> of(const MatrixView& view, std::shared_ptr<const void> owner = nullptr);

  /// Rows [first, first + out.size() / view.cols) as numbers, in the order of the inputs, with
  /// act-order, too: [rows][cols]. In double precision they are the definition above, in float the
  /// numbers next to it, or within two roundings where there is a tensor_scale.
  /// Code: matrix.argument (not whole rows, or rows that are not there).
  Status dequantize(int64_t first, std::span<float> out) const;
  Status dequantize(int64_t first, std::span<double> out) const;
};

SUBBYTE_END_NAMESPACE
