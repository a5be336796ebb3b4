// Models of which some layers keep a state, with three short prompts and one of 220 tokens that
// transformers computed in chunks of 64: whole, cut at every border, token by token, from a shared
// prefix, after steps that were taken back, and pre-empted in mid-answer.
//
// The norm of each head's result keeps its relative error. Where a query and a key are nearly
// orthogonal, as may be among the first tokens, the result is a small difference of large
// products, down to sqrt(eps) = 1e-3 beside the usual 0.1. So the bound of golden_bound.h is that
// of the median token, and a single one may be off by kSmallest times as much.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "checkpoints/containers/tensor_source.h"
#include "engine/generate.h"
#include "engine/scheduler.h"
#include "support/golden_bound.h"
#include "support/goldens.h"
#include "support/test_context.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

constexpr int64_t kPositions = 512;
constexpr double kSmallest = 100;

template <typename T>
std::vector<T> read_tensor(const TensorSource& source, const std::string& name) {
  const FileTensor* tensor = source.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  if (tensor == nullptr) return {};
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

GenerateOptions greedy() {
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = 24;
  return options;
}

class DeltaNetModels : public ::testing::TestWithParam<const char*> {
 protected:
  void start(bool batch_invariant) {
    const char* isa = std::getenv("SUBBYTE_ISA");
    auto backend = make_backend({.device = "cpu",
                                 .num_threads = 2,
                                 .isa = isa == nullptr ? "" : isa,
                                 .batch_invariant = batch_invariant});
    ASSERT_TRUE(backend.ok());
    backend_ = std::move(backend).value();
    const auto directory = testing::golden_folder(GetParam());
    auto model = load_model(directory, *backend_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
    auto source = TensorSource::open(directory / "reference.safetensors");
    ASSERT_TRUE(source.ok()) << source.error().message;
    for (const std::string name : {"prompt0", "prompt1", "prompt2", "long"}) {
      prompts_.push_back({read_tensor<int32_t>(*source, name + ".ids"),
                          read_tensor<float>(*source, name + ".logits"),
                          read_tensor<int32_t>(*source, name + ".greedy")});
      ASSERT_EQ(prompts_.back().greedy.size(), 24u);
    }
    ids_ = prompts_.back().ids;
    ASSERT_EQ(ids_.size(), 220u);
  }

  /// The largest difference of each token, from the smallest to the largest.
  std::vector<double> differences(std::span<const float> found,
                                  std::span<const float> expected) const {
    const auto vocab = static_cast<std::size_t>(model_->config().vocab_size);
    std::vector<double> worst(expected.size() / vocab);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double difference = std::abs(double{found[i]} - expected[i]);
      double& largest = worst[i / vocab];
      largest = difference <= largest ? largest : difference;  // NaN becomes the largest
    }
    std::ranges::sort(worst);
    return worst;
  }

  std::span<const float> last_row(const std::vector<float>& logits) const {
    return std::span(logits).last(model_->config().vocab_size);
  }

  /// The logits after the last token of the prompt, from position `begin` of a sequence on.
  std::vector<float> finish(Sequence& sequence) {
    Logits logits;
    const auto rest = std::span<const int32_t>(ids_).subspan(sequence.length());
    const Part part = {&sequence, rest, 1};
    const Status status = model_->forward(*backend_, {{&part, 1}}, logits);
    EXPECT_TRUE(status.ok()) << status.error().message;
    return logits.values;
  }

  /// Appends tokens of the prompt up to `end`.
  void append(Sequence& sequence, int64_t end) {
    Logits logits;
    const auto tokens =
        std::span<const int32_t>(ids_).subspan(sequence.length(), end - sequence.length());
    const Part part = {&sequence, tokens, 0};
    const Status status = model_->forward(*backend_, {{&part, 1}}, logits);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }

  std::vector<int32_t> alone(std::span<const int32_t> prompt) {
    testing::TestContext context(*model_, *backend_, kPositions);
    std::vector<int32_t> tokens;
    const auto stats =
        generate(*model_, *backend_, context.sequence(), prompt, greedy(), [&](int32_t token) {
          tokens.push_back(token);
          return true;
        });
    EXPECT_TRUE(stats.ok()) << stats.error().message;
    return tokens;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  struct Prompt {
    std::vector<int32_t> ids;
    std::vector<float> logits;  // of the last tokens
    std::vector<int32_t> greedy;
  };
  std::vector<Prompt> prompts_;
  std::vector<int32_t> ids_;  // of the long one
};

TEST_P(DeltaNetModels, give_the_logits_and_the_greedy_tokens_of_the_reference) {
  start(false);
  const auto rounding =
      testing::rounding_of(testing::isa_of(*backend_), Activations::kF32, /*is_prompt=*/true);
  std::vector<double> of_tolerance;  // of each token
  for (const Prompt& prompt : prompts_) {
    const std::vector<float> found = testing::logits_of(*model_, *backend_, prompt.ids);
    const double tolerance = testing::golden_tolerance(model_->config(), prompt.logits, rounding,
                                                       std::ssize(prompt.ids));
    for (const double worst :
         differences(std::span(found).last(prompt.logits.size()), prompt.logits)) {
      of_tolerance.push_back(worst / tolerance);
    }
    EXPECT_EQ(alone(prompt.ids), prompt.greedy);
  }
  // The median, as the state of the first tokens is a sum of few: what a query reads of it may be
  // small beside it, and its norm makes noise of that.
  std::ranges::sort(of_tolerance);
  EXPECT_LE(of_tolerance[of_tolerance.size() / 2], 1);
  EXPECT_LE(of_tolerance.back(), kSmallest);
}

TEST_P(DeltaNetModels, a_prompt_has_the_same_bits_wherever_it_is_cut) {
  start(true);
  testing::TestContext whole(*model_, *backend_, kPositions);
  const std::vector<float> expected = finish(whole.sequence());
  const auto length = std::ssize(ids_);
  testing::TestContext context(*model_, *backend_, kPositions);
  for (int64_t border = 1; border < length; ++border) {
    append(context.sequence(), border);
    ASSERT_EQ(finish(context.sequence()), expected) << border;
    context.sequence().truncate(0);
  }
  for (int64_t t = 1; t < length; ++t) append(context.sequence(), t);
  EXPECT_EQ(finish(context.sequence()), expected);
}

TEST_P(DeltaNetModels, shared_prefixes_and_steps_taken_back_change_nothing) {
  start(true);
  auto pool = model_->make_kv_pool(*backend_, Element::kF32, {4 * kPositions, 4});
  ASSERT_TRUE(pool.ok());
  Sequence first(*pool, kPositions);
  append(first, 130);
  Sequence second = first.share(130);
  ASSERT_EQ(second.length(), 130);
  // The first goes on with other tokens, which the second does not see; and that is taken back.
  const int32_t others[] = {1, 2, 3, 4, 5};
  const Part ahead = {&first, others, 0};
  Logits logits;
  ASSERT_TRUE(model_->submit(*backend_, {{&ahead, 1}}).ok());
  ASSERT_TRUE(backend_->wait(logits).ok());
  first.truncate(130);
  const std::vector<float> of_first = finish(first);
  const std::vector<float> of_second = finish(second);
  testing::TestContext whole(*model_, *backend_, kPositions);
  const std::vector<float> expected = finish(whole.sequence());
  EXPECT_EQ(of_first, expected);
  EXPECT_EQ(of_second, expected);
}

TEST_P(DeltaNetModels, answers_that_are_pre_empted_go_on_with_the_same_tokens) {
  start(true);
  auto pool = model_->make_kv_pool(*backend_, Element::kF32, {kPositions, 2});
  ASSERT_TRUE(pool.ok());
  Scheduler scheduler(*model_, *backend_, *pool, {.max_sequences = 6, .step_tokens = 48});
  std::map<RequestId, std::vector<int32_t>> prompts;
  for (const int64_t length : {100, 7, 150, 60, 31, 1}) {
    ScheduledRequest request;
    request.prompt.assign(ids_.begin(), ids_.begin() + length);
    request.options = greedy();
    const auto id = scheduler.add(request);
    ASSERT_TRUE(id.ok()) << id.error().message;
    prompts[*id] = request.prompt;
  }
  std::map<RequestId, std::vector<int32_t>> found;
  while (!scheduler.idle()) {
    const auto events = scheduler.step();
    ASSERT_TRUE(events.ok()) << events.error().message;
    for (const SampleEvent& event : *events) {
      EXPECT_FALSE(event.error.has_value());
      if (event.token) found[event.request].push_back(*event.token);
    }
  }
  EXPECT_GT(scheduler.num_preemptions(), 0);
  for (const auto& [id, prompt] : prompts) EXPECT_EQ(found[id], alone(prompt)) << prompt.size();
}

INSTANTIATE_TEST_SUITE_P(Goldens, DeltaNetModels,
                         ::testing::ValuesIn(testing::goldens(testing::kStates)), NamedByValue());

}  // namespace
}  // namespace subbyte
