#include "kernels/gpu/packed_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "support/guarded_bytes.h"
#include "support/random_matrix.h"

namespace subbyte::gpu {
namespace {

using testing::Contents;
using testing::GuardedBytes;
using testing::random_matrix;
using testing::RandomMatrix;

/// Every element with every kind of group, every scale and every width of zero points.
std::vector<WeightFormat> supported_formats() {
  using enum Format;
  std::vector<WeightFormat> formats;
  for (const Format element : {kU2, kU3, kU4, kU8, kI2, kI3, kI4, kI8}) {
    for (const int64_t group : {16, 32, 64, 128, 0}) {
      formats.push_back({element, kF16, Zero::kNone, group});
      if (info(element).min == 0) formats.push_back({element, kBF16, Zero::kU8, group});
    }
  }
  for (const int64_t group : {16, 32}) formats.push_back({kE2M1, kE4M3, Zero::kNone, group});
  for (const int64_t group : {64, 128, 0}) formats.push_back({kE4M3, kBF16, Zero::kNone, group});
  for (const Format element : {kNF4, kNFL4}) {
    for (const int64_t group : {32, 64}) formats.push_back({element, kF32, Zero::kNone, group});
  }
  for (const Format element : {kNFL2, kNFL3, kNFL5}) {
    formats.push_back({element, kE4M4, Zero::kNone, 32});
  }
  for (const Format scale : {kF32, kBF16, kE8M0, kE4M3, kE4M4}) {
    formats.push_back({kU4, scale, Zero::kU16, 32});
  }
  formats.push_back({kU8, kF16, Zero::kU16, 192});
  formats.push_back({kE2M1, kE8M0, Zero::kNone, 32});
  formats.push_back({kF16, kF16, Zero::kNone, 0});
  formats.push_back({kBF16, kF16, Zero::kNone, 0});
  for (const Format element : {kI2, kI3, kI4, kI8, kU4}) {
    formats.push_back({element, kBF16, Zero::kBF16, 32});
    formats.push_back({element, kF16, Zero::kF16, 0});
  }
  return formats;
}

struct Shape {
  int64_t rows;
  int64_t cols;
};

/// Packed between pages that fault, over bytes that were `poison`.
struct Packed {
  PackedFormat format;
  std::unique_ptr<GuardedBytes> bytes;
};

Packed pack(const MatrixView& matrix, RowOrder order = RowOrder::kNatural, int poison = 0xa5) {
  const auto format = packed_format(matrix, order);
  EXPECT_TRUE(format.ok()) << (format.ok() ? "" : format.error().message);
  Packed packed = {*format, std::make_unique<GuardedBytes>(format->bytes)};
  std::memset(packed.bytes->data(), poison, packed.bytes->size());
  pack_on_host(packed.bytes->data(), matrix, *format);
  return packed;
}

uint32_t value_at(const std::byte* bytes, int64_t index, int width) {
  uint32_t value = 0;
  std::memcpy(&value, bytes + index * width, width);
  return value;
}

/// Calls visit(index, row, group) for each place of a scale, in the documented order: row is that
/// of the matrix, or >= rows for padding; group that of the matrix, or >= groups.
template <class Visit>
void for_each_scale(const PackedFormat& format, const Visit& visit) {
  int64_t index = 0;
  for (int64_t strip = 0; strip < format.strips; ++strip) {
    for (int64_t block = 0; block < format.blocks; ++block) {
      for (int low = 0; low < 8; ++low) {
        for (int group = 0; group < format.groups_per_tile; ++group) {
          for (int high = 0; high < 2; ++high) {
            visit(index++, source_row(format.row_order, strip, low + 8 * high, format.rows),
                  block * format.groups_per_tile + group);
          }
        }
      }
    }
  }
}

void expect_groups(const Packed& packed, const MatrixView& matrix, std::span<const std::byte> from,
                   int64_t begin, int to_width, int width, const std::string& what) {
  std::vector<int> seen(matrix.rows * matrix.groups());
  for_each_scale(packed.format, [&](int64_t index, int64_t row, int64_t group) {
    const bool inside = row < matrix.rows && group < matrix.groups();
    const int64_t source = row * matrix.groups() + group;
    if (inside) ++seen[source];
    ASSERT_EQ(value_at(packed.bytes->data() + begin, index, to_width),
              inside ? value_at(from.data(), source, width) : 0)
        << what << " row " << row << " group " << group;
  });
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), std::ssize(seen)) << what;
}

