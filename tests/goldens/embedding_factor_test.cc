// Gemma 2 multiplies the embedding by the root of its width, which transformers rounds to the type
// of the embedding.

#include <gtest/gtest.h>

#include <cmath>
#include <variant>

#include "models/model.h"
#include "support/goldens.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

/// That of the step of a model so wide.
float factor_of(ModelConfig config, Format table, int64_t width) {
  config.hidden_size = width;
  const auto plan = plan_of(config, {.table = table});
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  for (const Op& op : plan->ops) {
    if (const auto* embed = std::get_if<EmbedOp>(&op.what)) return embed->factor;
  }
  return 0;
}

TEST(EmbeddingFactor, of_gemma2_is_rounded_to_the_type_of_the_embedding) {
  const auto backend = testing::make_test_backend(1);
  for (const int head_bits : {16, 4}) {
    const auto model =
        load_model(testing::golden_folder("gemma2-bf16"), *backend, {.head_bits = head_bits});
    ASSERT_TRUE(model.ok()) << model.error().message;
    const ModelConfig& config = (*model)->config();
    const Format table = (*model)->facts().table;
    EXPECT_EQ(factor_of(config, table, 3584), 59.75f);
    EXPECT_EQ(factor_of(config, table, 4608), 68.0f);
    EXPECT_EQ(factor_of(config, table, 2304), 48.0f);
    EXPECT_EQ(factor_of(config, Format::kF16, 3584), 59.875f);
    EXPECT_EQ(factor_of(config, Format::kF32, 3584), std::sqrt(3584.0f));
  }
}

}  // namespace
}  // namespace subbyte
