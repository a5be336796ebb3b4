#include "group_gemm/group_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "foreign_layouts/flashinfer.h"
#include "support/flashinfer_scales.h"
#include "support/group_gemm_oracle.h"
#include "support/isa_test.h"

namespace subbyte::group_gemm {
namespace {

using testing::GroupGemmOracle;
using testing::half_step;
using testing::multiply_in_double;
using testing::output_of;
using testing::rounds_to;
using testing::sum_bound;
using Bytes = std::vector<std::byte>;

/// Plain rows, and what FlashInfer would be handed.
struct Problem {
  std::vector<int32_t> m_indptr;
  int64_t n;
  int64_t k;
  Format a_dtype = Format::kE4M3;
  Format out_dtype = Format::kBF16;
  Bytes x, x_scales;  // [M][K], [M][K / 32]
  Bytes w, w_scales;  // [G][N][K / 2], [G][N][K / 32]
  Bytes a_scale, b_scale, out;

  Problem(std::vector<int32_t> groups, int64_t rows, int64_t cols)
      : m_indptr(std::move(groups)), n(rows), k(cols) {
    const int64_t m = m_indptr.back();
    const int64_t experts = num_experts();
    Random random(5);
    const auto fill = [&](Bytes& bytes, int64_t size, uint64_t first, uint64_t count) {
      bytes.resize(size);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(first + random.below(count));
    };
    fill(x, m * k, 0, 0x7C);  // finite in both types
    for (std::byte& byte : x) byte |= static_cast<std::byte>(random.below(2) * 0x80);
    fill(x_scales, m * k / 32, 120, 12);
    fill(w, experts * n * k / 2, 0, 256);
    fill(w_scales, experts * n * k / 32, 115, 12);
    out.resize(m * n * 2);
    pack();
  }

  void pack() {
    const int64_t experts = num_experts();
    const FlashinferShape shape = {n, k};
    a_scale.resize(flashinfer_group_row(m_indptr, experts) * k / 32);
    pack_flashinfer_activation_scales(a_scale.data(), x_scales.data(), m_indptr, k);
    b_scale.resize(experts * shape.scale_bytes());
    for (int64_t e = 0; e < experts; ++e) {
      pack_flashinfer_scales(b_scale.data() + e * shape.scale_bytes(),
                             w_scales.data() + e * n * k / 32, shape);
    }
  }

  GroupGemm gemm() {
    GroupGemm g;
    g.a = x, g.b = w, g.a_scale = a_scale, g.b_scale = b_scale;
    g.m_indptr = m_indptr;
    g.out = out;
    g.n = n, g.k = k;
    g.a_dtype = a_dtype, g.out_dtype = out_dtype;
    return g;
  }

  int64_t num_experts() const { return static_cast<int64_t>(m_indptr.size()) - 1; }

  /// Every output is a number that a sum within its bound rounds to.
  void expect_right(const std::string& name) {
    const GroupGemm g = gemm();
    const GroupGemmOracle oracle = multiply_in_double(g);
    for (int64_t i = 0; i < std::ssize(oracle.sums); ++i) {
      const double found = output_of(g, out, i);
      ASSERT_TRUE(rounds_to(out_dtype, oracle.sums[i], sum_bound(oracle, i, k), found))
          << name << ": row " << i / n << ", output " << i % n << ": " << found << ", expected "
          << oracle.sums[i] << " within " << sum_bound(oracle, i, k) << " before it is rounded";
    }
  }

  /// Every output is the definition's, rounded once: where sums are exact.
  void expect_exact(const std::string& name) {
    const GroupGemm g = gemm();
    const GroupGemmOracle oracle = multiply_in_double(g);
    for (int64_t i = 0; i < std::ssize(oracle.sums); ++i) {
      const uint32_t code = info(out_dtype).encode(oracle.sums[i], Rounding::kNearestEven);
      const double expected = info(out_dtype).decode(code);
      const double found = output_of(g, out, i);
      ASSERT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected)))
          << name << ": row " << i / n << ", output " << i % n << ": " << found << ", expected "
          << expected;
    }
  }
};

Status run(const GroupGemm& gemm, int threads = 2) {
  ThreadPool pool(threads);
  return group_gemm_mxfp8_mxfp4_nt_groupwise(gemm, pool);
}

class GroupGemmTest : public testing::IsaTest {};
SUBBYTE_FOR_EVERY_ISA(GroupGemmTest);

