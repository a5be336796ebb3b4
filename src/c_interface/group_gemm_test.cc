// The group GEMM of the C interface against that of C++, which has an oracle of its own.

#include "flashinfer/group_gemm.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "foreign_layouts/flashinfer.h"
#include "support/c_handles.h"

namespace subbyte::testing {
namespace {

std::vector<std::byte> random_bytes(int64_t size, int first, int count, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(first + static_cast<int>(random.below(count)));
  }
  return bytes;
}

struct Problem {
  std::vector<int32_t> m_indptr = {0, 8, 20};
  static constexpr int64_t kN = 40;
  static constexpr int64_t kK = 256;
  std::vector<std::byte> a = random_bytes(20 * kK, 0x20, 0x40, 1);
  std::vector<std::byte> a_scale =
      random_bytes(flashinfer_group_row(m_indptr, 2) * kK / 32, 120, 10, 2);
  std::vector<std::byte> b = random_bytes(2 * kN * kK / 2, 0, 256, 3);
  std::vector<std::byte> b_scale = random_bytes(2 * 128 * kK / 32, 120, 10, 4);
  std::vector<std::byte> out = std::vector<std::byte>(20 * kN * 2);

  subbyte_group_weights weights() const {
    auto w = c_struct<subbyte_group_weights>();
    w.b = b.data();
    w.b_scale = b_scale.data();
    w.b_bytes = std::ssize(b);
    w.b_scale_bytes = std::ssize(b_scale);
    w.groups = 2;
    w.n = kN;
    w.k = kK;
    return w;
  }
  subbyte_group_call call() {
    auto c = c_struct<subbyte_group_call>();
    c.a = a.data();
    c.a_scale = a_scale.data();
    c.m_indptr = m_indptr.data();
    c.out = out.data();
    c.m = 20;
    c.a_bytes = std::ssize(a);
    c.a_scale_bytes = std::ssize(a_scale);
    c.out_bytes = std::ssize(out);
    return c;
  }
  std::vector<std::byte> expected(Format a_dtype, Format out_dtype) const {
    std::vector<std::byte> result(out.size());
    flashinfer::GroupGemm g;
    g.a = a;
    g.b = b;
    g.a_scale = a_scale;
    g.b_scale = b_scale;
    g.m_indptr = m_indptr;
    g.out = result;
    g.n = kN;
    g.k = kK;
    g.a_dtype = a_dtype;
    g.out_dtype = out_dtype;
    ThreadPool pool(2);
    EXPECT_TRUE(flashinfer::group_gemm_mxfp8_mxfp4_nt_groupwise(g, pool).ok());
    return result;
  }
};

using CGroupGemm =
    std::unique_ptr<subbyte_group_gemm, CDeleter<subbyte_group_gemm, subbyte_group_gemm_destroy>>;

CGroupGemm create(const CContext& context, const subbyte_group_weights& weights) {
  subbyte_group_gemm* made = nullptr;
  EXPECT_EQ(subbyte_group_gemm_create(context.get(), &weights, nullptr, &made), SUBBYTE_OK)
      << subbyte_last_error();
  return CGroupGemm(made);
}

TEST(CGroupGemm, gives_the_bytes_of_the_cxx_interface) {
  const CContext context = c_context();
  Problem problem;
  const CGroupGemm gemm = create(context, problem.weights());
  subbyte_group_call call = problem.call();
  ASSERT_EQ(subbyte_group_gemm_run(gemm.get(), &call), SUBBYTE_OK) << subbyte_last_error();
  EXPECT_EQ(problem.out, problem.expected(Format::kE4M3, Format::kBF16));
  call.a_dtype = SUBBYTE_E5M2;
  call.out_dtype = SUBBYTE_F16;
  call.mma_sm = 2;
  call.tile_n = 256;
  ASSERT_EQ(subbyte_group_gemm_run(gemm.get(), &call), SUBBYTE_OK) << subbyte_last_error();
  EXPECT_EQ(problem.out, problem.expected(Format::kE5M2, Format::kF16));
  EXPECT_EQ(subbyte_group_gemm_reserve(gemm.get(), 20, nullptr), SUBBYTE_OK);
}

TEST(CGroupGemm, refuses_by_name) {
  const CContext context = c_context();
  Problem problem;
  const auto code = [&](auto change) {
    subbyte_group_weights weights = problem.weights();
    subbyte_group_call call = problem.call();
    change(weights, call);
    subbyte_group_gemm* made = nullptr;
    if (subbyte_group_gemm_create(context.get(), &weights, nullptr, &made) != SUBBYTE_OK) {
      return std::string(subbyte_last_error_code());
    }
    const CGroupGemm gemm(made);
    return code_of(subbyte_group_gemm_run(made, &call));
  };
  EXPECT_EQ(code([](auto&, auto&) {}), "ok");
  EXPECT_EQ(code([](auto& w, auto&) { w.n = 12; }), "group_gemm.n");
  EXPECT_EQ(code([](auto& w, auto&) { w.b_bytes = 1; }), "group_gemm.b");
  EXPECT_EQ(code([](auto& w, auto&) { w.b_bytes = -1; }), "c.argument");
  EXPECT_EQ(code([](auto& w, auto&) { w.groups = -1; }), "c.argument");
  EXPECT_EQ(code([](auto& w, auto&) { w.checkpoint_order = 1; }), "c.argument");
  EXPECT_EQ(code([](auto&, auto& c) { c.a_dtype = SUBBYTE_F16; }), "group_gemm.a_dtype");
  EXPECT_EQ(code([](auto&, auto& c) { c.tile_k = 64; }), "group_gemm.tile_k");
  EXPECT_EQ(code([](auto&, auto& c) { c.out_bytes = 1; }), "group_gemm.out");
  EXPECT_EQ(code([](auto&, auto& c) { c.a = nullptr; }), "c.null");
  EXPECT_EQ(code([](auto&, auto& c) { c.a_scale = nullptr; }), "c.null");
  EXPECT_EQ(code([](auto&, auto& c) { c.m_indptr = nullptr; }), "c.null");
  EXPECT_EQ(code([](auto&, auto& c) { c.out = nullptr; }), "c.null");
  EXPECT_EQ(code([](auto& w, auto&) { w.b = nullptr; }), "c.null");
  EXPECT_EQ(code([](auto& w, auto&) { w.b_scale = nullptr; }), "c.null");
}

TEST(CGroupGemm, knows_the_row_of_a_group) {
  const int32_t m_indptr[] = {0, 4, 4, 200};
  for (const auto& [group, expected] : {std::pair(0, 0), {1, 128}, {2, 256}, {3, 512}}) {
    int64_t row = -1;
    ASSERT_EQ(subbyte_group_scale_row(m_indptr, 3, group, &row), SUBBYTE_OK);
    EXPECT_EQ(row, expected);
  }
  int64_t row = -1;
  EXPECT_EQ(code_of(subbyte_group_scale_row(m_indptr, 3, 4, &row)), "c.argument");
  EXPECT_EQ(code_of(subbyte_group_scale_row(m_indptr, 3, -1, &row)), "c.argument");
  const int32_t falls[] = {0, 8, 4};
  EXPECT_EQ(code_of(subbyte_group_scale_row(falls, 2, 1, &row)), "layout.groups");
  expect_nulls_refused("scale_row", &subbyte_group_scale_row, {}, {m_indptr, 3, 1, &row});
}

TEST(CGroupGemm, refuses_null_for_every_address) {
  const CContext context = c_context();
  Problem problem;
  const subbyte_group_weights weights = problem.weights();
  const CGroupGemm gemm = create(context, weights);
  const subbyte_group_call call = problem.call();
  subbyte_group_gemm* made = nullptr;
  expect_nulls_refused("create", &subbyte_group_gemm_create, {2},
                       {context.get(), &weights, nullptr, &made});
  expect_nulls_refused("run", &subbyte_group_gemm_run, {}, {gemm.get(), &call});
  expect_nulls_refused("reserve", &subbyte_group_gemm_reserve, {2}, {gemm.get(), 4, nullptr});
}

}  // namespace
}  // namespace subbyte::testing
