// Scales of two levels in the packed form, against the order that superblock.h documents.

#include "kernels/gpu/superblock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/float16.h"
#include "kernels/gpu/packed_weights.h"
#include "support/random_matrix.h"

namespace subbyte::gpu {
namespace {

using enum Format;
using ::subbyte::testing::Contents;
using ::subbyte::testing::random_matrix;

/// Bits of a weight in a file, by the block of ggml's type.
struct Type {
  const char* name;
  WeightFormat format;
  double bits;
};

const Type kTypes[] = {{"Q2_K", {kU2, kU4, Zero::kOffsetU4, 16}, 84 * 8 / 256.0},
                       {"Q3_K", {kI3, kI6, Zero::kNone, 16}, 110 * 8 / 256.0},
                       {"Q4_K", {kU4, kU6, Zero::kOffsetU6, 32}, 144 * 8 / 256.0},
                       {"Q5_K", {kU5, kU6, Zero::kOffsetU6, 32}, 176 * 8 / 256.0},
                       {"Q6_K", {kI6, kI8, Zero::kNone, 16}, 210 * 8 / 256.0},
                       {"IQ4_XS", {kIQ4, kI6, Zero::kNone, 32}, 136 * 8 / 256.0}};

TEST(Superblock, takes_at_most_four_percent_more_than_a_file) {
  for (const Type& type : kTypes) {
    const auto bytes = packed_bytes(type.format, 4096, 14336, false);
    ASSERT_TRUE(bytes.ok()) << type.name;
    EXPECT_LE(static_cast<double>(*bytes) * 8 / (4096.0 * 14336), 1.04 * type.bits) << type.name;
  }
}

TEST(Superblock, finds_every_number_where_a_byte_says_it_is) {
  for (const Type& type : kTypes) {
    const bool are_integers = type.format.element != kIQ4;
    const Superblock form = superblock_of(are_integers, info(type.format.element).bits,
                                          kTileCols / static_cast<int>(type.format.group_size));
    for (int at = 0; at < form.bytes(); ++at) {
      const SuperblockNumber n = number_at(form, at);
      ASSERT_TRUE(n.row >= 0 && n.row < kStripRows) << type.name << ' ' << at;
      if (n.is_factor) {
        ASSERT_EQ(factor_at(form, n.row, n.is_offset) + n.byte, at) << type.name;
      } else {
        ASSERT_TRUE(n.tile < kSuperblockTiles && n.group < form.groups) << type.name << ' ' << at;
        ASSERT_EQ(integer_at(form, n.row, n.tile, n.group, n.is_offset), at) << type.name;
      }
    }
  }
}

/// Numbers of a row of a canonical matrix, zero for what is not there.
struct RowNumbers {
  const std::byte* row = nullptr;  // nullptr: no such row
  int64_t groups = 0;
  int64_t superblocks = 0;
  Format type = kNone;

  uint16_t factor(int64_t superblock) const {
    uint16_t bits = 0;
    if (row != nullptr && superblock < superblocks) {
      std::memcpy(&bits, row + groups + 2 * superblock, 2);
    }
    return bits;
  }
  /// The number, 128 added.
  int integer(int64_t group) const {
    if (row == nullptr || group >= groups) return 128;
    const double number = info(type).decode(std::to_integer<uint32_t>(row[group]));
    return 128 + static_cast<int>(number);
  }
  int bits(int64_t group) const {
    return row == nullptr || group >= groups ? 0 : std::to_integer<int>(row[group]);
  }
};

/// Walks through the packed bytes in the documented order.
class Walk {
 public:
  Walk(const MatrixView& matrix, const PackedFormat& format, const std::byte* packed)
      : matrix_(matrix), format_(format), at_(packed + format.scales_begin) {}

  void run() {
    for (int64_t strip = 0; strip < format_.strips; ++strip) {
      for (int64_t superblock = 0; superblock < (matrix_.cols + 255) / 256; ++superblock) {
        expect_factors(strip, superblock);
        for (int64_t tile = 4 * superblock; tile < 4 * superblock + 4; ++tile) {
          for (int low = 0; low < 8; ++low) expect_integers(strip, tile, low);
        }
      }
    }
  }

