#pragma once
// Pieces that several layouts share.

#include <fmt/format.h>

#include <initializer_list>

#include "transform/packing/pack_layout.h"

namespace subbyte::packing {

/// "LAYOUT holds HELD, not FORMAT", code pack.format.
Error format_error(std::string_view layout, std::string_view held, const PackedShape& shape);

/// Checks that groups fill the inputs and have one of these sizes, where 0 is a whole row; code
/// pack.group_size.
Status check_groups(std::string_view layout, const PackedShape& shape,
                    std::initializer_list<int64_t> sizes);

/// F16, BF16 or F32.
DType float_dtype(Format format);

/// u4 with zero points, or i4.
bool is_4_bits(const WeightFormat& format);
/// u8 with zero points, or i8.
bool is_8_bits(const WeightFormat& format);

/// A matrix of that shape with buffers of its own for codes, scales, zero points (those of a
/// symmetric shape are in the middle already) and the order of inputs, which is `order`.
struct OwnMatrix {
  Matrix matrix;
  std::byte* codes;
  std::byte* scales;
  std::byte* zeros;  // nullptr where the format has none
};
OwnMatrix make_matrix(const PackedShape& shape, std::vector<uint32_t> order = {});

/// The order of inputs as I32 [K] and back; code layout.input_order when not every input is named
/// once.
void put_order(std::span<std::byte> to, const MatrixView& matrix);
Result<std::vector<uint32_t>> get_order(std::span<const std::byte> from);

inline std::vector<uint64_t> sizes(std::initializer_list<int64_t> dimensions) {
  return {dimensions.begin(), dimensions.end()};
}

}  // namespace subbyte::packing
