// Against the reference logits of a golden, in double precision.

#include "engine/perplexity.h"
#include "support/test_context.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "checkpoints/containers/tensor_source.h"
#include "support/paths.h"

namespace subbyte {
namespace {

class PerplexityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto directory = std::filesystem::path(SUBBYTE_TEST_DATA) / "goldens" / "qwen3-bf16";
    auto model = load_model(directory, *backend_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
    auto source = TensorSource::open(directory / "reference.safetensors");
    ASSERT_TRUE(source.ok());
    ids_ = read<int32_t>(*source, "prompt2.ids");
    logits_ = read<float>(*source, "prompt2.logits");
    ASSERT_EQ(ids_.size(), 40u);
  }

  template <typename T>
  static std::vector<T> read(const TensorSource& source, std::string_view name) {
    const FileTensor* tensor = source.find(name);
    std::vector<T> values(tensor->bytes.size() / sizeof(T));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    return values;
  }

  /// -log of the probability of token i + 1 after the first i + 1 tokens.
  double nats(std::size_t i) const {
    double sum = 0;
    for (std::size_t v = 0; v < 512; ++v) sum += std::exp(double(logits_[i * 512 + v]));
    return std::log(sum) - logits_[i * 512 + ids_[i + 1]];
  }

  Result<Perplexity> run(std::span<const int32_t> tokens, int64_t window) {
    return perplexity(*model_, *backend_, Element::kF32, tokens, window);
  }
  std::string code(std::span<const int32_t> tokens, int64_t window) {
    const auto result = run(tokens, window);
    return result.ok() ? "" : std::string(result.error().code);
  }

  std::unique_ptr<Backend> backend_ = testing::make_test_backend(2);
  std::unique_ptr<Model> model_;
  std::vector<int32_t> ids_;
  std::vector<float> logits_;
};

TEST_F(PerplexityTest, matches_the_reference) {
  double sum = 0;
  for (std::size_t i = 0; i < 39; ++i) sum += nats(i);
  const auto result = run(ids_, 64);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->scored, 39);
  // Logits within 2e-3 of the reference move a token's likelihood by at most twice that.
  EXPECT_NEAR(result->nats, sum, 39 * 4e-3);
  EXPECT_NEAR(result->per_token, std::exp(sum / 39), std::exp(sum / 39) * 4e-3);
  EXPECT_EQ(result->per_token, std::exp(result->nats / 39));
  EXPECT_GT(result->per_token, 100);  // a random model knows little: near 512
}

TEST_F(PerplexityTest, a_window_begins_with_nothing) {
  // The first window of 30 tokens has the logits of the reference; the rest is a text of its own.
  const auto whole = run(ids_, 30);
  const auto head = run(std::span(ids_).first(30), 30);
  const auto tail = run(std::span(ids_).subspan(30), 30);
  ASSERT_TRUE(whole.ok() && head.ok() && tail.ok());
  EXPECT_EQ(whole->scored, 29 + 9);
  EXPECT_NEAR(whole->nats, head->nats + tail->nats, 1e-9);
  double sum = 0;
  for (std::size_t i = 0; i < 29; ++i) sum += nats(i);
  EXPECT_NEAR(head->nats, sum, 29 * 4e-3);
}

TEST_F(PerplexityTest, a_last_window_of_one_token_is_left_out) {
  const auto result = run(ids_, 13);  // 13 + 13 + 13 + 1
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->scored, 36);
}

TEST_F(PerplexityTest, long_windows_are_worked_off_in_chunks) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < 300; ++i) tokens.push_back(ids_[i % 40]);
  const auto result = run(tokens, 300);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->scored, 299);
  // One token after the other, through the same cache.
  testing::TestContext context(*model_, *backend_, 300);
  double sum = 0;
  for (int i = 0; i < 299; ++i) {
    const std::vector<float> logits = context.forward({&tokens[i], 1});
    ASSERT_EQ(logits.size(), 512u);
    double total = 0;
    for (const float logit : logits) total += std::exp(double(logit));
    sum += std::log(total) - logits[tokens[i + 1]];
  }
  EXPECT_NEAR(result->nats, sum, 299 * 1e-4);
}

TEST_F(PerplexityTest, reports_progress) {
  std::vector<int64_t> done;
  double last = 0;
  const auto result = perplexity(*model_, *backend_, Element::kF32, ids_, 16,
                                 [&](int64_t tokens, int64_t all, double so_far) {
                                   done.push_back(tokens);
                                   EXPECT_EQ(all, 40);
                                   last = so_far;
                                 });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(done, (std::vector<int64_t>{16, 32, 40}));
  EXPECT_EQ(last, result->per_token);
}

TEST_F(PerplexityTest, refuses_what_predicts_nothing) {
  EXPECT_EQ(code({}, 8), "perplexity.too_short");
  EXPECT_EQ(code(std::span(ids_).first(1), 8), "perplexity.too_short");
  for (const int64_t window : {1, 0, -5}) EXPECT_EQ(code(ids_, window), "perplexity.window");
}

TEST_F(PerplexityTest, refuses_tokens_outside_the_vocabulary_before_they_are_looked_up) {
  for (const std::size_t at : {0, 127, 128, 129, 199}) {
    std::vector<int32_t> tokens(200, 1);
    for (const int32_t bad : {512, -1, INT32_MAX}) {
      tokens[at] = bad;
      EXPECT_EQ(code(tokens, 200), "model.token_range") << at;
    }
  }
}

}  // namespace
}  // namespace subbyte
