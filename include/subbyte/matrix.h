#pragma once
// Weight matrices in the one form that all of the library reads.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "subbyte/format.h"
#include "subbyte/status.h"

SUBBYTE_BEGIN_WRAPPED_NAMESPACE

/// The bytes of a weight matrix W [rows][cols] = [outputs][inputs]; y = W x. Row after row, and
/// inside a row the codes of consecutive inputs follow each other as one little-endian stream of
/// bits; a row begins at a byte:
///
///   4 bits, row n:   byte 0            byte 1            ...
///                    k=1:hi  k=0:lo    k=3:hi  k=2:lo
///
/// Scales and zero points are [rows][groups], group g being of inputs [g * group_size, ...), the
/// last of which may be short. Every number is little-endian and may lie at any address.
struct MatrixParts {
  WeightFormat format;
  int64_t rows = 0;                        // N, outputs, 0 to 2^24
  int64_t cols = 0;                        // K, inputs, 1 to 2^24
  std::span<const std::byte> codes = {};   // rows * ceil(cols * bits / 8)
  std::span<const std::byte> scales = {};  // [rows][groups] of format.scale; empty where dense
  std::span<const std::byte> zeros = {};   // [rows][groups] of format.zero; empty without
  double tensor_scale = 1;                 // one more factor of all weights, finite
  /// Values of the codes of nfl2 to nfl5 in this matrix, 2^bits increasing numbers; empty: those
  /// of the format.
  std::span<const float> codebook = {};
  /// Act-order: stored column k is of input input_order[k]. Empty: of input k.
  std::span<const uint32_t> input_order = {};
};

/// A weight matrix. Copies are cheap, share the bytes and may be used by several threads.
class Matrix {
 public:
  /// A matrix of bytes that are there already, such as a mapped file; they are not copied and must
  /// not change. `owner`, if there is one, is kept as long as the matrix; without one the bytes
  /// outlive it. Codes: matrix.argument (sizes that disagree, formats that do not go together, an
  /// order that is no permutation, values of codes that do not increase).
  static Result<Matrix> of(const MatrixParts& parts, std::shared_ptr<const void> owner = nullptr);

  /// Its bytes, which live as long as this or a copy.
  const MatrixParts& parts() const;

  const WeightFormat& format() const { return parts().format; }
  int64_t rows() const { return parts().rows; }
  int64_t cols() const { return parts().cols; }
  /// Bytes of codes, scales, zero points and order.
  int64_t num_bytes() const;

  /// Rows [first, first + out.size() / cols()) as numbers, in the order of the inputs, with
  /// act-order, too: [rows][cols]. In double precision they are the definition above, in float the
  /// numbers next to it, or within two roundings where there is a tensor_scale.
  /// Code: matrix.argument (not whole rows, or rows that are not there).
  Status dequantize(int64_t first, std::span<float> out) const;
  Status dequantize(int64_t first, std::span<double> out) const;

  struct Data;  // of the library
  explicit Matrix(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  const Data& data() const { return *data_; }

 private:
  std::shared_ptr<const Data> data_;
};

SUBBYTE_END_NAMESPACE