TEST_P(GroupGemmTest, is_within_the_bound_in_every_type_and_shape) {
  struct Shape {
    std::vector<int32_t> m_indptr;
    int64_t n, k;
  };
  const std::vector<Shape> shapes = {{{0, 52, 84, 124}, 24, 256},
                                     {{0, 4}, 8, 128},
                                     {{0, 0, 4, 4, 12, 12}, 136, 384},
                                     {{0, 20, 36}, 200, 1152},
                                     {{0, 132}, 72, 640}};
  for (const Shape& shape : shapes) {
    for (const Format a_dtype : {Format::kE4M3, Format::kE5M2}) {
      for (const Format out_dtype : {Format::kBF16, Format::kF16}) {
        Problem problem(shape.m_indptr, shape.n, shape.k);
        problem.a_dtype = a_dtype;
        problem.out_dtype = out_dtype;
        ASSERT_TRUE(group_gemm_mxfp8_mxfp4_nt_groupwise(problem.gemm(), execution(2)).ok());
        problem.expect_right(std::to_string(shape.n) + " x " + std::to_string(shape.k));
      }
    }
  }
}

/// Errors of a number that is rounded once are spread evenly over half a step to either side: the
/// root of their mean square is 0.577 of it. Sums that were off by a tenth of it would show.
TEST_P(GroupGemmTest, is_rounded_as_if_sums_were_exact) {
  for (const std::vector<int32_t>& m_indptr : {std::vector<int32_t>{0, 4, 12}, {0, 48, 64}}) {
    Problem problem(m_indptr, 256, 2944);
    const GroupGemm g = problem.gemm();
    ASSERT_TRUE(group_gemm_mxfp8_mxfp4_nt_groupwise(g, execution(2)).ok());
    const GroupGemmOracle oracle = multiply_in_double(g);
    double squares = 0;
    for (int64_t i = 0; i < std::ssize(oracle.sums); ++i) {
      const double error = output_of(g, problem.out, i) - oracle.sums[i];
      squares += std::pow(error / half_step(Format::kBF16, oracle.sums[i]), 2);
    }
    const double root = std::sqrt(squares / static_cast<double>(oracle.sums.size()));
    EXPECT_GT(root, 0.54);
    EXPECT_LT(root, 0.61);
  }
}

/// Numbers of at most 8 bits whose sums float32 holds.
TEST_P(GroupGemmTest, is_exact_where_sums_are) {
  const uint8_t codes[] = {0x00, 0x38, 0x40, 0x44, 0x48, 0xB8, 0xC0, 0xC4, 0xC8};
  for (const std::vector<int32_t>& m_indptr :
       {std::vector<int32_t>{0, 4, 8}, {0, 20, 20, 32}, {0, 144}}) {
    Problem problem(m_indptr, 72, 384);
    Random random(8);
    for (std::byte& code : problem.x) code = std::byte{codes[random.below(std::size(codes))]};
    for (Bytes* scales : {&problem.x_scales, &problem.w_scales}) {
      for (std::byte& scale : *scales) scale = static_cast<std::byte>(126 + random.below(3));
    }
    problem.pack();
    ASSERT_TRUE(group_gemm_mxfp8_mxfp4_nt_groupwise(problem.gemm(), execution(2)).ok());
    problem.expect_exact("small integers");
  }
}

/// A code or a scale that is off by one, or in another place, does not hide below the bound.
TEST_P(GroupGemmTest, the_bound_shows_faults) {
  Problem problem({0, 4, 24}, 40, 256);
  const auto is_right = [&](const auto& break_something) {
    Problem broken = problem;
    break_something(broken);
    broken.pack();
    const GroupGemm g = broken.gemm();
    EXPECT_TRUE(group_gemm_mxfp8_mxfp4_nt_groupwise(g, execution(2)).ok());
    const GroupGemmOracle oracle = multiply_in_double(problem.gemm());
    for (int64_t i = 0; i < std::ssize(oracle.sums); ++i) {
      const double bound = sum_bound(oracle, i, problem.k);
      const double found = output_of(g, broken.out, i);
      if (!rounds_to(Format::kBF16, oracle.sums[i], bound, found)) return false;
    }
    return true;
  };
  EXPECT_TRUE(is_right([](Problem&) {}));
  EXPECT_FALSE(is_right([](Problem& p) { p.x_scales[9] ^= std::byte{1}; }));
  EXPECT_FALSE(is_right([](Problem& p) { p.w_scales[9] ^= std::byte{1}; }));
  EXPECT_FALSE(is_right([](Problem& p) { p.w[47 * 128 + 5] ^= std::byte{0x40}; }));
  EXPECT_FALSE(is_right([](Problem& p) { p.x[7] ^= std::byte{0x80}; }));
  EXPECT_FALSE(is_right([](Problem& p) { std::swap(p.x_scales[8], p.x_scales[16]); }));
}

