// Texts that are longer than those a model was first trained with have other frequencies, where
// config.json says so: all of their positions, also those that were computed before the text was as
// long. The long prompt of the golden is, and the reference computes each step from the beginning.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "checkpoints/containers/tensor_source.h"
#include "engine/generate.h"
#include "engine/scheduler.h"
#include "models/model.h"
#include "support/golden_bound.h"
#include "support/goldens.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

constexpr const char* kGolden = "phi3-longrope-bf16";
constexpr int64_t kAfter = 64;

template <typename T>
std::vector<T> read(const TensorSource& source, const std::string& name) {
  const FileTensor& tensor = *source.find(name);
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

class LongRope : public ::testing::Test {
 protected:
  LongRope() : backend_(testing::make_test_backend(2)) {
    auto model = load_model(testing::golden_folder(kGolden), *backend_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
  }

  /// The text that goes on with `prompt`, the likeliest token at each of its ends: of all of it, as
  /// one step computes it in a sequence that is as long.
  std::vector<int32_t> greedy(std::vector<int32_t> tokens, int64_t length) {
    const auto vocab = model_->config().vocab_size;
    while (std::ssize(tokens) < length) {
      const auto logits = testing::logits_of(*model_, *backend_, tokens);
      const auto last = std::span(logits).last(static_cast<std::size_t>(vocab));
      tokens.push_back(static_cast<int32_t>(std::ranges::max_element(last) - last.begin()));
    }
    return tokens;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

std::vector<int32_t> prompt_of(int64_t length) {
  std::vector<int32_t> tokens(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>((i * i + 7 * i) % 113 + 3);
  }
  return tokens;
}

GenerateOptions greedy_options(int64_t tokens) {
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = tokens;
  return options;
}

TEST_F(LongRope, is_that_of_the_reference) {
  const auto source = TensorSource::open(testing::golden_folder(kGolden) / "reference.safetensors");
  const auto ids = read<int32_t>(*source, "long.ids");
  const auto expected = read<float>(*source, "long.logits");
  const auto worst = [&](int64_t max_length) {
    testing::TestContext context(*model_, *backend_, 512);
    context.sequence().begin(max_length);
    const auto all = context.forward(ids);
    const auto found = std::span(all).last(expected.size());
    double largest = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(double{found[i]} - expected[i]));
    }
    const auto rounding = testing::rounding_of(testing::isa_of(*backend_), Activations::kF32, true);
    return largest /
           testing::golden_tolerance(model_->config(), expected, rounding, std::ssize(ids));
  };
  EXPECT_EQ(model_->plan().cache.long_after, kAfter);
  EXPECT_LE(worst(kAfter + 1), 1);
  EXPECT_LE(worst(512), 1);
  EXPECT_GT(worst(kAfter), 100);  // those of short texts
}

/// A cache for many positions says nothing of the text in it.
TEST_F(LongRope, is_chosen_anew_where_a_text_grows_while_it_is_generated) {
  for (const int64_t prompt : {60, 64, 65}) {
    const std::vector<int32_t> expected = greedy(prompt_of(prompt), 76);
    testing::TestContext context(*model_, *backend_, 512);
    std::vector<int32_t> found = prompt_of(prompt);
    const auto stats = generate(*model_, *backend_, context.sequence(), prompt_of(prompt),
                                greedy_options(76 - prompt), [&](int32_t token) {
                                  found.push_back(token);
                                  return true;
                                });
    ASSERT_TRUE(stats.ok()) << stats.error().message;
    EXPECT_EQ(found, expected) << prompt;
    EXPECT_TRUE(context.sequence().is_long());
  }
}

TEST_F(LongRope, is_that_of_each_of_many_texts) {
  auto made = model_->make_kv_pool(*backend_, Element::kF32, {.positions = 1024, .sequences = 3});
  ASSERT_TRUE(made.ok());
  KvPool pool = std::move(made).value();
  Scheduler scheduler(*model_, *backend_, pool, {.max_sequences = 3, .step_tokens = 40});
  std::map<RequestId, std::vector<int32_t>> expected, found;
  for (const int64_t prompt : {20, 61, 100}) {
    ScheduledRequest request;
    request.prompt = prompt_of(prompt);
    request.options = greedy_options(12);
    request.max_length = 300;
    const auto id = scheduler.add(request);
    ASSERT_TRUE(id.ok()) << id.error().message;
    expected[*id] = greedy(prompt_of(prompt), prompt + 12);
    found[*id] = prompt_of(prompt);
  }
  while (!scheduler.idle()) {
    const auto events = scheduler.step();
    ASSERT_TRUE(events.ok()) << events.error().message;
    for (const SampleEvent& event : *events) {
      if (event.token) found[event.request].push_back(*event.token);
    }
  }
  EXPECT_EQ(found, expected);
}

/// The windows of a text are as long as each other, but for the last.
TEST_F(LongRope, is_that_of_each_window_of_a_text) {
  const std::vector<int32_t> tokens = prompt_of(100);
  std::vector<float> found;
  testing::TestContext context(*model_, *backend_, 512);
  for (const auto& [first, count] : {std::pair(0, 70), std::pair(70, 30)}) {
    context.sequence().begin(count);
    EXPECT_EQ(context.sequence().is_long(), count > kAfter);
    const auto window = std::span(tokens).subspan(first, count);
    EXPECT_EQ(context.forward(window), testing::logits_of(*model_, *backend_, window));
  }
}

}  // namespace
}  // namespace subbyte