/// Every bit of the packed codes that no code of the matrix has is zero: of strips and tiles as
/// they lie, not through packed_code_at().
void expect_codes(const Packed& packed, const MatrixView& matrix, const std::string& what) {
  const PackedFormat& format = packed.format;
  const auto* words = packed.bytes->data();
  int64_t found = 0;
  for (int64_t strip = 0; strip < format.strips; ++strip) {
    for (int row = 0; row < kStripRows; ++row) {
      const int64_t source = source_row(format.row_order, strip, row, format.rows);
      for (int64_t col = 0; col < format.tiles * kTileCols; ++col) {
        const Slot slot = slot_of(row, static_cast<int>(col % kTileCols));
        const int64_t tile = strip * format.tiles + col / kTileCols;
        uint32_t code = 0;
        for (int bit = 0; bit < format.bits; ++bit) {
          const BitPlace place = bit_place(slot, bit, format.bits, code_order(format));
          const int64_t word =
              tile * kLanes * format.bits + word_in_tile(slot.lane, place.word, format.bits);
          code |= (value_at(words, word, 4) >> place.bit & 1) << bit;
        }
        const bool inside = source < matrix.rows && col < matrix.cols;
        found += inside;
        ASSERT_EQ(code, inside ? code_at(matrix, source, col) : 0)
            << what << " row " << source << " col " << col;
        if (!inside) continue;
        ASSERT_EQ(packed_code_at(words, format, source, col), code) << what;
      }
    }
  }
  EXPECT_EQ(found, matrix.rows * matrix.cols) << what;
}

void expect_packed(const MatrixView& matrix, RowOrder order, const std::string& what) {
  const Packed packed = pack(matrix, order);
  const PackedFormat& format = packed.format;
  expect_codes(packed, matrix, what);
  expect_groups(packed, matrix, matrix.scales, format.scales_begin,
                info(matrix.format.scale).bits / 8, info(matrix.format.scale).bits / 8,
                what + " scales");
  if (matrix.format.zero != Zero::kNone) {
    expect_groups(packed, matrix, matrix.zeros, format.zeros_begin, format.zero_bytes,
                  zero_bytes(matrix.format.zero), what + " zeros");
  }
  const Packed other = pack(matrix, order, 0x5a);
  EXPECT_EQ(std::memcmp(packed.bytes->data(), other.bytes->data(), format.bytes), 0)
      << what << ": a byte was not written";
}

TEST(PackedWeights, hold_codes_scales_and_zero_points_where_documented) {
  for (const WeightFormat& format : supported_formats()) {
    const int64_t group = format.group_size == 0 ? 100 : format.group_size;
    for (const Shape shape : {Shape{1, group}, {8, 2 * group}, {17, 3 * group + 8}, {33, 40}}) {
      const RandomMatrix matrix =
          random_matrix(format, shape.rows, shape.cols, Contents::kReal, 7 * shape.rows);
      expect_packed(matrix.view, RowOrder::kNatural,
                    to_string(format) + ", " + std::to_string(shape.rows) + " rows");
    }
  }
}

TEST(PackedWeights, put_gate_and_up_of_a_unit_into_one_strip) {
  using enum Format;
  for (const RowOrder order : {RowOrder::kGateAboveUp, RowOrder::kGateUpPairs}) {
    for (const int64_t rows : {2, 16, 18, 50}) {
      const RandomMatrix matrix =
          random_matrix({kE2M1, kE8M0, Zero::kNone, 32}, rows, 2880, Contents::kReal, rows);
      expect_packed(matrix.view, order, std::to_string(rows) + " rows");
      const PackedFormat format = *packed_format(matrix.view, order);
      EXPECT_EQ(format.strips, (rows / 2 + 7) / 8);
      for (int64_t unit = 0; unit < rows / 2; ++unit) {
        const bool pairs = order == RowOrder::kGateUpPairs;
        const PackedRow gate = packed_row(order, pairs ? 2 * unit : unit, rows);
        const PackedRow up = packed_row(order, pairs ? 2 * unit + 1 : rows / 2 + unit, rows);
        EXPECT_EQ(gate.strip, unit / 8);
        EXPECT_EQ(gate.row, unit % 8);
        EXPECT_EQ(up.strip, unit / 8);
        EXPECT_EQ(up.row, unit % 8 + 8);
      }
    }
  }
}

