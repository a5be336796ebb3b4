// What is chosen for the matrices of the benchmark on an H200, so that no change of the plans or of
// the cost model goes unseen. A cell is a number of tokens (kTokenCounts):
//
//   g3       gemv, 3 strips at a time
//   s16/2/4  small_m16, clusters of 2, 4 pairs in flight
//   l64/1/2+5  large_m64, multicast to 1, split-K 2 after 5 full waves
//
// The last column is the sum of the times that the cost model expects, in microseconds.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <string>

#include "kernels/cuda/plan.h"
#include "kernels/cuda/plan_test_format.h"

namespace subbyte::cuda {
namespace {

constexpr Device kH200 = {90, 132, 227 * 1024, 1.755e9, 4.5e12};
constexpr int64_t kTokenCounts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096};

struct Row {
  int64_t cols;
  int64_t rows;
  const char* format;
  const char* plans;
};

WeightFormat format_named(const std::string& name) {
  using enum Format;
  if (name == "int4") return {kU4, kF16, Zero::kU8, 128};
  if (name == "int8") return {kI8, kF16, Zero::kNone, 128};
  if (name == "mxfp4") return {kE2M1, kE8M0, Zero::kNone, 32};
  if (name == "nvfp4") return {kE2M1, kE4M3, Zero::kNone, 16};
  if (name == "nf4") return {kNF4, kF32, Zero::kNone, 64};
  return {kNFL3, kE4M4, Zero::kNone, 32};
}

std::string short_name(const Plan& plan) {
  const auto join = [](int a, int b) { return std::to_string(a) + "/" + std::to_string(b); };
  const std::string tokens = std::to_string(tokens_of(plan.kernel));
  if (plan.kernel == KernelKind::kGemv) return "g" + std::to_string(plan.gemv.batch);
  if (!is_large_m(plan.kernel)) {
    return "s" + tokens + "/" + join(plan.small_m.splits, plan.small_m.depth);
  }
  const LargeMPartition& p = plan.large_m;
  const std::string waves = p.full_waves > 0 ? "+" + std::to_string(p.full_waves) : "";
  return "l" + tokens + "/" + join(p.multicast, p.splits) + waves;
}

std::string plans_of(const Row& row) {
  Problem problem = {format_of(format_named(row.format), row.rows, row.cols)};
  std::string text;
  double microseconds = 0;
  for (const int64_t m : kTokenCounts) {
    problem.m = m;
    const auto plan = plan_linear(problem, kH200);
    if (!plan) return plan.error().message;
    text += short_name(*plan) + " ";
    microseconds += plan->microseconds;
  }
  return text + std::to_string(std::llround(microseconds * 100));
}

// clang-format off
constexpr Row kGolden[] = {
    {4096, 6144, "int4",
     "g3 g3 g3 g3 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/1/1 l128/1/2+66 l256/1/2+66 l256/2/1 "
     "48029"},
    {4096, 6144, "int8",
     "s8/1/4 s8/1/4 s8/1/4 s8/1/4 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/1/1 l128/1/2+66 "
     "l256/1/2+66 l256/2/1 49853"},
    {4096, 6144, "mxfp4",
     "g3 g3 g3 g3 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/1/1 l128/1/2+66 l256/1/2+66 l256/2/1 "
     "48056"},
    {4096, 6144, "nvfp4",
     "g3 g3 g3 g3 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/1/1 l128/1/2+66 l256/1/2+66 l256/2/1 "
     "48161"},
    {4096, 6144, "nf4",
     "g3 g3 g3 g2 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/1/1 l128/1/2+66 l256/1/2+66 l256/2/1 "
     "48221"},
    {4096, 6144, "kbit3",
     "g3 g3 g3 g3 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/1/1 l128/1/2+66 l256/1/2+66 l256/2/1 "
     "47635"},
    {4096, 4096, "int4",
     "g2 g2 g2 g2 l16/1/3 l32/1/3 l64/1/3 l128/1/3 l128/1/2 l128/2/1 l256/2/1 l256/2/1 32763"},
    {4096, 4096, "int8",
     "s8/1/4 s8/1/4 s8/1/4 s8/1/4 l16/1/3 l32/1/3 l64/1/3 l128/1/3 l128/1/2 l128/1/1 l256/2/1 "
     "l256/2/1 33770"},
    {4096, 4096, "mxfp4",
     "g2 g2 g2 g2 l16/1/3 l32/1/3 l64/1/3 l128/1/3 l128/1/2 l128/2/1 l256/2/1 l256/2/1 32781"},
    {4096, 4096, "nvfp4",
     "g2 g2 g2 g2 l16/1/3 l32/1/3 l64/1/3 l128/1/3 l128/1/2 l128/2/1 l256/2/1 l256/2/1 32851"},
    {4096, 4096, "nf4",
     "g2 g2 g2 g2 l16/1/3 l32/1/3 l64/1/3 l128/1/3 l128/1/2 l128/2/1 l256/2/1 l256/2/1 32851"},
    {4096, 4096, "kbit3",
     "g2 g2 g2 g2 l16/1/3 l32/1/3 l64/1/3 l128/1/3 l128/1/2 l128/2/1 l256/2/1 l256/2/1 32501"},
    {4096, 24576, "int4",
     "g12 g12 g12 s8/1/4 l16/1/2+66 l32/1/2+66 l64/1/2+66 l128/1/2+66 l256/1/2+66 l256/2/1 "
     "l256/2/1 l256/2/1 170115"},
    {4096, 24576, "int8",
     "g12 g4 s8/1/4 s8/1/4 l16/1/2+66 l32/1/2+66 l64/1/2+66 l128/1/2+66 l256/1/2+66 l256/2/1 "
     "l256/2/1 l256/2/1 178074"},
    {4096, 24576, "mxfp4",
     "g12 g12 g12 g5 l16/1/2+66 l32/1/2+66 l64/1/2+66 l128/1/2+66 l256/1/2+66 l256/2/1 l256/2/1 "
     "l256/2/1 170238"},
    {4096, 24576, "nvfp4",
     "g12 g12 g12 g5 l16/1/2+66 l32/1/2+66 l64/1/2+66 l128/1/2+66 l256/1/2+66 l256/2/1 l256/2/1 "
     "l256/2/1 170643"},
    {4096, 24576, "nf4",
     "g12 g12 g10 s8/1/4 l16/1/2+66 l32/1/2+66 l64/1/2+66 l128/1/2+66 l256/1/2+66 l256/2/1 "
     "l256/2/1 l256/2/1 170723"},
    {4096, 24576, "kbit3",
     "g12 g12 g12 g7 l16/1/2+66 l32/1/2+66 l64/1/2+66 l128/1/2+66 l256/1/2+66 l256/2/1 l256/2/1 "
     "l256/2/1 168559"},
    {12288, 4096, "int4",
     "g2 s8/1/4 s8/1/4 s8/2/4 l16/1/3 l32/1/3 l64/1/3 l128/1/3 l128/1/2 l256/1/2 l256/2/1 "
     "l256/2/1 87884"},
    {12288, 4096, "int8",
     "s8/1/4 s8/1/4 s8/1/2 s8/2/2 l16/1/3 l32/1/3 l64/1/3 l128/1/3 l128/1/2 l256/1/2 l256/2/1 "
     "l256/2/1 91754"},
    {12288, 4096, "mxfp4",
     "g2 s8/1/2 s8/1/2 s8/2/2 l16/1/3 l32/1/3 l64/1/3 l128/1/3 l128/1/2 l256/1/2 l256/2/1 "
     "l256/2/1 87905"},
    {12288, 4096, "nvfp4",
     "s8/1/2 s8/1/2 s8/1/2 s8/2/2 l16/1/3 l32/1/3 l64/1/3 l128/1/3 l128/1/2 l256/1/2 l256/2/1 "
     "l256/2/1 87949"},
    {12288, 4096, "nf4",
     "s8/1/2 s8/1/2 s8/1/2 s8/2/2 l16/1/3 l32/1/3 l64/1/3 l128/1/3 l128/1/2 l256/1/2 l256/2/1 "
     "l256/2/1 87949"},
    {12288, 4096, "kbit3",
     "g2 g2 g2 s8/2/2 l16/1/3 l32/1/3 l64/1/3 l128/1/3 l128/1/2 l256/1/2 l256/2/1 l256/2/1 87271"},
    {8192, 8192, "int4",
     "g4 g4 g4 s8/1/4 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/2/1 l256/2/1 l256/2/1 l256/2/1 "
     "112407"},
    {8192, 8192, "int8",
     "g4 s8/1/4 s8/1/4 s8/2/4 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/2/1 l256/2/1 l256/2/1 "
     "l256/2/1 117616"},
    {8192, 8192, "mxfp4",
     "g4 g4 g4 s8/1/2 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/2/1 l256/2/1 l256/2/1 l256/2/1 "
     "112461"},
    {8192, 8192, "nvfp4",
     "g4 s8/1/2 g4 s8/1/2 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/2/1 l256/2/1 l256/2/1 l256/2/1 "
     "112697"},
    {8192, 8192, "nf4",
     "g4 s8/1/2 s8/1/2 s8/1/2 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/2/1 l256/2/1 l256/2/1 "
     "l256/2/1 112701"},
    {8192, 8192, "kbit3",
     "g4 g4 g4 s8/1/2 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/2/1 l256/2/1 l256/2/1 l256/2/1 "
     "111595"},
    {2880, 5760, "int4",
     "g3 g3 g3 g3 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/1/1 l128/1/2+66 l256/1/2+66 l256/2/1 "
     "35681"},
    {2880, 5760, "int8",
     "s8/1/4 s8/1/4 s8/1/4 s8/1/4 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/1/1 l128/1/2+66 "
     "l256/1/2+66 l256/2/1 36845"},
    {2880, 5760, "mxfp4",
     "g3 g3 g3 g3 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/1/1 l128/1/2+66 l256/1/2+66 l256/2/1 "
     "35700"},
    {2880, 5760, "nvfp4",
     "g3 g3 g3 g3 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/1/1 l128/1/2+66 l256/1/2+66 l256/2/1 "
     "35774"},
    {2880, 5760, "nf4",
     "g3 g3 g3 g2 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/1/1 l128/1/2+66 l256/1/2+66 l256/2/1 "
     "35834"},
    {2880, 5760, "kbit3",
     "g3 g3 g3 g3 l16/1/2 l32/1/2 l64/1/2 l128/1/2 l128/1/1 l128/1/2+66 l256/1/2+66 l256/2/1 "
     "35403"},
    {2880, 2880, "int4",
     "g2 g2 g2 g2 l16/1/4 l32/1/4 l64/1/4 l128/1/4 l128/1/2 l128/1/1 l128/1/2+66 l256/2/1 21086"},
    {2880, 2880, "int8",
     "g2 s8/1/4 s8/1/4 s8/1/4 l16/1/4 l32/1/4 l64/1/4 l128/1/4 l128/1/2 l128/1/1 l128/1/2+66 "
     "l256/2/1 21899"},
    {2880, 2880, "mxfp4",
     "g2 g2 g2 g2 l16/1/4 l32/1/4 l64/1/4 l128/1/4 l128/1/2 l128/1/1 l128/1/2+66 l256/2/1 21098"},
    {2880, 2880, "nvfp4",
     "g2 g2 g2 g2 l16/1/4 l32/1/4 l64/1/4 l128/1/4 l128/1/2 l128/1/1 l128/1/2+66 l256/2/1 21145"},
    {2880, 2880, "nf4",
     "g2 g2 g2 g2 l16/1/4 l32/1/4 l64/1/4 l128/1/4 l128/1/2 l128/1/1 l128/1/2+66 l256/2/1 21145"},
    {2880, 2880, "kbit3",
     "g2 g2 g2 g2 l16/1/4 l32/1/4 l64/1/4 l128/1/4 l128/1/2 l128/1/1 l128/1/2+66 l256/2/1 20908"},
};
// clang-format on

TEST(CudaPlanGolden, choices_for_an_h200_are_those_that_were_measured) {
  for (const Row& row : kGolden) {
    EXPECT_EQ(plans_of(row), row.plans) << row.format << " " << row.cols << "x" << row.rows;
  }
}

}  // namespace
}  // namespace subbyte::cuda
