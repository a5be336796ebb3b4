#pragma once
// A weight matrix in the form that the GPU kernels read: one form for all of them, CUDA's and
// Metal's, from one token to a long prompt. tile_order.h has the picture of the codes.
//
//   codes   [strip][tile][piece][lane][word]
//   scales  [strip][scale block][row % 8][group][row / 8], a scale block being the groups of a
//           tile, or, where groups are longer than tiles, one group: so a lane finds the scales of
//           its two rows side by side
//   zeros   as the scales: zero points, or float zero points (offsets)
//           Scales of two levels, and their offsets, are [strip][superblock] instead (superblock.h)
//   gather  [cols] uint32, act-order: the input of each column
//   vectors [256][2 or 4] floats: what the bytes of vq4 and vq2 stand for
//
// The five follow each other in one allocation, each at a multiple of 256 bytes. Codes of signed
// integers are stored with an offset, as unsigned ones with the zero point 2^(bits - 1).

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "kernels/gpu/number.h"
#include "kernels/gpu/superblock.h"
#include "kernels/gpu/tile_order.h"
#include "matrix/matrix.h"

namespace subbyte::gpu {

/// Which decoder reads the codes (decoders.h).
enum class DecoderKind : uint8_t { kIntegers, kE2M1, kE4M3, kCodebook, kFloats, kVectors };

/// Sizes and meaning of a packed matrix. All bytes are from the begin of the allocation.
struct PackedFormat {
  WeightFormat source;
  RowOrder row_order = RowOrder::kNatural;
  DecoderKind decoder = DecoderKind::kIntegers;
  int bits = 4;
  int groups_per_tile = 1;      // 1, 2 or 4; 1 also where a group is several tiles
  int64_t tiles_per_block = 1;  // kSuperblockTiles where scales have two levels
  ScaleKind scale_kind = ScaleKind::kF16;
  int zero_bytes = 0;  // 0: zero point `zero` everywhere, or offsets of two levels
  int zero = 0;        // beside offsets, too: source.zero says what is stored
  int64_t rows = 0;    // N
  int64_t cols = 0;    // K
  int64_t strips = 0;
  int64_t tiles = 0;   // of a strip
  int64_t blocks = 0;  // scale blocks of a strip
  int64_t scales_begin = 0;
  int64_t zeros_begin = 0;    // = bytes when there are none
  int64_t gather_begin = 0;   // = vectors_begin when there is none
  int64_t vectors_begin = 0;  // = bytes when there are none
  int64_t bytes = 0;          // of all
  /// Values of the codes of a codebook; zeros after the last, and for other decoders.
  std::array<float, 32> codebook = {};
  /// Finite; 0: there is none. Times the largest value of a codebook of the matrix if that is above
  /// 1. An offset counts as one of |offset| / 2^(bits - 1), with which a code can become as large.
  double largest_scale = 0;

