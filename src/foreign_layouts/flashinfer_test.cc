// The swizzle is read off here atom by atom, in the order of the bytes, as the picture in the
// header has it; what FlashInfer documents of group starts is in numbers worked out by hand.

#include "foreign_layouts/flashinfer.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "support/flashinfer_scales.h"

namespace subbyte {
namespace {

using Bytes = std::vector<std::byte>;

/// None of them 0, so that padding stands out.
Bytes random_bytes(int64_t size, uint64_t seed) {
  Random random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = std::byte(1 + random.next() % 255);
  return bytes;
}

/// What a buffer of `rows` rows (in 128s) of swizzled scales must hold: 4 groups of rows r, r + 32,
/// r + 64 and r + 96 after each other, then those of r + 1.
template <typename ScaleAt>
Bytes read_off(int64_t rows, int64_t groups, const ScaleAt& scale_at) {
  Bytes expected;
  for (int64_t row = 0; row < rows; row += 128) {
    for (int64_t group = 0; group < groups; group += 4) {
      for (int64_t r = row; r < row + 32; ++r) {
        for (const int64_t step : {0, 32, 64, 96}) {
          for (int64_t g = group; g < group + 4; ++g) expected.push_back(scale_at(r + step, g));
        }
      }
    }
  }
  return expected;
}

const std::vector<FlashinferShape> kShapes = {
    {8, 32},   {8, 128},  {1, 32},     {7, 96},    {9, 160},   {128, 128}, {129, 128}, {127, 256},
    {136, 64}, {31, 384}, {2880, 288}, {256, 512}, {40, 2880}, {2944, 32}, {300, 416}};

TEST(Flashinfer, sizes_are_padded) {
  // gpt-oss-20b: down_proj [2880, 2880] and gate_up_proj [5760, 2880].
  const FlashinferShape down = {2880, 2880}, up = {5760, 2880};
  EXPECT_EQ(down.padded_rows(), 2880);
  EXPECT_EQ(down.padded_cols(), 2944);
  EXPECT_EQ(down.scale_rows(), 2944);
  EXPECT_EQ(down.scale_bytes(), 2944 * 92);
  EXPECT_EQ(up.scale_rows(), 5760);
  EXPECT_EQ((FlashinferShape{9, 32}).padded_rows(), 16);
  EXPECT_EQ((FlashinferShape{9, 32}).code_bytes(), 16 * 64);
}

TEST(Flashinfer, scales_are_read_off_atom_by_atom) {
  for (const FlashinferShape& shape : kShapes) {
    SCOPED_TRACE(std::to_string(shape.rows) + " x " + std::to_string(shape.cols));
    const int64_t groups = shape.cols / 32;
    const Bytes scales = random_bytes(shape.rows * groups, shape.rows);
    Bytes packed(shape.scale_bytes(), std::byte{0xEE});
    pack_flashinfer_scales(packed.data(), scales.data(), shape);
    EXPECT_EQ(packed,
              read_off(shape.scale_rows(), shape.padded_cols() / 32, [&](int64_t n, int64_t g) {
                return n < shape.rows && g < groups ? scales[n * groups + g] : std::byte{0};
              }));
  }
}

TEST(Flashinfer, places_of_scales_are_a_bijection) {
  for (int64_t rows = 128; rows <= 384; rows += 128) {
    for (int64_t groups = 4; groups <= 24; groups += 4) {
      std::vector<int> hits(rows * groups);
      for (int64_t n = 0; n < rows; ++n) {
        for (int64_t g = 0; g < groups; ++g) {
          const int64_t byte = flashinfer_scale_byte(n, g, 32 * groups);
          ASSERT_TRUE(byte >= 0 && byte < rows * groups) << n << ", " << g;
          ++hits[byte];
        }
      }
      EXPECT_EQ(hits, std::vector<int>(rows * groups, 1)) << rows << " x " << groups;
    }
  }
}

TEST(Flashinfer, places_worked_out_by_hand) {
  constexpr int64_t kCols = 1024;  // 32 groups, 8 atoms in a row of atoms
  EXPECT_EQ(flashinfer_scale_byte(0, 3, kCols), 3);
  EXPECT_EQ(flashinfer_scale_byte(32, 0, kCols), 4);
  EXPECT_EQ(flashinfer_scale_byte(1, 0, kCols), 16);
  EXPECT_EQ(flashinfer_scale_byte(127, 3, kCols), 511);
  EXPECT_EQ(flashinfer_scale_byte(0, 4, kCols), 512);
  EXPECT_EQ(flashinfer_scale_byte(128, 0, kCols), 8 * 512);
  EXPECT_EQ(flashinfer_scale_byte(5, 5, 32 * 5), 512 + 5 * 16 + 1);
  EXPECT_EQ(flashinfer_scale_byte(133, 0, 32 * 5), 2 * 512 + 5 * 16);
}

TEST(Flashinfer, codes_keep_their_rows) {
  for (const FlashinferShape& shape : kShapes) {
    const Bytes codes = random_bytes(shape.rows * shape.cols / 2, shape.cols);
    Bytes packed(shape.code_bytes(), std::byte{0xEE}), back(codes.size());
    pack_flashinfer_codes(packed.data(), codes.data(), shape);
    std::size_t at = 0;
    for (int64_t n = 0; n < shape.padded_rows(); ++n) {
      for (int64_t b = 0; b < shape.padded_cols() / 2; ++b, ++at) {
        const bool inside = n < shape.rows && b < shape.cols / 2;
        ASSERT_EQ(packed[at], inside ? codes[n * (shape.cols / 2) + b] : std::byte{0})
            << shape.rows << " x " << shape.cols << " at " << n << ", " << b;
      }
    }
    unpack_flashinfer_codes(back.data(), packed.data(), shape);
    EXPECT_EQ(back, codes);
  }
}

TEST(Flashinfer, shapes_are_checked) {
  for (const FlashinferShape& shape : kShapes) EXPECT_TRUE(check_flashinfer_shape(shape).ok());
  for (const FlashinferShape shape :
       {FlashinferShape{0, 32}, {8, 0}, {8, 16}, {8, 33}, {-8, 32}, {(1 << 24) + 1, 32}}) {
    EXPECT_EQ(check_flashinfer_shape(shape).error().code, "layout.shape");
  }
}

TEST(Flashinfer, groups_are_checked) {
  const auto code = [](const std::vector<int32_t>& m_indptr) {
    const auto status = check_flashinfer_groups(m_indptr);
    return status.ok() ? std::string_view() : status.error().code;
  };
  EXPECT_EQ(code({0}), "");
  EXPECT_EQ(code({0, 0, 4, 4, 128}), "");
  EXPECT_EQ(code({}), "layout.groups");
  EXPECT_EQ(code({4, 8}), "layout.groups");
  EXPECT_EQ(code({0, 50, 80, 120}), "layout.groups");  // 50 is no multiple of 4
  EXPECT_EQ(code({0, 8, 4}), "layout.groups");
  EXPECT_EQ(code({0, -4}), "layout.groups");
}

TEST(Flashinfer, group_starts_worked_out_by_hand) {
  const std::map<std::vector<int32_t>, std::vector<int64_t>> cases = {
      {{0, 128, 192, 448}, {0, 128, 384, 768}},
      {{0, 128, 256}, {0, 128, 384}},  // the second group gets 128 rows more than it needs
      {{0, 52, 84, 124}, {0, 128, 256, 384}},
      {{0, 0, 0, 4}, {0, 0, 128, 384}},
      {{0}, {0}}};
  for (const auto& [m_indptr, rows] : cases) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(flashinfer_group_row(m_indptr, static_cast<int64_t>(i)), rows[i]);
    }
  }
}

