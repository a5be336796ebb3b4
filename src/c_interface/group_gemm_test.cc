// The group GEMM of the C interface against that of C++, which has an oracle of its own.

#include "group_gemm/group_gemm.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "support/c_group_problem.h"

namespace subbyte::testing {
namespace {

CGroupProblem problem_of_two_groups() {
  return {{0, 8, 20}, 40, 256, {0x20, 0x40}, {120, 10}};
}

std::vector<std::byte> expected(const CGroupProblem& problem, Format a_dtype, Format out_dtype) {
  std::vector<std::byte> result(problem.out.size());
  group_gemm::GroupGemm g;
  g.a = problem.a;
  g.b = problem.b;
  g.a_scale = problem.a_scale;
  g.b_scale = problem.b_scale;
  g.m_indptr = problem.m_indptr;
  g.out = result;
  g.n = problem.n;
  g.k = problem.k;
  g.a_dtype = a_dtype;
  g.out_dtype = out_dtype;
  ThreadPool pool(2);
  EXPECT_TRUE(group_gemm::group_gemm_mxfp8_mxfp4_nt_groupwise(g, pool).ok());
  return result;
}

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
  CGroupProblem problem = problem_of_two_groups();
  const CGroupGemm gemm = create(context, problem.weights());
  subbyte_group_call call = problem.call();
  ASSERT_EQ(subbyte_group_gemm_run(gemm.get(), &call), SUBBYTE_OK) << subbyte_last_error();
  EXPECT_EQ(problem.out, expected(problem, Format::kE4M3, Format::kBF16));
  call.a_dtype = SUBBYTE_E5M2;
  call.out_dtype = SUBBYTE_F16;
  call.mma_sm = 2;
  call.tile_n = 256;
  ASSERT_EQ(subbyte_group_gemm_run(gemm.get(), &call), SUBBYTE_OK) << subbyte_last_error();
  EXPECT_EQ(problem.out, expected(problem, Format::kE5M2, Format::kF16));
  EXPECT_EQ(subbyte_group_gemm_reserve(gemm.get(), 20, nullptr), SUBBYTE_OK);
}

TEST(CGroupGemm, refuses_by_name) {
  const CContext context = c_context();
  CGroupProblem problem = problem_of_two_groups();
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
  CGroupProblem problem = problem_of_two_groups();
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
