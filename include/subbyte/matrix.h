#pragma once
// Numeric formats, and weight matrices in the one form that all of the library reads.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "subbyte/status.h"

SUBBYTE_BEGIN_NAMESPACE

/// The meaning of the bits of a number.
enum class Format : uint8_t {
  kNone,
  kF32,
  kF16,
  kBF16,
  kE2M1,  // FP4 of MXFP4 and NVFP4
  kE4M3,  // FP8; no infinity
  kE5M2,  // FP8
  kE4M4,  // scales of kbit
  kE8M0,  // powers of two, scales of MX formats
  kU2,    // uN: integers from 0
  kU3,
  kU4,
  kU5,
  kU6,
  kU7,
  kU8,
  kI2,  // iN: the same codes, with 2^(N-1) subtracted
  kI3,
  kI4,
  kI5,
  kI6,
  kI7,
  kI8,
  kNF4,   // table of bitsandbytes' NF4
  kNFL2,  // tables of bitsandbytes' kbit
  kNFL3,
  kNFL4,
  kNFL5,
  kVQ2,  // indices of vectors of 4 and of 2 weights
  kVQ4
};

/// "e2m1", "u4", "bf16"; "none" for kNone.
std::string_view name(Format format);
/// The format of that name, if there is one.
std::optional<Format> find_format(std::string_view name);
/// Bits of one code, 2 to 32; 0 for kNone.
int bits(Format format);
/// The number that a code stands for. `code` is below 2^bits, and `format` not kNone.
double decode(Format format, uint32_t code);
/// The code of the number next to `value`, of two as near the even one; beyond the largest it is
/// the largest, or infinity where the format has it. `format` is not kNone.
uint32_t encode(Format format, double value);

/// How the zero points of a matrix are stored, and what they mean:
///
///   kNone         w = element(code) * scale
///   kU8, kU16     w = (element(code) - zero) * scale
///   kF16, kBF16,  w = element(code) * scale + zero, of integers
///   kF32
enum class Zero : uint8_t { kNone, kU8, kU16, kF16, kBF16, kF32 };

/// How the weights of a matrix are stored.
struct WeightFormat {
  Format element = Format::kF32;
  Format scale = Format::kNone;  // kNone: dense, the element is the weight
  Zero zero = Zero::kNone;
  int64_t group_size = 0;  // inputs that share a scale; 0: the whole row

  bool operator==(const WeightFormat&) const = default;
};

/// "u4 g128 scale f16 zero u8", "e2m1 g32 scale e8m0", "bf16".
std::string to_string(const WeightFormat& format);
/// Bits for each weight of a row of `cols`, scales and zero points counted: 4.25 for MXFP4.
double bits_per_weight(const WeightFormat& format, int64_t cols);

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