TEST(GroupGemm, empty_groups_and_aligned_groups_which_are_padded_twice) {
  Problem empty({0, 0, 4, 4, 12, 12}, 8, 128);
  ASSERT_TRUE(run(empty.gemm()).ok());
  empty.expect_right("empty");
  Problem none({0, 0, 0}, 8, 128);
  EXPECT_TRUE(run(none.gemm()).ok());
  Problem aligned({0, 128, 192, 448}, 8, 128);
  EXPECT_EQ(aligned.a_scale.size(), 768u * 4);
  ASSERT_TRUE(run(aligned.gemm()).ok());
  aligned.expect_right("aligned");
}

TEST(GroupGemm, scales_of_more_than_128_outputs_lie_in_their_own_rows) {
  Problem problem({0, 4, 8}, 136, 384);
  EXPECT_EQ(problem.b_scale.size(), 2u * 256 * 12);
  ASSERT_TRUE(run(problem.gemm()).ok());
  problem.expect_right("136 outputs");
}

/// Codes of activations in turn, all of them, those for NaN (and infinity) alone in rows of theirs,
/// by weights whose rows have one scale each: 0 to 255. Ordinary rows and extreme ones are
/// neighbours.
TEST_P(GroupGemmTest, all_codes_of_activations_by_all_scales_of_weights) {
  for (const Format a_dtype : {Format::kE4M3, Format::kE5M2}) {
    Problem problem({0, 8, 28}, 256, 256);
    problem.a_dtype = a_dtype;
    const int64_t blocks = problem.k / 32;
    for (int64_t i = 0; i < std::ssize(problem.x); ++i) {
      const auto code = static_cast<uint8_t>(i % 256);
      const bool finite = std::isfinite(info(a_dtype).decode(code));
      problem.x[i] = static_cast<std::byte>(finite || i / problem.k % 7 == 3 ? code : code & 0x3F);
    }
    for (int64_t i = 0; i < std::ssize(problem.w_scales); ++i) {
      problem.w_scales[i] = static_cast<std::byte>(i / blocks);
    }
    problem.pack();
    ASSERT_TRUE(group_gemm_mxfp8_mxfp4_nt_groupwise(problem.gemm(), execution(2)).ok());
    problem.expect_right("all codes");
    for (int64_t m = 0; m < 28; ++m) {  // scale 255, and a code for NaN
      EXPECT_TRUE(std::isnan(output_of(problem.gemm(), problem.out, m * 256 + 255)));
      if (m % 7 == 3) {
        EXPECT_TRUE(std::isnan(output_of(problem.gemm(), problem.out, m * 256 + 127)));
      }
    }
  }
}

TEST_P(GroupGemmTest, all_scales_of_activations_by_all_scales_of_weights) {
  Problem problem({0, 256}, 256, 128);
  for (int64_t i = 0; i < 256 * 4; ++i) {
    problem.x_scales[i] = problem.w_scales[i] = static_cast<std::byte>(i / 4);
  }
  for (const Format out_dtype : {Format::kBF16, Format::kF16}) {
    problem.out_dtype = out_dtype;
    problem.pack();
    ASSERT_TRUE(group_gemm_mxfp8_mxfp4_nt_groupwise(problem.gemm(), execution(2)).ok());
    problem.expect_right("scales");
  }
}

/// A row that float32 does not hold changes no bit of the others.
TEST_P(GroupGemmTest, extreme_rows_are_alone) {
  Problem problem({0, 12, 40}, 40, 256);
  ASSERT_TRUE(group_gemm_mxfp8_mxfp4_nt_groupwise(problem.gemm(), execution(2)).ok());
  const Bytes before = problem.out;
  const int64_t blocks = problem.k / 32;
  problem.x[2 * problem.k + 5] = std::byte{0x7F};                // NaN
  problem.x_scales[20 * blocks + 1] = std::byte{250};            // 2^123
  problem.w_scales[(1 * 40 + 7) * blocks + 3] = std::byte{255};  // NaN
  problem.w_scales[(1 * 40 + 8) * blocks] = std::byte{3};        // 2^-124
  problem.pack();
  ASSERT_TRUE(group_gemm_mxfp8_mxfp4_nt_groupwise(problem.gemm(), execution(2)).ok());
  problem.expect_right("extreme");
  for (int64_t m = 0; m < 40; ++m) {
    for (int64_t i = 0; i < 40; ++i) {
      if (m == 2 || m == 20 || (m >= 12 && (i == 7 || i == 8))) continue;
      EXPECT_EQ(std::memcmp(&before[(m * 40 + i) * 2], &problem.out[(m * 40 + i) * 2], 2), 0)
          << "row " << m << " output " << i;
    }
  }
}

