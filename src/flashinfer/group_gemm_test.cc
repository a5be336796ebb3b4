#include "flashinfer/group_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "flashinfer/group_gemm_c.h"
#include "foreign_layouts/flashinfer.h"

namespace subbyte::flashinfer {
namespace {

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
    const auto experts = static_cast<int64_t>(m_indptr.size()) - 1;
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
    const auto experts = static_cast<int64_t>(m_indptr.size()) - 1;
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

  /// By the definition, from the plain rows.
  uint16_t expected(int64_t m, int64_t row) const {
    int64_t expert = 0;
    while (m >= m_indptr[expert + 1]) ++expert;
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      const int64_t weight = (expert * n + row) * k + i;
      const auto byte = std::to_integer<uint32_t>(w[weight / 2]);
      const double x_value = info(a_dtype).decode(std::to_integer<uint32_t>(x[m * k + i]));
      const double w_value = info(Format::kE2M1).decode(i % 2 == 0 ? byte & 15 : byte >> 4);
      const int x_scale = std::to_integer<int>(x_scales[(m * k + i) / 32]) - 127;
      const int w_scale = std::to_integer<int>(w_scales[weight / 32]) - 127;
      sum += std::ldexp(x_value * w_value, x_scale + w_scale);
    }
    return static_cast<uint16_t>(info(out_dtype).encode(sum, Rounding::kNearestEven));
  }

  void expect_right(const char* name) const {
    for (int64_t m = 0; m < m_indptr.back(); ++m) {
      for (int64_t row = 0; row < n; ++row) {
        uint16_t found = 0;
        std::memcpy(&found, &out[(m * n + row) * 2], 2);
        ASSERT_EQ(found, expected(m, row)) << name << " row " << m << " output " << row;
      }
    }
  }
};

Status run(const GroupGemm& gemm, int threads = 2) {
  ThreadPool pool(threads);
  return group_gemm_mxfp8_mxfp4_nt_groupwise(gemm, pool);
}

TEST(GroupGemm, gives_the_sums_of_the_definition_in_every_type) {
  for (const Format a_dtype : {Format::kE4M3, Format::kE5M2}) {
    for (const Format out_dtype : {Format::kBF16, Format::kF16}) {
      Problem problem({0, 52, 84, 124}, 24, 256);
      problem.a_dtype = a_dtype;
      problem.out_dtype = out_dtype;
      EXPECT_EQ(problem.a_scale.size(), 384u * 8);
      EXPECT_EQ(problem.b_scale.size(), 3u * 128 * 8);
      ASSERT_TRUE(run(problem.gemm()).ok());
      problem.expect_right("types");
    }
  }
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

TEST(GroupGemm, all_scale_bytes_of_weights) {
  Problem problem({0, 4}, 256, 128);
  std::fill(problem.x_scales.begin(), problem.x_scales.end(), std::byte{127});
  for (std::size_t i = 0; i < problem.w_scales.size(); ++i) {
    problem.w_scales[i] = static_cast<std::byte>(i / 4);
  }
  problem.pack();
  ASSERT_TRUE(run(problem.gemm()).ok());
  for (int64_t m = 0; m < 4; ++m) {
    uint16_t last = 0;
    std::memcpy(&last, &problem.out[(m * 256 + 255) * 2], 2);
    EXPECT_TRUE(std::isnan(info(Format::kBF16).decode(last)));
    for (int64_t row = 0; row < 255; ++row) {
      uint16_t found = 0;
      std::memcpy(&found, &problem.out[(m * 256 + row) * 2], 2);
      ASSERT_EQ(found, problem.expected(m, row)) << "scale " << row;
    }
  }
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

TEST(GroupGemm, the_interface_for_c_gives_the_same_bytes) {
  Problem problem({0, 8, 20}, 40, 256);
  ASSERT_TRUE(run(problem.gemm()).ok());
  const Bytes expected = problem.out;
  std::fill(problem.out.begin(), problem.out.end(), std::byte{0});
  SubbyteGroupGemm c = {problem.x.data(),
                        problem.x.size(),
                        problem.w.data(),
                        problem.w.size(),
                        problem.a_scale.data(),
                        problem.a_scale.size(),
                        problem.b_scale.data(),
                        problem.b_scale.size(),
                        problem.m_indptr.data(),
                        2,
                        problem.out.data(),
                        problem.out.size(),
                        problem.n,
                        problem.k,
                        "e4m3",
                        "bf16",
                        1,
                        128,
                        128,
                        128,
                        1};
  ASSERT_EQ(subbyte_group_gemm_mxfp8_mxfp4_nt_groupwise(&c, 2, nullptr), 0);
  EXPECT_EQ(problem.out, expected);
  c.n = 12;
  const char* error = nullptr;
  EXPECT_EQ(subbyte_group_gemm_mxfp4_nt_groupwise(&c, 1, &error), -1);
  EXPECT_EQ(std::string(error), "group_gemm: n: expected a multiple of 8 up to 2^24, found 12");
}

}  // namespace
}  // namespace subbyte::flashinfer
