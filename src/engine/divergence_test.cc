// Against the definition in double precision, from the logits of the same models.

#include "engine/divergence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "engine/perplexity.h"
#include "support/paths.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

const std::filesystem::path kGoldens = std::filesystem::path(SUBBYTE_TEST_DATA) / "goldens";

class DivergenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int32_t i = 0; i < 200; ++i) tokens_.push_back(i * 37 % 512);
    model_ = load("qwen3-awq");
    reference_ = load("qwen3-bf16");
  }

  std::unique_ptr<Model> load(const char* name) {
    auto model = load_model(kGoldens / name, *backend_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return std::move(model).value();
  }

  /// Probabilities of every token after each prefix of the text.
  std::vector<std::vector<double>> probabilities(const Model& model, int64_t count) {
    testing::TestContext context(model, *backend_, count);
    std::vector<std::vector<double>> result;
    for (int64_t i = 0; i < count; ++i) {
      const std::vector<float> logits = context.forward({&tokens_[i], 1});
      std::vector<double> values(logits.begin(), logits.end());
      double sum = 0;
      for (double& value : values) sum += value = std::exp(value);
      for (double& value : values) value /= sum;
      result.push_back(std::move(values));
    }
    return result;
  }

  Result<Divergence> compare(const Model& model, const Model& reference, int64_t window) {
    return divergence({model, *backend_}, {reference, *backend_}, KvType::kF32, tokens_, window);
  }

  std::unique_ptr<Backend> backend_ = testing::make_test_backend(2);
  std::unique_ptr<Model> model_;
  std::unique_ptr<Model> reference_;
  std::vector<int32_t> tokens_;
};

TEST_F(DivergenceTest, is_that_of_the_definition) {
  const auto found = compare(*model_, *reference_, 200);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->scored, 199);
  const auto q = probabilities(*model_, 199);
  const auto p = probabilities(*reference_, 199);
  std::vector<double> kl, nats, difference;
  int same = 0;
  for (int64_t i = 0; i < 199; ++i) {
    double sum = 0;
    for (std::size_t v = 0; v < 512; ++v) sum += p[i][v] * std::log(p[i][v] / q[i][v]);
    kl.push_back(sum);
    nats.push_back(-std::log(q[i][tokens_[i + 1]]));
    difference.push_back(nats.back() + std::log(p[i][tokens_[i + 1]]));
    same += std::ranges::max_element(p[i]) - p[i].begin() ==
                    std::ranges::max_element(q[i]) - q[i].begin()
                ? 1
                : 0;
  }
  const auto mean = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  };
  const auto standard_error = [&](const std::vector<double>& values) {
    double squares = 0;
    for (const double value : values) squares += value * value;
    const double m = mean(values), n = static_cast<double>(values.size());
    return std::sqrt((squares / n - m * m) / (n - 1));
  };
  // Steps of one token and of 128 sum in another order: logits within 1e-4 of each other.
  EXPECT_NEAR(found->kl.value, mean(kl), 1e-4 + 1e-3 * mean(kl));
  EXPECT_NEAR(found->kl.error, standard_error(kl), 1e-4);
  EXPECT_NEAR(found->perplexity.value, std::exp(mean(nats)), 1e-3 * found->perplexity.value);
  EXPECT_NEAR(found->perplexity.error, std::exp(mean(nats)) * standard_error(nats),
              1e-3 * found->perplexity.value);
  EXPECT_NEAR(found->ratio.value, std::exp(mean(difference)), 1e-3);
  EXPECT_NEAR(found->ratio.error, found->ratio.value * standard_error(difference), 1e-3);
  EXPECT_NEAR(found->perplexity.value / found->reference.value, found->ratio.value, 1e-9);
  EXPECT_NEAR(found->same_top.value, same / 199.0, 2 / 199.0);
  std::ranges::sort(kl);
  EXPECT_NEAR(found->kl_median, kl[99], 1e-4 + 1e-3 * kl[99]);
  // 0.99 * 198 = 196.02
  EXPECT_NEAR(found->kl_99, 0.98 * kl[196] + 0.02 * kl[197], 1e-4 + 1e-3 * kl[197]);
  EXPECT_NEAR(found->kl_largest, kl.back(), 1e-4 + 1e-3 * kl.back());
  EXPECT_GT(mean(kl), 1e-3);  // else the bounds above say nothing
}

TEST_F(DivergenceTest, of_a_model_from_itself_is_nothing) {
  const auto found = compare(*model_, *model_, 64);
  ASSERT_TRUE(found.ok());
  EXPECT_NEAR(found->kl_largest, 0, 1e-12);
  EXPECT_EQ(found->same_top.value, 1);
  EXPECT_EQ(found->ratio.value, 1);
  EXPECT_EQ(found->ratio.error, 0);
  const auto alone = perplexity(*model_, *backend_, KvType::kF32, tokens_, 64);
  ASSERT_TRUE(alone.ok());
  EXPECT_NEAR(found->perplexity.value, alone->per_token, 1e-9 * alone->per_token);
  EXPECT_EQ(found->scored, alone->scored);
}

TEST_F(DivergenceTest, needs_one_vocabulary_and_a_text) {
  const auto other = load("llama3-bf16");
  const auto refused = compare(*model_, *other, 64);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "divergence.vocabulary");
  tokens_.resize(1);
  EXPECT_EQ(compare(*model_, *reference_, 64).error().code, "perplexity.too_short");
}

}  // namespace
}  // namespace subbyte
