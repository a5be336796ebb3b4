// Numbers that are not finite on a rank that nobody observes.

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/generate.h"
#include "ops/forwarding_backend.h"
#include "support/goldens.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

/// Loads models whose first bias ends with infinity: that of the last head of values.
class Spoiling : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  Result<Weight> upload_joined(std::vector<Matrix> matrices, std::vector<float> bias) override {
    if (!bias.empty() && !std::exchange(is_done_, true)) {
      bias.back() = std::numeric_limits<float>::infinity();
    }
    return backend_.upload_joined(std::move(matrices), std::move(bias));
  }

 private:
  bool is_done_ = false;
};

std::string message_on(int ranks, Element cache) {
  auto backend =
      make_backend({.device = "cpu", .num_threads = ranks, .tensor_parallel_size = ranks});
  EXPECT_TRUE(backend.ok());
  Spoiling spoiling(**backend);
  const auto model = load_model(testing::golden_folder("qwen2-bf16"), spoiling);
  EXPECT_TRUE(model.ok()) << model.error().message;
  testing::TestContext context(**model, **backend, 64, cache);
  GenerateOptions options;
  options.sampling.temperature = 0;
  const std::vector<int32_t> prompt = {1, 2, 3};
  const auto stats = generate(**model, **backend, context.sequence(), prompt, options,
                              [](int32_t) { return true; });
  EXPECT_FALSE(stats.ok());
  return stats.ok() ? "" : stats.error().message;
}

TEST(NotFiniteOnRanks, names_the_product_before_the_sum_and_what_helps) {
  const std::string alone = message_on(1, Element::kF16);
  EXPECT_NE(alone.find("those of layers.0.self_attn.qkv_proj"), std::string::npos) << alone;
  const std::string message = message_on(2, Element::kF16);
  EXPECT_NE(message.find("those of layers.0.self_attn.o_proj on another rank, "), std::string::npos)
      << message;
  EXPECT_NE(message.find("--kv-cache-type bf16"), std::string::npos) << message;
  EXPECT_EQ(message_on(2, Element::kF32).find("--kv-cache-type"), std::string::npos);
}

}  // namespace
}  // namespace subbyte