TEST(PackedWeights, divide_the_inputs_into_blocks_of_scales) {
  using enum Format;
  struct Case {
    WeightFormat format;
    int64_t cols;
    int groups_per_tile;
    int64_t tiles_per_block;
    int64_t blocks;
  };
  const Case cases[] = {
      {{kE2M1, kE4M3, Zero::kNone, 16}, 2880, 4, 1, 45},
      {{kE2M1, kE8M0, Zero::kNone, 32}, 2880, 2, 1, 45},
      {{kE2M1, kE8M0, Zero::kNone, 32}, 32, 2, 1, 1},
      {{kNF4, kF32, Zero::kNone, 64}, 4096, 1, 1, 64},
      {{kU4, kF16, Zero::kU8, 16}, 4096, 4, 1, 64},
      {{kU4, kF16, Zero::kU8, 128}, 4096, 1, 2, 32},
      {{kU4, kF16, Zero::kU8, 128}, 4160, 1, 2, 33},
      {{kU4, kF16, Zero::kU8, 1024}, 4096, 1, 16, 4},
      {{kI8, kF16, Zero::kNone, 0}, 4096, 1, 64, 1},
      {{kI8, kF16, Zero::kNone, 0}, 100, 1, 2, 1},
      {{kI8, kF16, Zero::kNone, 4096}, 64, 1, 1, 1},
  };
  for (const Case& c : cases) {
    const RandomMatrix matrix = random_matrix(c.format, 3, c.cols, Contents::kReal, 1);
    const PackedFormat format = *packed_format(matrix.view);
    EXPECT_EQ(format.groups_per_tile, c.groups_per_tile) << to_string(c.format);
    EXPECT_EQ(format.tiles_per_block, c.tiles_per_block) << to_string(c.format);
    EXPECT_EQ(format.blocks, c.blocks) << to_string(c.format);
    EXPECT_EQ(format.tiles, (c.cols + 63) / 64);
  }
}

TEST(PackedWeights, lie_one_after_the_other_at_multiples_of_256_bytes) {
  using enum Format;
  RandomMatrix matrix = random_matrix({kU3, kF16, Zero::kU8, 32}, 17, 96, Contents::kReal, 3);
  std::vector<uint32_t> order(96);
  std::iota(order.rbegin(), order.rend(), 0);
  matrix.view.input_order = order;
  const Packed packed = pack(matrix.view);
  const PackedFormat& format = packed.format;
  // 2 strips x 2 tiles x 32 lanes x 3 words; 2 x 2 x 2 groups x 16 rows.
  EXPECT_EQ(format.scales_begin, 1536);
  EXPECT_EQ(format.zeros_begin, 1536 + 256);
  EXPECT_EQ(format.gather_begin, 1536 + 256 + 256);
  EXPECT_EQ(format.bytes, 1536 + 256 + 256 + 512);
  for (int k = 0; k < 96; ++k) {
    EXPECT_EQ(value_at(packed.bytes->data() + format.gather_begin, k, 4), 95 - k);
  }
  expect_packed(matrix.view, RowOrder::kNatural, "with gather");

  EXPECT_EQ(*packed_bytes(matrix.view.format, 17, 96, true), format.bytes);

  matrix.view.input_order = {};
  EXPECT_EQ(packed_format(matrix.view)->gather_begin, packed_format(matrix.view)->bytes);
  EXPECT_EQ(*packed_bytes(matrix.view.format, 17, 96, false), format.bytes - 512);
}