/// Rows that fill a group up to 4 are not multiplied, but a NaN of the weights is theirs, too.
TEST_P(GroupGemmTest, rows_of_zeros_give_zeros) {
  Problem problem({0, 4, 8}, 40, 256);
  const int64_t blocks = problem.k / 32;
  std::fill(problem.x.begin() + problem.k, problem.x.begin() + 4 * problem.k, std::byte{0x80});
  std::fill(problem.x.begin() + 4 * problem.k, problem.x.end(), std::byte{0});
  problem.x_scales[2 * blocks] = std::byte{0};
  problem.x_scales[3 * blocks] = std::byte{255};
  problem.w_scales[9 * blocks + 1] = std::byte{255};
  problem.pack();
  std::fill(problem.out.begin(), problem.out.end(), std::byte{0xA5});
  ASSERT_TRUE(group_gemm_mxfp8_mxfp4_nt_groupwise(problem.gemm(), execution(2)).ok());
  problem.expect_right("zeros");
}

TEST(GroupGemm, hints_and_threads_change_no_bit) {
  Problem problem({0, 8, 20}, 40, 256);
  GroupGemm gemm = problem.gemm();
  ASSERT_TRUE(run(gemm).ok());
  const Bytes expected = problem.out;
  for (const bool swap_ab : {false, true}) {
    for (const int tile_n : {32, 64, 128, 192, 256}) {
      gemm.swap_ab = swap_ab;
      gemm.tile_n = tile_n;
      gemm.mma_sm = 2;
      gemm.tile_k = 256;
      std::fill(problem.out.begin(), problem.out.end(), std::byte{0xA5});
      ThreadPool pool(3);
      ASSERT_TRUE(group_gemm_mxfp4_nt_groupwise(gemm, pool).ok());
      EXPECT_EQ(problem.out, expected);
    }
  }
}

TEST(GroupGemm, names_the_argument_that_is_wrong) {
  Problem problem({0, 4}, 8, 128);
  const auto code_of = [&](auto change) {
    GroupGemm gemm = problem.gemm();
    change(gemm);
    const Status status = check_group_gemm(gemm);
    return status.ok() ? std::string("ok") : std::string(status.error().code);
  };
  const std::vector<int32_t> odd = {0, 5};
  EXPECT_EQ(code_of([](GroupGemm&) {}), "ok");
  EXPECT_EQ(code_of([](GroupGemm& g) { g.n = 12; }), "group_gemm.n");
  EXPECT_EQ(code_of([](GroupGemm& g) { g.k = 2880; }), "group_gemm.k");
  EXPECT_EQ(code_of([](GroupGemm& g) { g.a_dtype = Format::kBF16; }), "group_gemm.a_dtype");
  EXPECT_EQ(code_of([](GroupGemm& g) { g.out_dtype = Format::kF32; }), "group_gemm.out_dtype");
  EXPECT_EQ(code_of([&](GroupGemm& g) { g.m_indptr = odd; }), "group_gemm.m_indptr");
  EXPECT_EQ(code_of([](GroupGemm& g) { g.mma_sm = 3; }), "group_gemm.mma_sm");
  EXPECT_EQ(code_of([](GroupGemm& g) { g.tile_m = 64; }), "group_gemm.tile_m");
  EXPECT_EQ(code_of([](GroupGemm& g) { g.tile_n = 96; }), "group_gemm.tile_n");
  EXPECT_EQ(code_of([](GroupGemm& g) { g.tile_k = 64; }), "group_gemm.tile_k");
  EXPECT_EQ(code_of([](GroupGemm& g) { g.a = g.a.first(1); }), "group_gemm.a");
  EXPECT_EQ(code_of([](GroupGemm& g) { g.b = g.b.first(1); }), "group_gemm.b");
  EXPECT_EQ(code_of([](GroupGemm& g) { g.a_scale = g.a_scale.first(1); }), "group_gemm.a_scale");
  EXPECT_EQ(code_of([](GroupGemm& g) { g.b_scale = g.b_scale.first(1); }), "group_gemm.b_scale");
  EXPECT_EQ(code_of([](GroupGemm& g) { g.out = g.out.first(1); }), "group_gemm.out");
}

}  // namespace
}  // namespace subbyte::group_gemm
