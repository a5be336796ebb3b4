#pragma once
// The golden models of gated delta nets on a machine: their prompts, and what must not change a bit
// there in batch-invariant mode.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoints/containers/tensor_source.h"
#include "engine/generate.h"
#include "engine/scheduler.h"
#include "support/goldens.h"
#include "support/test_context.h"
#include "support/value_of.h"

namespace subbyte::testing {

class DeltaNetGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int64_t kPositions = 512;

  struct Prompt {
    std::vector<int32_t> ids;
    std::vector<float> logits;  // of the last tokens
    std::vector<int32_t> greedy;
  };

  void start_on(const DeviceOptions& device, Element cache_type) {
    cache_type_ = cache_type;
    model_.reset();  // before the machine that it is on
    backend_ = value_of(make_backend(device));
    model_ = value_of(load_model(folder(), *backend_));
    auto source = TensorSource::open(folder() / "reference.safetensors");
    ASSERT_TRUE(source.ok()) << source.error().message;
    prompts_.clear();
    for (const std::string name : {"prompt0", "prompt1", "prompt2", "long"}) {
      prompts_.push_back({read_tensor<int32_t>(*source, name + ".ids"),
                          read_tensor<float>(*source, name + ".logits"),
                          read_tensor<int32_t>(*source, name + ".greedy")});
      ASSERT_EQ(prompts_.back().greedy.size(), 24u);
    }
    ids_ = prompts_.back().ids;
    ASSERT_EQ(ids_.size(), 220u);
  }

  virtual std::filesystem::path folder() const { return golden_folder(GetParam()); }

  static GenerateOptions greedy() {
    GenerateOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = 24;
    return options;
  }

  std::vector<float> logits_of_prompt(const Prompt& prompt) {
    return logits_of(*model_, *backend_, prompt.ids, cache_type_);
  }

  /// The logits after the last token of the prompt, from position `begin` of a sequence on.
  std::vector<float> finish(Sequence& sequence) {
    Logits logits;
    const auto rest = std::span<const int32_t>(ids_).subspan(sequence.length());
    const Part part = {&sequence, rest, 1};
    value_of(model_->forward(*backend_, {{&part, 1}}, logits));
    return logits.values;
  }

  /// Appends tokens of the prompt up to `end`.
  void append(Sequence& sequence, int64_t end) {
    Logits logits;
    const auto tokens =
        std::span<const int32_t>(ids_).subspan(sequence.length(), end - sequence.length());
    const Part part = {&sequence, tokens, 0};
    value_of(model_->forward(*backend_, {{&part, 1}}, logits));
  }

  /// Places where the long prompt is cut: all of them, or those beside the ends of chunks of 64,
  /// and in their middles.
  std::vector<int64_t> borders() const {
    std::vector<int64_t> result;
    for (int64_t border = 1; border < std::ssize(ids_); ++border) {
      const int64_t in_chunk = (border + 1) % 64;
      const bool is_chosen = in_chunk <= 2 || in_chunk == 32;
      if (is_chosen || has_use(GetParam(), kEveryBorder)) result.push_back(border);
    }
    return result;
  }

  std::vector<int32_t> alone(std::span<const int32_t> prompt) {
    TestContext context(*model_, *backend_, kPositions, cache_type_);
    std::vector<int32_t> tokens;
    value_of(generate(*model_, *backend_, context.sequence(), prompt, greedy(), [&](int32_t token) {
      tokens.push_back(token);
      return true;
    }));
    return tokens;
  }

  void expect_the_same_bits_wherever_it_is_cut() {
    TestContext whole(*model_, *backend_, kPositions, cache_type_);
    const std::vector<float> expected = finish(whole.sequence());
    const auto length = std::ssize(ids_);
    TestContext context(*model_, *backend_, kPositions, cache_type_);
    for (const int64_t border : borders()) {
      append(context.sequence(), border);
      ASSERT_EQ(finish(context.sequence()), expected) << border;
      context.sequence().truncate(0);
    }
    for (int64_t t = 1; t < length; ++t) append(context.sequence(), t);
    EXPECT_EQ(finish(context.sequence()), expected);
  }

  void expect_shared_prefixes_and_steps_taken_back_to_change_nothing() {
    auto pool = model_->make_kv_pool(*backend_, cache_type_, {4 * kPositions, 4});
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
    TestContext whole(*model_, *backend_, kPositions, cache_type_);
    const std::vector<float> expected = finish(whole.sequence());
    EXPECT_EQ(of_first, expected);
    EXPECT_EQ(of_second, expected);
  }

  void expect_pre_empted_answers_to_go_on_with_the_same_tokens() {
    auto pool = model_->make_kv_pool(*backend_, cache_type_, {kPositions, 2});
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

  template <typename T>
  static std::vector<T> read_tensor(const TensorSource& source, const std::string& name) {
    const FileTensor* tensor = source.find(name);
    EXPECT_NE(tensor, nullptr) << name;
    if (tensor == nullptr) return {};
    std::vector<T> values(tensor->bytes.size() / sizeof(T));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    return values;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  Element cache_type_ = Element::kF32;
  std::vector<Prompt> prompts_;
  std::vector<int32_t> ids_;  // of the long one
};

}  // namespace subbyte::testing
