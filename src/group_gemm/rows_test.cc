#include "group_gemm/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "foreign_layouts/flashinfer.h"

namespace subbyte::group_gemm {
namespace {

using Bytes = std::vector<std::byte>;

/// One group of 4 rows by 136 outputs, K = 128; all numbers are 1 with scales of 1.
struct Problem {
  std::vector<int32_t> m_indptr = {0, 4};
  Bytes a = Bytes(4 * 128, std::byte{0x38});
  Bytes b = Bytes(136 * 64, std::byte{0x22});
  Bytes a_scale = Bytes(128 * 4, std::byte{127});
  Bytes b_scale = Bytes(256 * 4, std::byte{127});

  GroupGemm gemm() const {
    GroupGemm g;
    g.a = a, g.b = b, g.a_scale = a_scale, g.b_scale = b_scale;
    g.m_indptr = m_indptr;
    g.n = 136, g.k = 128;
    return g;
  }
  RowKind kind_of(int64_t m) const {
    const GroupGemm g = gemm();
    std::vector<float> x(128);
    return Rows(g).unpack_activations(x.data(), 0, m);
  }
  void set_a_scale(int64_t m, int64_t block, int scale) {
    a_scale[flashinfer_scale_byte(m, block, 128)] = static_cast<std::byte>(scale);
  }
};

TEST(Rows, activations_are_exact_and_in_the_order_of_inputs) {
  Problem problem;
  for (int64_t i = 0; i < 128; ++i) problem.a[128 + i] = static_cast<std::byte>(i % 127);
  for (int block = 0; block < 4; ++block) problem.set_a_scale(1, block, 100 + block);
  const GroupGemm g = problem.gemm();
  std::vector<float> x(128);
  EXPECT_EQ(Rows(g).unpack_activations(x.data(), 0, 1), RowKind::kOrdinary);
  for (int64_t i = 0; i < 128; ++i) {
    const double number = info(Format::kE4M3).decode(static_cast<uint32_t>(i % 127));
    EXPECT_EQ(x[i], std::ldexp(number, static_cast<int>(100 + i / 32 - 127))) << i;
  }
}

TEST(Rows, only_numbers_out_of_range_make_a_row_of_activations_extreme) {
  Problem problem;
  for (const auto& [scale, kind] : {std::pair{80, RowKind::kExtreme},
                                    {81, RowKind::kOrdinary},
                                    {147, RowKind::kOrdinary},
                                    {148, RowKind::kExtreme},
                                    {0, RowKind::kExtreme},
                                    {255, RowKind::kExtreme}}) {
    problem.set_a_scale(2, 3, scale);
    EXPECT_EQ(problem.kind_of(2), kind) << scale;
    EXPECT_EQ(problem.kind_of(1), RowKind::kOrdinary);
  }
  std::fill(problem.a.begin() + 2 * 128 + 96, problem.a.begin() + 3 * 128, std::byte{0x80});
  EXPECT_EQ(problem.kind_of(2), RowKind::kExtreme);  // 255 by zeros
  problem.set_a_scale(2, 3, 0);
  EXPECT_EQ(problem.kind_of(2), RowKind::kOrdinary);
  problem.a[2 * 128] = std::byte{0xFF};  // NaN
  EXPECT_EQ(problem.kind_of(2), RowKind::kExtreme);
  std::fill(problem.a.begin(), problem.a.begin() + 128, std::byte{0});
  EXPECT_EQ(problem.kind_of(0), RowKind::kZero);
}

/// Results of unpack_weight_scales().
struct Unpacked {
  Bytes scales = Bytes(136 * 4 + 4, std::byte{0xA5});
  std::vector<RowKind> kinds = std::vector<RowKind>(136 + 1, RowKind::kZero);