/// The scales that tests of products use: all ways to give three groups these sizes, none of them
/// touching the atoms of another.
TEST(Flashinfer, scales_of_activations_are_read_off_group_by_group) {
  const std::vector<int32_t> sizes = {0, 4, 60, 124, 128, 132, 256, 380};
  for (const int64_t cols : {32, 160}) {
    const int64_t groups = cols / 32, padded = (groups + 3) / 4 * 4;
    for (const int32_t a : sizes) {
      for (const int32_t b : sizes) {
        for (const int32_t c : sizes) {
          SCOPED_TRACE(std::to_string(a) + ", " + std::to_string(b) + ", " + std::to_string(c));
          const std::vector<int32_t> m_indptr = {0, a, a + b, a + b + c};
          ASSERT_TRUE(check_flashinfer_groups(m_indptr).ok());
          const Bytes scales = random_bytes(m_indptr[3] * groups, a + b + c);
          const int64_t rows = flashinfer_group_row(m_indptr, 3);
          Bytes packed(rows * padded, std::byte{0xEE});
          pack_flashinfer_activation_scales(packed.data(), scales.data(), m_indptr, cols);
          Bytes expected;
          for (int64_t i = 0; i < 3; ++i) {
            const int64_t first = flashinfer_group_row(m_indptr, i);
            const int64_t room = flashinfer_group_row(m_indptr, i + 1) - first;
            const Bytes part = read_off(room, padded, [&](int64_t m, int64_t g) {
              const bool inside = m_indptr[i] + m < m_indptr[i + 1] && g < groups;
              return inside ? scales[(m_indptr[i] + m) * groups + g] : std::byte{0};
            });
            expected.insert(expected.end(), part.begin(), part.end());
          }
          ASSERT_EQ(packed, expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace subbyte
