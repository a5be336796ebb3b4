#include "engine/generate.h"
#include "support/test_context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <string>

#include "base/random.h"
#include "engine/perplexity.h"
#include "engine/scheduler.h"
#include "ops/forwarding_backend.h"
#include "support/failing_backend.h"
#include "support/lagging_backend.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

/// How many steps may be on their way.
class Generate : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    auto model =
        load_model(std::filesystem::path(SUBBYTE_TEST_DATA) / "goldens" / "qwen3-awq", *backend_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
    options_.sampling.temperature = 0;
    if (GetParam() == 2) backend_ = &lagging_;
  }

  /// A model whose weights are used where they lie in the file.
  void load_copy(const TempDir& dir) {
    for (const char* name : {"config.json", "model.safetensors"}) {
      const auto golden = std::filesystem::path(SUBBYTE_TEST_DATA) / "goldens" / "qwen3-bf16";
      std::filesystem::copy(golden / name, dir / name);
    }
    auto model = load_model(dir.path(), *backend_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
  }

  SampleEnd run(int64_t capacity, std::vector<int32_t> prompt = {1, 2, 3}) {
    tokens_.clear();
    testing::TestContext context(*model_, *backend_, capacity);
    const auto stats =
        generate(*model_, *backend_, context.sequence(), prompt, options_, [&](int32_t token) {
          tokens_.push_back(token);
          return std::ssize(tokens_) < stop_after_;
        });
    EXPECT_TRUE(stats.ok()) << stats.error().message;
    cached_ = context.sequence().length();
    return *stats;
  }

  std::unique_ptr<Backend> machine_ = testing::make_test_backend(1);
  testing::LaggingBackend lagging_{*machine_};
  Backend* backend_ = machine_.get();
  std::unique_ptr<Model> model_;
  GenerateOptions options_;
  int64_t stop_after_ = 1000;
  std::vector<int32_t> tokens_;
  int64_t cached_ = 0;
};

/// Loads models whose n-th vector has an infinite number.
class Spoiling : public ForwardingBackend {
 public:
  Spoiling(Backend& backend, int n) : ForwardingBackend(backend), n_(n) {}
  using ForwardingBackend::upload;
  Result<Vector> upload(std::vector<float> numbers) override {
    if (count_++ == n_) numbers.front() = std::numeric_limits<float>::infinity();
    return backend_.upload(std::move(numbers));
  }
  int count() const { return count_; }

 private:
  int n_;
  int count_ = 0;
};

TEST_P(Generate, names_the_operation_whose_results_are_not_finite) {
  std::set<std::string> places;
  int count = 1;
  for (int n = 0; n < count; ++n) {
    Spoiling backend(*backend_, n);
    const auto model =
        load_model(std::filesystem::path(SUBBYTE_TEST_DATA) / "goldens" / "qwen3-awq", backend);
    ASSERT_TRUE(model.ok()) << model.error().message;
    count = backend.count();
    testing::TestContext context(**model, *backend_, 64);
    const std::vector<int32_t> prompt = {1, 2, 3};
    const auto stats = generate(**model, *backend_, context.sequence(), prompt, options_,
                                [](int32_t) { return true; });
    ASSERT_FALSE(stats.ok());
    EXPECT_EQ(stats.error().code, "sampling.not_finite");
    const std::string& message = stats.error().message;
    const std::size_t at = message.rfind("those of ");
    places.insert(at == std::string::npos ? "" : message.substr(at + 9));
  }
  // Each norm: in front of attention and after it, of queries and keys, and the last one.
  std::set<std::string> expected = {"norm"};
  for (const char* layer : {"layers.0.", "layers.1."}) {
    for (const char* op : {"input_layernorm", "self_attn.rotary_emb", "post_attention_layernorm"}) {
      expected.insert(std::string(layer) + op);
    }
  }
  EXPECT_EQ(places, expected);
}