 private:
  RowNumbers numbers(int64_t strip, int row, bool are_offsets) const {
    const int64_t source = source_row(format_.row_order, strip, row, matrix_.rows);
    const auto& bytes = are_offsets ? matrix_.zeros : matrix_.scales;
    const int64_t stride = are_offsets ? matrix_.zero_row_bytes() : matrix_.scale_row_bytes();
    return {source < matrix_.rows ? bytes.data() + source * stride : nullptr, matrix_.groups(),
            (matrix_.cols + 255) / 256,
            are_offsets ? offset_format(matrix_.format.zero) : matrix_.format.scale};
  }
  int kinds() const { return matrix_.zeros.empty() ? 1 : 2; }

  void expect_factors(int64_t strip, int64_t superblock) {
    for (int low = 0; low < 8; ++low) {
      for (int kind = 0; kind < kinds(); ++kind) {
        for (const int row : {low, low + 8}) {
          uint16_t found = 0;
          std::memcpy(&found, at_, 2);
          at_ += 2;
          ASSERT_EQ(found, numbers(strip, row, kind == 1).factor(superblock))
              << "strip " << strip << " row " << row << " superblock " << superblock;
        }
      }
    }
  }

  void expect_integers(int64_t strip, int64_t tile, int low) {
    const int64_t groups = 64 / matrix_.format.group_size;
    const bool in_halves = matrix_.format.element == kU2;
    for (int kind = 0; kind < (in_halves ? 1 : kinds()); ++kind) {
      for (int64_t group = tile * groups; group < (tile + 1) * groups; ++group) {
        for (const int row : {low, low + 8}) {
          const RowNumbers of_kind = numbers(strip, row, kind == 1);
          const int expected =
              in_halves ? of_kind.bits(group) + 16 * numbers(strip, row, true).bits(group)
                        : of_kind.integer(group);
          ASSERT_EQ(std::to_integer<int>(*at_++), expected)
              << "strip " << strip << " row " << row << " group " << group << " kind " << kind;
        }
      }
    }
  }

  const MatrixView& matrix_;
  const PackedFormat& format_;
  const std::byte* at_;
};

TEST(Superblock, has_the_numbers_of_a_matrix_in_the_documented_order) {
  for (const Type& type : kTypes) {
    for (const auto& [rows, cols] : {std::pair(1, 8), {18, 250}, {34, 600}, {32, 1024}}) {
      for (const RowOrder order :
           {RowOrder::kNatural, RowOrder::kGateAboveUp, RowOrder::kGateUpPairs}) {
        if (order != RowOrder::kNatural && rows % 2 != 0) continue;
        SCOPED_TRACE(std::string(type.name) + " " + std::to_string(rows) + " x " +
                     std::to_string(cols));
        const auto random = random_matrix(type.format, rows, cols, Contents::kReal, 3);
        const auto format = packed_format(random.view, order);
        ASSERT_TRUE(format.ok()) << format.error().message;
        std::vector<std::byte> packed(static_cast<std::size_t>(format->bytes), std::byte{0xa5});
        pack_on_host(packed.data(), random.view, *format);
        ASSERT_NO_FATAL_FAILURE(Walk(random.view, *format, packed.data()).run());
      }
    }
  }
}

TEST(Superblock, says_the_largest_scale_and_offset) {
  for (const Type& type : kTypes) {
    const auto random = random_matrix(type.format, 18, 600, Contents::kReal, 9);
    const MatrixView& view = random.view;
    double largest = 0;
    for (int64_t row = 0; row < view.rows; ++row) {
      for (int64_t group = 0; group < view.groups(); ++group) {
        double scale =
            std::fabs(::subbyte::testing::scale_at(view, row, group * view.group_size()));
        if (view.format.element == kIQ4) scale *= 127;
        largest = std::max(largest, scale);
        const int64_t col = group * view.group_size();
        const double element = view.value_of(code_at(view, row, col));
        const double offset =
            weight_at(view, row, col) - element * ::subbyte::testing::scale_at(view, row, col);
        const int bits = info(view.format.element).bits;
        if (!view.zeros.empty()) largest = std::max(largest, std::ldexp(offset, 1 - bits));
        if (!view.zeros.empty()) largest = std::max(largest, std::ldexp(-offset, 1 - bits));
      }
    }
    const auto format = packed_format(view);
    ASSERT_TRUE(format.ok()) << type.name;
    EXPECT_NEAR(format->largest_scale, largest, 1e-9 * largest) << type.name;
  }
}

}  // namespace
}  // namespace subbyte::gpu