TEST(PackedWeights, take_the_codebook_of_the_matrix) {
  RandomMatrix matrix =
      random_matrix({Format::kNFL2, Format::kF16, Zero::kNone, 32}, 1, 32, Contents::kReal, 6);
  const double largest_scale = packed_format(matrix.view)->largest_scale;
  const std::vector<float> values = {-3, 0, 0.5f, 2};
  matrix.view.codebook = values;
  const PackedFormat format = *packed_format(matrix.view);
  const std::array<uint16_t, 32> codebook = codebook_of(format, Number::kF16);
  for (std::size_t code = 0; code < 4; ++code) {
    EXPECT_EQ(info(Format::kF16).decode(codebook[code]), values[code]);
  }
  EXPECT_EQ(codebook[4], 0);
  EXPECT_EQ(format.largest_scale, 3 * largest_scale);
  const std::vector<float> beyond = {-1, 0, 1, 1e5f};
  matrix.view.codebook = beyond;
  EXPECT_EQ(packed_format(matrix.view).error().code, "cuda.format");
  matrix.view.codebook = std::span(values).first(3);
  EXPECT_EQ(packed_format(matrix.view).error().code, "cuda.format");
}

TEST(PackedWeights, round_codebooks_to_the_nearest_number) {
  using enum Format;
  for (const Format element : {kNF4, kNFL2, kNFL3, kNFL4, kNFL5}) {
    const RandomMatrix matrix =
        random_matrix({element, kF16, Zero::kNone, 32}, 1, 32, Contents::kReal, 6);
    const PackedFormat format = *packed_format(matrix.view);
    for (const Number number : {Number::kF16, Number::kBF16}) {
      const std::array<uint16_t, 32> codebook = codebook_of(format, number);
      const FormatInfo& type = info(number == Number::kF16 ? kF16 : kBF16);
      for (uint32_t code = 0; code < 1u << format.bits; ++code) {
        // Nearest: neither neighbour of the number is nearer.
        const double value = info(element).decode(code);
        const uint32_t found = codebook[code];
        const double error = std::abs(type.decode(found) - value);
        if (value == 0) {
          EXPECT_EQ(error, 0);
          continue;
        }
        EXPECT_LT(error, std::abs(type.decode(found + 1) - value)) << code;
        EXPECT_LT(error, std::abs(type.decode(found - 1) - value)) << code;
      }
    }
  }
}

/// Bytes by hand: one row of u4, k = 0 holds 1, k = 1 holds 2, k = 8 holds 3, k = 63 holds 4.
TEST(PackedWeights, agree_with_bytes_computed_by_hand) {
  std::vector<std::byte> codes(32);
  codes[0] = std::byte{0x21};
  codes[4] = std::byte{0x03};
  codes[31] = std::byte{0x40};
  const uint16_t one = 0x3c00;
  MatrixView matrix;
  matrix.format = {Format::kU4, Format::kF16, Zero::kNone, 64};
  matrix.rows = 1;
  matrix.cols = 64;
  matrix.codes = codes;
  matrix.scales = std::as_bytes(std::span(&one, 1));
  const Packed packed = pack(matrix);
  std::vector<uint32_t> expected(128);
  expected[0] = 0x00020301;          // lane 0, step 0: k = 0 in nibble 0, k = 1 in 4, k = 8 in 2
  expected[3 * 4 + 3] = 0x04000000;  // lane 3, step 3: row 0, k = 48 + 15, register 2, high half
  EXPECT_EQ(std::memcmp(packed.bytes->data(), expected.data(), 512), 0);
  EXPECT_EQ(value_at(packed.bytes->data() + 512, 0, 2), 0x3c00);
}

TEST(PackedWeights, are_refused_with_what_is_supported) {
  using enum Format;
  const std::vector<WeightFormat> formats = {
      {kU5, kF16, Zero::kNone, 64},   {kU4, kF16, Zero::kNone, 8},
      {kU4, kF16, Zero::kNone, 96},   {kU4, kF16, Zero::kNone, -64},
      {kU4, kE5M2, Zero::kNone, 32},  {kE2M1, kE8M0, Zero::kNone, 64},
      {kE2M1, kE8M0, Zero::kNone, 0}, {kE2M1, kE8M0, Zero::kU8, 32},
      {kNF4, kF32, Zero::kNone, 128}, {kNFL3, kE4M4, Zero::kNone, 64},
      {kI4, kF16, Zero::kU8, 32},     {kBF16, Format::kNone, Zero::kNone, 0},
      {kE4M3, kF32, Zero::kNone, 32}, {kE2M1, kE8M0, Zero::kF16, 32},
      {kNF4, kF32, Zero::kBF16, 64},
  };
  for (const WeightFormat& format : formats) {
    MatrixView matrix;
    matrix.format = format;
    matrix.rows = 16;
    matrix.cols = 64;
    const auto result = packed_format(matrix);
    ASSERT_FALSE(result.ok()) << to_string(format);
    EXPECT_EQ(result.error().code, "cuda.format");
    EXPECT_NE(result.error().message.find(to_string(format)), std::string::npos);
    EXPECT_NE(result.error().message.find("they have u2 u3 u4 u8"), std::string::npos);
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  }
}

