// Plans with the exchanges of tensor parallelism, of which one rank has nothing to do.

#include <gtest/gtest.h>

#include <set>

#include "models/model.h"
#include "models/model_family.h"
#include "ops/exchanges.h"
#include "support/goldens.h"
#include "support/test_context.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

class Exchanges : public ::testing::TestWithParam<const char*> {};

TEST_P(Exchanges, of_one_rank_change_no_bit) {
  const auto backend = testing::make_test_backend(2);
  const auto model = load_model(testing::golden_folder(GetParam()), *backend);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const ModelConfig& config = (*model)->config();
  // What the family's list divides by inputs, and the head.
  std::set<std::string, std::less<>> partial = {std::string(kHead)};
  for (const TensorSpec& spec : family_of(config).tensors(config)) {
    if (spec.split != Split::kInputs) continue;
    partial.insert(spec.is_of_experts() ? std::string(spec.parent()) : spec.name);
  }
  StepPlan plan =
      with_exchanges((*model)->plan(), [&](const Op& op) { return partial.contains(op.name); });
  EXPECT_EQ(std::ssize(plan.ops), std::ssize((*model)->plan().ops) + 2 * config.num_layers + 1);
  auto step = backend->compile(std::move(plan));
  ASSERT_TRUE(step.ok()) << step.error().message;
  const Model parallel(config, std::move(*step));
  const std::vector<int32_t> tokens = {3, 14, 15, 92, 65, 35, 89, 79};
  EXPECT_EQ(testing::logits_of(parallel, *backend, tokens),
            testing::logits_of(**model, *backend, tokens));
}

INSTANTIATE_TEST_SUITE_P(Goldens, Exchanges,
                         ::testing::Values("qwen3-awq", "gpt-oss-mxfp4", "autoawq-qwen3-moe",
                                           "llama3-bf16"),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