TEST_P(Generate, refuses_an_answer_of_a_file_that_was_written_to_meanwhile) {
  const TempDir dir;
  load_copy(dir);
  run(64);
  std::fstream file(dir / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('!');
  file.close();
  testing::TestContext context(*model_, *backend_, 64);
  const std::vector<int32_t> prompt = {1, 2, 3};
  const auto stats = generate(*model_, *backend_, context.sequence(), prompt, options_,
                              [](int32_t) { return true; });
  ASSERT_FALSE(stats.ok());
  EXPECT_EQ(stats.error().code, "file.changed");
  EXPECT_EQ(perplexity(*model_, *backend_, Element::kF32, prompt, 3, nullptr).error().code,
            "file.changed");
  testing::TestContext other(*model_, *backend_, 64);
  Scheduler scheduler(*model_, *backend_, other.pool(), {});
  ScheduledRequest request;
  request.prompt = prompt;
  request.options.max_tokens = 1;
  ASSERT_TRUE(scheduler.add(request).ok());
  const auto events = scheduler.step();
  ASSERT_TRUE(events.ok() && events->size() == 1 && events->front().error);
  EXPECT_EQ(events->front().error->code, "file.changed");
}

/// What was deleted or replaced stays mapped as it was.
TEST_P(Generate, goes_on_when_the_file_is_replaced) {
  const TempDir dir;
  load_copy(dir);
  run(64);
  const std::vector<int32_t> before = tokens_;
  std::filesystem::remove(dir / "model.safetensors");
  dir.write("model.safetensors", "another file");
  run(64);
  EXPECT_EQ(tokens_, before);
}

TEST_P(Generate, ends_at_the_wanted_length) {
  options_.max_tokens = 5;
  const SampleEnd stats = run(64);
  EXPECT_EQ(stats.reason, StopReason::kLength);
  EXPECT_EQ(stats.prompt_tokens, 3);
  EXPECT_EQ(stats.generated_tokens, 5);
  EXPECT_EQ(tokens_.size(), 5u);
  EXPECT_EQ(cached_, 3 + 4);  // all but the last token
  EXPECT_GT(stats.prefill_tokens_per_second(), 0);
  EXPECT_GT(stats.decode_tokens_per_second(), 0);
}

TEST_P(Generate, a_generation_knows_that_it_has_ended) {
  testing::TestContext context(*model_, *backend_, 64);
  const std::vector<int32_t> prompt = {1, 2, 3};
  std::vector<float> logits(model_->config().vocab_size, 0.0f);
  options_.max_tokens = 0;
  EXPECT_TRUE(Generation(context.sequence(), prompt, options_).ended());
  options_.max_tokens = 2;
  Generation generation(context.sequence(), prompt, options_);
  EXPECT_EQ(std::ssize(generation.next(0).tokens), 1);  // at least one
  ASSERT_TRUE(generation.accept(logits).ok());
  EXPECT_FALSE(generation.ended());
  ASSERT_TRUE(generation.accept(logits).ok());
  EXPECT_TRUE(generation.ended());
  Generation failing(context.sequence(), prompt, options_);
  std::ranges::fill(logits, std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(failing.accept(logits).ok());
  EXPECT_TRUE(failing.ended());
}

TEST_P(Generate, ends_when_the_context_is_full) {
  const SampleEnd stats = run(8);
  EXPECT_EQ(stats.reason, StopReason::kContextFull);
  EXPECT_EQ(cached_, 8);
  EXPECT_EQ(tokens_.size(), 6u);  // the last one has no place and needs none
}

TEST_P(Generate, ends_when_the_caller_says_so) {
  stop_after_ = 2;
  const SampleEnd stats = run(64);
  EXPECT_EQ(stats.reason, StopReason::kCaller);
  EXPECT_EQ(tokens_.size(), 2u);
  EXPECT_EQ(cached_, 3 + 1);
}

TEST_P(Generate, a_stop_token_is_not_handed_out) {
  options_.max_tokens = 6;
  run(64);
  const std::vector<int32_t> all = tokens_;
  options_.stop_tokens = {511, all[3]};
  const auto first = std::ranges::find(all, all[3]) - all.begin();
  const SampleEnd stats = run(64);
  EXPECT_EQ(stats.reason, StopReason::kStopToken);
  EXPECT_EQ(tokens_, std::vector<int32_t>(all.begin(), all.begin() + first));
  EXPECT_EQ(stats.generated_tokens, first + 1);
  EXPECT_EQ(cached_, 3 + first);  // without the stop token
  EXPECT_EQ(lagging_.max_on_their_way(), GetParam() == 2 ? 2 : 0);
}

TEST_P(Generate, nothing_is_wanted_nothing_is_done) {
  options_.max_tokens = 0;
  const SampleEnd stats = run(64);
  EXPECT_EQ(stats.generated_tokens, 0);
  EXPECT_EQ(cached_, 0);
  EXPECT_EQ(stats.decode_tokens_per_second(), 0);
}

TEST_P(Generate, the_same_seed_gives_the_same_text) {
  options_.sampling = {};
  options_.sampling.seed = 3;
  options_.max_tokens = 20;
  run(64);
  const std::vector<int32_t> first = tokens_;
  run(64);
  EXPECT_EQ(tokens_, first);
  options_.sampling.seed = 4;
  run(64);
  EXPECT_NE(tokens_, first);
}

/// The token whose successor has no page is handed out before the error.
TEST_P(Generate, a_full_pool_ends_it_after_the_same_tokens) {
  auto pool = model_->make_kv_pool(*backend_, Element::kF32, {kPagePositions});
  ASSERT_TRUE(pool.ok());
  Sequence sequence(*pool, 4 * kPagePositions);
  const std::vector<int32_t> prompt = {1, 2, 3};
  const auto stats = generate(*model_, *backend_, sequence, prompt, options_, [&](int32_t token) {
    tokens_.push_back(token);
    return true;
  });
  ASSERT_FALSE(stats.ok());
  EXPECT_EQ(stats.error().code, "kv.no_pages");
  EXPECT_EQ(std::ssize(tokens_), kPagePositions - 3 + 1);
  EXPECT_EQ(sequence.length(), kPagePositions);
}

/// Nothing is on its way then, and sequences are as before.
TEST_P(Generate, goes_on_after_a_step_has_failed) {
  options_.max_tokens = 20;
  run(64);
  const std::vector<int32_t> expected = tokens_;
  for (int after = 0; after < 12; ++after) {
    testing::FailingBackend failing(*backend_);
    testing::TestContext context(*model_, failing, 64);
    const std::vector<int32_t> prompt = {1, 2, 3};
    const auto generate_all = [&](std::vector<int32_t>& tokens) {
      return generate(*model_, failing, context.sequence(), prompt, options_, [&](int32_t token) {
        tokens.push_back(token);
        return true;
      });
    };
    std::vector<int32_t> tokens;
    failing.fail_after(after);
    EXPECT_EQ(generate_all(tokens).error().code, "memory");
    context.sequence().truncate(0);
    tokens.clear();
    EXPECT_TRUE(generate_all(tokens).ok());
    EXPECT_EQ(tokens, expected) << after;
  }
}

/// Random numbers and penalties are those of a machine that takes one step after the other.
TEST_P(Generate, tokens_do_not_depend_on_how_many_steps_are_on_their_way) {
  options_.max_tokens = 30;
  for (const double penalty : {1.0, 1.3}) {
    options_.sampling = {.repetition_penalty = penalty, .seed = 5};
    run(64);
    const std::vector<int32_t> tokens = tokens_;
    backend_ = backend_ == &lagging_ ? machine_.get() : &lagging_;
    run(64);
    EXPECT_EQ(tokens_, tokens) << penalty;
  }
}

TEST_P(Generate, refuses_prompts_that_cannot_run) {
  testing::TestContext context(*model_, *backend_, 200);
  const auto code = [&](std::vector<int32_t> prompt) {
    const auto stats = generate(*model_, *backend_, context.sequence(), prompt, options_,
                                [](int32_t) { return true; });
    return stats.ok() ? "" : std::string(stats.error().code);
  };
  EXPECT_EQ(code({}), "generate.empty_prompt");
  EXPECT_EQ(code({1, 512}), "model.token_range");
  EXPECT_EQ(code({-1}), "model.token_range");
  EXPECT_EQ(code(std::vector<int32_t>(201, 1)), "model.context_full");
  std::vector<int32_t> bad_end(200, 1);  // in a later chunk of the prompt
  bad_end.back() = 512;
  EXPECT_EQ(code(bad_end), "model.token_range");
  EXPECT_EQ(context.sequence().length(), 0);  // nothing happened
}

INSTANTIATE_TEST_SUITE_P(StepsInFlight, Generate, ::testing::Values(1, 2), NamedByValue());

}  // namespace
}  // namespace subbyte
