// The exchanges of tensor parallelism, of which one GPU has nothing to do.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "model_on_gpu.h"
#include "models/model_family.h"
#include "ops/exchanges.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

using namespace testing;  // of tests/gpu/model_on_gpu.h

/// The logits of a prompt and of three tokens after it, one a step.
std::vector<float> logits_in_steps(const Model& model, Backend& backend) {
  const std::vector<int32_t> tokens = {3, 14, 15, 92, 65, 35, 89, 79};
  TestContext context(model, backend, 16, Element::kF16);
  std::vector<float> all = context.forward(std::span(tokens).first(5));
  for (int i = 5; i < 8; ++i) append(all, context.forward({&tokens[i], 1}));
  return all;
}

/// Launches multiply and add as before. The kernel of a step, where products add their results to
/// the residual stream themselves, rounds them in between if an exchange has to see them.
TEST(GpuExchanges, of_one_rank_change_no_bit_of_launches_and_round_programs) {
  for (const int step_tokens : {0, 8}) {
    DeviceOptions options = gpu();
    options.step_kernel_tokens = step_tokens;
    const LoadedModel on = load(golden("qwen3-awq"), options);
    const ModelConfig& config = on.model->config();
    std::set<std::string, std::less<>> partial = {std::string(subbyte::kHead)};
    for (const TensorSpec& spec : family_of(config).tensors(config)) {
      if (spec.split == Split::kInputs) partial.insert(spec.name);
    }
    StepPlan plan =
        with_exchanges(on.model->plan(), [&](const Op& op) { return partial.contains(op.name); });
    ASSERT_EQ(std::ssize(plan.ops), std::ssize(on.model->plan().ops) + 2 * config.num_layers + 1);
    auto step = on.backend->compile(std::move(plan));
    ASSERT_TRUE(step.ok()) << step.error().message;
    const Model parallel(config, std::move(*step));
    const std::vector<float> expected = logits_in_steps(*on.model, *on.backend);
    const std::vector<float> found = logits_in_steps(parallel, *on.backend);
    if (step_tokens == 0) {
      EXPECT_EQ(found, expected);
    } else {
      EXPECT_GE(decibels(found, expected), kF16Decibels - kOfDifferences);
    }
  }
}

}  // namespace
}  // namespace subbyte