  bool operator==(const PackedFormat&) const = default;
};

/// The packed form of a matrix of that format, or why there is none. Supported: u2, u3, u4, u8 and
/// i2, i3, i4, i8 with groups of 16, 32 or multiples of 64 inputs or the whole row; u5 and i5 with
/// groups of 32, u6 and i6 with groups of 16; those of superblock.h with scales, and offsets, of
/// two levels; e2m1 with groups of 16 or 32; e4m3 with groups of
/// multiples of 64 inputs or the whole row; nf4, iq4 and nfl4 with groups of 32 or 64, nfl2, nfl3,
/// nfl5 with groups of 32; vq2 and vq4 with groups of 32,
/// rotated or not, without act-order;
/// f16 and bf16 with a scale for each row (packed_floats());
/// scales f32, f16, bf16, e8m0, e4m3 or e4m4; zero points of at most 2^bits; offsets, w =
/// element * scale + offset, f16 or bf16, beside any integers. Row orders with gate and up need an
/// even number of rows.
/// Reads scales, zero points, codebook and input_order, which must be in host memory; no codes.
/// Codes: cuda.format, cuda.shape.
Result<PackedFormat> packed_format(const MatrixView& matrix,
                                   RowOrder row_order = RowOrder::kNatural);

/// Findings of packed_format() in scales, zero points and the order of inputs. A GPU finds the same
/// in its own memory (cuda/packed_facts.h).
struct PackedFacts {
  double largest_scale = 0;   // of the finite ones, as offsets
  double largest_offset = 0;  // 0 beside zero points
  int64_t large_zero = -1;    // index of the first zero point above 2^bits
  uint32_t large_zero_value = 0;
  uint32_t largest_input = 0;  // of the order of inputs
};

/// The same of a matrix of which only the codebook is in host memory. Codes: cuda.format,
/// cuda.shape.
Result<PackedFormat> packed_format(const MatrixView& matrix, RowOrder row_order,
                                   const PackedFacts& facts);

/// Largest finite magnitude of the numbers of a type of 8 bits that `seen` names, a bit a code.
double largest_seen(const std::array<uint32_t, 8>& seen, const FormatInfo& type);

/// Bytes of the packed form of a matrix of which nothing is there yet, with rows in natural order;
/// those of matrices that are packed together are at least as many apart. `gathers`: it has an
/// input_order. Codes: as packed_format().
Result<int64_t> packed_bytes(const WeightFormat& format, int64_t rows, int64_t cols, bool gathers);

/// How the codes of a lane lie in its words, which the decoder decides.
constexpr CodeOrder code_order(DecoderKind decoder, int bits) {
  if (decoder == DecoderKind::kVectors) return bits == 2 ? CodeOrder::kFours : CodeOrder::kPairs;
  return decoder == DecoderKind::kCodebook ? CodeOrder::kPairs : CodeOrder::kHalves;
}
constexpr CodeOrder code_order(const PackedFormat& format) {
  return code_order(format.decoder, format.bits);
}

/// True where inputs are rotated, or put into the order of kFours, before a product reads them.
constexpr bool prepares_inputs(const PackedFormat& format) {
  return format.source.rotation != 0 || code_order(format) == CodeOrder::kFours;
}

/// Says that scales have two levels.
constexpr bool in_superblocks(const PackedFormat& format) {
  return format.scale_kind == ScaleKind::kTwoLevels;
}
constexpr Superblock superblock_of(const PackedFormat& format) {
  return superblock_of(format.decoder == DecoderKind::kIntegers, format.bits,
                       format.groups_per_tile);
}

/// Bytes of a scale block: a superblock, or the scales alone.
constexpr int scale_block_bytes(const PackedFormat& format) {
  if (in_superblocks(format)) return superblock_of(format).bytes();
  return format.groups_per_tile * kStripRows * scale_bytes(format.scale_kind);
}

/// How the scales of a packed matrix are read; none where no kernel reads them.
std::optional<ScaleKind> scale_kind_of(Format scale);

/// The scales and offsets of two levels of a matrix that is packed so.
CanonicalNumbers canonical_numbers(const MatrixView& matrix);

/// Index of the scale, and of the zero point, of row `row` of a strip and canonical group `group`,
/// where scales have one level.
constexpr int64_t scale_index(const PackedFormat& format, int64_t strip, int row, int64_t group) {
  const int64_t block = group / format.groups_per_tile;
  const int64_t in_tile = group % format.groups_per_tile;
  return (((strip * format.blocks + block) * 8 + row % 8) * format.groups_per_tile + in_tile) * 2 +
         row / 8;
}

/// Packs on the host into to[0, format.bytes). Every byte is written.
void pack_on_host(std::byte* to, const MatrixView& matrix, const PackedFormat& format);

/// Code (row, col) of a packed matrix, for tests. Row and col are those of the canonical matrix.
uint32_t packed_code_at(const std::byte* packed, const PackedFormat& format, int64_t row,
                        int64_t col);

/// format.codebook, rounded to numbers of type `number`.
std::array<uint16_t, 32> codebook_of(const PackedFormat& format, Number number);

}  // namespace subbyte::gpu