  explicit Unpacked(const Problem& problem) {
    const GroupGemm g = problem.gemm();
    const Rows rows(g);
    rows.unpack_weight_scales(scales.data(), kinds.data(), 0, 0);
    rows.unpack_weight_scales(scales.data() + 128 * 4, kinds.data() + 128, 0, 128);
  }
};

TEST(Rows, scales_of_weights_are_plain_rows) {
  for (const int64_t atoms : {1, 3, 4, 9}) {  // four at a time, and fewer
    const int64_t k = 128 * atoms;
    Problem problem;
    problem.b.resize(136 * k / 2);
    problem.b_scale.resize(256 * k / 32);
    const auto scale_of = [](int64_t n, int64_t block) {
      return static_cast<std::byte>(64 + (n * 7 + block * 3) % 128);
    };
    for (int64_t n = 0; n < 136; ++n) {
      for (int64_t block = 0; block < k / 32; ++block) {
        problem.b_scale[flashinfer_scale_byte(n, block, k)] = scale_of(n, block);
      }
    }
    GroupGemm g = problem.gemm();
    g.k = k;
    Bytes scales(136 * k / 32 + 4, std::byte{0xA5});
    std::vector<RowKind> kinds(136 + 1, RowKind::kZero);
    const Rows rows(g);
    rows.unpack_weight_scales(scales.data(), kinds.data(), 0, 0);
    rows.unpack_weight_scales(scales.data() + 128 * k / 32, kinds.data() + 128, 0, 128);
    for (int64_t n = 0; n < 136; ++n) {
      EXPECT_EQ(kinds[n], RowKind::kOrdinary);
      for (int64_t block = 0; block < k / 32; ++block) {
        ASSERT_EQ(scales[n * k / 32 + block], scale_of(n, block)) << n << ", " << block;
      }
    }
    EXPECT_EQ(scales[136 * k / 32], std::byte{0xA5});
    EXPECT_EQ(kinds[136], RowKind::kZero);
  }
}

TEST(Rows, every_scale_of_weights_says_what_its_row_is) {
  for (int scale = 0; scale < 256; ++scale) {
    Problem problem;
    problem.b_scale[flashinfer_scale_byte(77, 1, 128)] = static_cast<std::byte>(scale);
    const Unpacked unpacked(problem);
    const RowKind kind = scale < 127 - 63   ? RowKind::kSmall
                         : scale > 127 + 64 ? RowKind::kExtreme
                                            : RowKind::kOrdinary;
    for (int64_t n = 0; n < 136; ++n) {
      EXPECT_EQ(unpacked.kinds[n], n == 77 ? kind : RowKind::kOrdinary) << scale;
    }
    EXPECT_EQ(unpacked.scales[77 * 4 + 1],
              static_cast<std::byte>(kind == RowKind::kExtreme ? 127 : scale));
    EXPECT_EQ(unpacked.scales[77 * 4 + 2], std::byte{127});
  }
}

TEST(Rows, padding_of_weights_changes_nothing) {
  Problem problem;
  const auto set = [&](int64_t n, int64_t block, int scale, bool zeros) {
    problem.b_scale[flashinfer_scale_byte(n, block, 128)] = static_cast<std::byte>(scale);
    const std::byte signs{0x80};  // zeros of both signs
    if (zeros) std::fill_n(problem.b.begin() + n * 64 + block * 16, 16, signs);
  };
  set(3, 2, 0, true);
  set(4, 2, 0, false);
  set(5, 2, 255, true);
  set(6, 0, 200, false);
  set(7, 0, 200, true);
  for (int64_t n = 136; n < 256; ++n) set(n, 0, 255, false);  // no rows
  const Unpacked unpacked(problem);
  const GroupGemm g = problem.gemm();
  const Rows rows(g);
  const auto has_small_weights = [&](int64_t n) {
    return rows.has_small_weights(unpacked.scales.data() + n * 4, 0, n);
  };
  EXPECT_EQ(unpacked.kinds[3], RowKind::kSmall);
  EXPECT_FALSE(has_small_weights(3));
  EXPECT_EQ(unpacked.kinds[4], RowKind::kSmall);
  EXPECT_TRUE(has_small_weights(4));
  EXPECT_EQ(unpacked.kinds[5], RowKind::kExtreme);
  EXPECT_EQ(unpacked.kinds[6], RowKind::kExtreme);
  for (int64_t n = 7; n < 136; ++n) EXPECT_EQ(unpacked.kinds[n], RowKind::kOrdinary) << n;
}

}  // namespace
}  // namespace subbyte::group_gemm
