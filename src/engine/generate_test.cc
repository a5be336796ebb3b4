#include "engine/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/random.h"

namespace subbyte {
namespace {

/// The text that is shown when it arrives in these pieces, and whether it was stopped.
std::string shown(StopStrings stops, const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += stops.push(piece);
  text += stops.finish();
  return text + (stops.stopped() ? "|" : "");
}

TEST(StopStrings, let_everything_through_when_there_are_none) {
  EXPECT_EQ(shown(StopStrings({}), {"a", "", "bc"}), "abc");
  EXPECT_EQ(shown(StopStrings({""}), {"abc"}), "abc");
}

TEST(StopStrings, cut_at_a_stop_string) {
  EXPECT_EQ(shown(StopStrings({"END"}), {"one END two"}), "one |");
  EXPECT_EQ(shown(StopStrings({"END"}), {"END"}), "|");
  EXPECT_EQ(shown(StopStrings({"END"}), {"one EN", "E", "ND more"}), "one EN|");
  EXPECT_EQ(shown(StopStrings({"END"}), {"one", " E", "N", "D", " two"}), "one |");
}

TEST(StopStrings, hold_back_what_may_become_one) {
  StopStrings stops({"stop"});
  EXPECT_EQ(stops.push("non-st"), "non-");
  EXPECT_EQ(stops.push("ate"), "state");
  EXPECT_EQ(stops.push("sto"), "");
  EXPECT_FALSE(stops.stopped());
  EXPECT_EQ(stops.finish(), "sto");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, see_a_stop_that_begins_inside_a_failed_one) {
  EXPECT_EQ(shown(StopStrings({"aab"}), {"aa", "ab", "c"}), "a|");
  EXPECT_EQ(shown(StopStrings({"\n\nUser"}), {"\n", "\n", "\n", "User"}), "\n|");
}

TEST(StopStrings, the_one_that_is_complete_first_counts) {
  EXPECT_EQ(shown(StopStrings({"bcd", "c"}), {"abcd"}), "ab|");
  EXPECT_EQ(shown(StopStrings({"two", "one"}), {"zero one two"}), "zero |");
  EXPECT_EQ(shown(StopStrings({"c", "abc"}), {"xabc"}), "x|");  // together: the longest
  EXPECT_EQ(shown(StopStrings({"abc", "c"}), {"xabc"}), "x|");
}

TEST(StopStrings, show_nothing_after_a_stop) {
  StopStrings stops({"x"});
  EXPECT_EQ(stops.push("ax"), "a");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.push("b"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, do_not_depend_on_the_pieces) {
  // All texts of up to 7 letters of a small alphabet, whole and letter by letter.
  const std::vector<std::vector<std::string>> sets = {
      {"ab"}, {"aa", "ab"}, {"abc", "b"}, {"aab", "ba", "cc"}, {"abab"}, {"c", "abc", "bc"}};
  for (const auto& set : sets) {
    for (int code = 0; code < 3 * 3 * 3 * 3 * 3 * 3 * 3; ++code) {
      std::string text;
      std::vector<std::string> letters;
      for (int rest = code, i = 0; i < 7; ++i, rest /= 3) {
        text += static_cast<char>('a' + rest % 3);
        letters.push_back(text.substr(text.size() - 1));
      }
      const std::string whole = shown(StopStrings(set), {text});
      EXPECT_EQ(shown(StopStrings(set), letters), whole) << text;
      EXPECT_EQ(shown(StopStrings(set), {text.substr(0, 3), text.substr(3)}), whole) << text;
    }
  }
}

class Generate : public testing::Test {
 protected:
  void SetUp() override {
    auto execution = Execution::create({.num_threads = 1});
    ASSERT_TRUE(execution.ok());
    execution_ = std::move(execution).value();
    auto model =
        load_model(std::filesystem::path(SUBBYTE_TEST_DATA) / "goldens" / "qwen3-awq", *execution_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
    options_.sampling.temperature = 0;
  }

  GenerateStats run(int64_t capacity, std::vector<int32_t> prompt = {1, 2, 3}) {
    tokens_.clear();
    KvCache cache(model_->config(), capacity);
    const auto stats = generate(*model_, *execution_, cache, prompt, options_, [&](int32_t token) {
      tokens_.push_back(token);
      return static_cast<int64_t>(tokens_.size()) < stop_after_;
    });
    EXPECT_TRUE(stats.ok()) << stats.error().message;
    cached_ = cache.size();
    return *stats;
  }

  std::unique_ptr<Execution> execution_;
  std::unique_ptr<Model> model_;
  GenerateOptions options_;
  int64_t stop_after_ = 1000;
  std::vector<int32_t> tokens_;
  int64_t cached_ = 0;
};

TEST_F(Generate, ends_at_the_wanted_length) {
  options_.max_tokens = 5;
  const GenerateStats stats = run(64);
  EXPECT_EQ(stats.reason, StopReason::kLength);
  EXPECT_EQ(stats.prompt_tokens, 3);
  EXPECT_EQ(stats.generated_tokens, 5);
  EXPECT_EQ(tokens_.size(), 5u);
  EXPECT_EQ(cached_, 3 + 4);  // all but the last token
  EXPECT_GT(stats.prefill_tokens_per_second(), 0);
  EXPECT_GT(stats.decode_tokens_per_second(), 0);
}

TEST_F(Generate, ends_when_the_context_is_full) {
  const GenerateStats stats = run(8);
  EXPECT_EQ(stats.reason, StopReason::kContextFull);
  EXPECT_EQ(cached_, 8);
  EXPECT_EQ(tokens_.size(), 6u);  // the last one has no place and needs none
}

TEST_F(Generate, ends_when_the_caller_says_so) {
  stop_after_ = 2;
  const GenerateStats stats = run(64);
  EXPECT_EQ(stats.reason, StopReason::kCaller);
  EXPECT_EQ(tokens_.size(), 2u);
}

TEST_F(Generate, a_stop_token_is_not_handed_out) {
  options_.max_tokens = 6;
  run(64);
  const std::vector<int32_t> all = tokens_;
  options_.stop_tokens = {511, all[3]};
  const auto first = std::ranges::find(all, all[3]) - all.begin();
  const GenerateStats stats = run(64);
  EXPECT_EQ(stats.reason, StopReason::kStopToken);
  EXPECT_EQ(tokens_, std::vector<int32_t>(all.begin(), all.begin() + first));
  EXPECT_EQ(stats.generated_tokens, first + 1);
}

TEST_F(Generate, nothing_is_wanted_nothing_is_done) {
  options_.max_tokens = 0;
  const GenerateStats stats = run(64);
  EXPECT_EQ(stats.generated_tokens, 0);
  EXPECT_EQ(cached_, 0);
  EXPECT_EQ(stats.decode_tokens_per_second(), 0);
}

TEST_F(Generate, the_same_seed_gives_the_same_text) {
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

TEST_F(Generate, refuses_prompts_that_cannot_run) {
  KvCache cache(model_->config(), 4);
  const auto code = [&](std::vector<int32_t> prompt) {
    const auto stats =
        generate(*model_, *execution_, cache, prompt, options_, [](int32_t) { return true; });
    return stats.ok() ? "" : std::string(stats.error().code);
  };
  EXPECT_EQ(code({}), "generate.empty_prompt");
  EXPECT_EQ(code({1, 512}), "model.token_range");
  EXPECT_EQ(code({-1}), "model.token_range");
  EXPECT_EQ(code({1, 2, 3, 4, 5}), "model.context_full");
  EXPECT_EQ(cache.size(), 0);  // nothing happened
}

}  // namespace
}  // namespace subbyte