TEST(PackedWeights, are_refused_with_a_zero_point_beyond_the_codes) {
  using enum Format;
  for (const Zero width : {Zero::kU8, Zero::kU16}) {
    RandomMatrix matrix = random_matrix({kU4, kF16, width, 32}, 2, 64, Contents::kReal, 9);
    std::byte* third = matrix.zeros->data() + 3 * zero_bytes(width);
    *third = std::byte{16};
    EXPECT_TRUE(packed_format(matrix.view).ok());
    *third = std::byte{17};
    const auto result = packed_format(matrix.view);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, "cuda.format");
    EXPECT_NE(result.error().message.find("zero point 3 of u4 g32 scale f16 zero u"),
              std::string::npos);
    EXPECT_NE(result.error().message.find("is 17, expected at most 16"), std::string::npos);
  }
}

void expect_wrong_shape(const MatrixView& matrix, const std::string& part,
                        RowOrder order = RowOrder::kNatural) {
  const auto result = packed_format(matrix, order);
  ASSERT_FALSE(result.ok()) << part;
  EXPECT_EQ(result.error().code, "cuda.shape");
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

TEST(PackedWeights, know_the_largest_finite_scale) {
  using enum Format;
  for (const Format scale : {kF16, kBF16, kF32, kE4M3}) {
    RandomMatrix matrix = random_matrix({kU4, scale, Zero::kU8, 32}, 2, 64, Contents::kReal, 9);
    const int width = info(scale).bits / 8;
    const auto set = [&](int index, uint32_t code) {
      std::memcpy(matrix.scales->data() + index * width, &code, width);
    };
    const auto encode = [&](double value) {
      return info(scale).encode(value, Rounding::kNearestEven);
    };
    set(0, encode(0.5));
    set(1, encode(-3));
    set(2, encode(2));
    set(3, (1u << (info(scale).bits - 1)) - 1);  // a NaN
    EXPECT_EQ(packed_format(matrix.view)->largest_scale, 3) << to_string(matrix.view.format);
    if (scale == kE4M3) continue;
    set(3, encode(INFINITY));
    EXPECT_EQ(packed_format(matrix.view)->largest_scale, 3) << to_string(matrix.view.format);
  }
}

TEST(PackedWeights, are_refused_when_bytes_are_missing) {
  using enum Format;
  const RandomMatrix good = random_matrix({kU4, kF16, Zero::kU8, 32}, 3, 64, Contents::kReal, 8);
  ASSERT_TRUE(packed_format(good.view).ok());
  MatrixView bad = good.view;
  bad.codes = bad.codes.first(95);
  expect_wrong_shape(bad, "expected 96 bytes of codes, found 95");
  bad = good.view;
  bad.scales = bad.scales.first(11);
  expect_wrong_shape(bad, "expected 12 bytes of scales, found 11");
  bad = good.view;
  bad.zeros = {};
  expect_wrong_shape(bad, "expected 6 bytes of zero points, found 0");
  std::vector<uint32_t> order(63);
  bad = good.view;
  bad.input_order = order;
  expect_wrong_shape(bad, "expected 256 bytes of input order, found 252");
  order.push_back(64);
  bad.input_order = order;
  expect_wrong_shape(bad, "input_order holds 64");
  for (const RowOrder pairs : {RowOrder::kGateAboveUp, RowOrder::kGateUpPairs}) {
    expect_wrong_shape(good.view, "an even number of rows", pairs);
  }
  bad = good.view;
  bad.rows = 0;
  expect_wrong_shape(bad, "0 x 64");
  bad.rows = int64_t{1} << 31;
  expect_wrong_shape(bad, "2147483648 x 64");
}

}  // namespace
}  // namespace subbyte::gpu
