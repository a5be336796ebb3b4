#include <gtest/gtest.h>

#include "kernels/cuda/plan_test_format.h"
#include "kernels/cuda/w8a8.h"

namespace subbyte::cuda {
namespace {

PackedFormat e4m3(int64_t rows, int64_t cols, int64_t group = 128) {
  return format_of({Format::kE4M3, Format::kF32, Zero::kNone, group}, rows, cols);
}

TEST(W8A8Plan, parts_of_k_are_whole_groups_and_the_workspace_has_the_activations) {
  for (const int64_t cols : {128, 384, 2048, 5120, 17408}) {
    for (const int64_t m : {1, 127, 300, 4096}) {
      const Problem problem = {e4m3(5120, cols), Number::kF16, m};
      const std::vector<Plan> plans = w8a8_candidates(problem, {});
      ASSERT_FALSE(plans.empty()) << cols;
      for (const Plan& plan : plans) {
        EXPECT_EQ(plan.kernel, KernelKind::kLargeM128);
        EXPECT_EQ(plan.m, m);
        const Parts& parts = plan.large_m.k_tiles;
        for (int i = 0; i < plan.large_m.splits; ++i) {
          EXPECT_EQ(parts.begin(i) % 2, 0);
          EXPECT_EQ(parts.size(i) % 2, 0);
        }
        // Codes, and floats for each 128 inputs of tokens up to a multiple of 128.
        const int64_t tokens = (m + 127) / 128 * 128;
        EXPECT_GE(plan.workspace_bytes, m * cols + cols / 128 * tokens * 4);
        EXPECT_LT(plan.workspace_bytes, m * cols + cols / 128 * tokens * 4 + 256);
      }
      EXPECT_EQ(plan_w8a8(problem, {})->microseconds, plans.front().microseconds);
    }
  }
}

TEST(W8A8Plan, refuses_what_has_no_such_products) {
  const auto refused = [](const Problem& problem, const Device& device, std::string_view text) {
    const auto plan = plan_w8a8(problem, device);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().code, "cuda.kernel");
    EXPECT_NE(plan.error().message.find(text), std::string::npos) << plan.error().message;
  };
  refused({e4m3(128, 256, 0), Number::kF16, 128}, {}, "groups of 128");
  refused({e4m3(128, 256, 64), Number::kF16, 128}, {}, "groups of 128");
  refused({e4m3(128, 192), Number::kF16, 128}, {}, "192 inputs");
  refused({e4m3(128, 256), Number::kF16, 128, false}, {}, "multiples of 16 bytes");
  refused({e4m3(128, 256), Number::kF16, 128}, {.compute_capability = 80}, "found 8.0");
  EXPECT_EQ(plan_w8a8({e4m3(128, 256), Number::kF16, 0}, {}).error().code, "cuda.shape");
}

}  // namespace
}  // namespace subbyte::cuda
