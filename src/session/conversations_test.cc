// Conversations on a model of each family, one turn after the other: what a turn computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "session/session.h"
#include "support/temp_dir.h"
#include "synth/synth.h"

namespace subbyte {
namespace {

class Conversations : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ThreadPool pool(2);
    SynthOptions synth;
    synth.arch = GetParam();
    synth.shape = "tiny";
    const Status made = synthesize(folder_ / "model", synth, pool);
    ASSERT_TRUE(made.ok()) << made.error().message;
    open(true);
  }

  void open(bool prefix_cache) {
    SessionOptions options;
    options.device = {.device = "cpu", .num_threads = 1, .batch_invariant = true};
    options.context = 1024;
    options.max_sequences = 2;
    options.prefix_cache = prefix_cache;
    options.state_cache_bytes = 1 << 24;  // room for all that six requests leave
    auto opened = Session::open(folder_ / "model", options);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    session_.emplace(std::move(opened).value());
  }

  static Request request(std::vector<Message> messages) {
    return {.messages = std::move(messages),
            .date = "2026-11-28",
            .sampling = {.temperature = 0},
            .max_tokens = 24};
  }

  /// Three turns; a title is asked for between two of them.
  std::vector<Completion> converse() {
    std::vector<Completion> answers;
    std::vector<Message> messages;
    std::vector<TokenId> known;
    for (const char* text : {"First one", "Second one", "Third one"}) {
      messages.push_back({Role::kUser, text});
      const std::vector<TokenId> prompt = session_->encode(request(messages)).value();
      auto answer = session_->generate(request(messages));
      EXPECT_TRUE(answer.ok()) << answer.error().message;
      if (!answer.ok()) break;
      const int64_t computed = answer->end.prompt_tokens - answer->end.cached_tokens;
      const int64_t common = std::ranges::mismatch(prompt, known).in1 - prompt.begin();
      most_in_vain_ = std::max(most_in_vain_, computed - (std::ssize(prompt) - common));
      known = prompt;
      known.insert(known.end(), answer->tokens.begin(), answer->tokens.end());
      messages.push_back({Role::kAssistant, answer->text, answer->reasoning});
      answers.push_back(*std::move(answer));
      EXPECT_TRUE(session_->generate(request({{Role::kUser, "A title, please"}})).ok());
    }
    return answers;
  }

  TempDir folder_;
  std::optional<Session> session_;
  int64_t most_in_vain_ = 0;  // tokens that a turn has computed beyond what is new
};

TEST_P(Conversations, compute_of_a_turn_what_is_new_and_answer_as_without) {
  const std::vector<Completion> answers = converse();
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_LE(most_in_vain_, 24);
  EXPECT_GT(answers[1].end.cached_tokens, 0);
  EXPECT_GT(answers[2].end.cached_tokens, answers[1].end.cached_tokens);
  EXPECT_EQ(session_->scheduler().prefix_counts().evicted_pages, 0);
  EXPECT_EQ(session_->scheduler().prefix_counts().evicted_checkpoints, 0);
  open(false);
  const std::vector<Completion> expected = converse();
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[i].tokens, expected[i].tokens);
    EXPECT_EQ(expected[i].end.cached_tokens, 0);
  }
}

/// Other threads make tokens of messages while one steps.
TEST_P(Conversations, are_prepared_by_several_threads) {
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(request({{Role::kUser, "Question " + std::to_string(i)}}));
  }
  const TextSetup& text = session_->text();
  std::vector<PreparedRequest> prepared(requests.size());
  std::vector<std::jthread> workers;  // which are waited for whatever fails
  ASSERT_TRUE(session_->add(requests[0]).ok());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    workers.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round) {
        prepared[i] = text.prepare(requests[i], text.encode(requests[i]).value()).value();
      }
    });
  }
  while (!session_->idle()) ASSERT_TRUE(session_->step().ok());
  for (std::jthread& worker : workers) worker.join();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(prepared[i].prompt, session_->encode(requests[i]).value());
    EXPECT_TRUE(session_->add(requests[i], std::move(prepared[i])).ok());
  }
  while (!session_->idle()) ASSERT_TRUE(session_->step().ok());
  EXPECT_GT(session_->scheduler().num_cached_tokens(), 0);
}

INSTANTIATE_TEST_SUITE_P(Families, Conversations,
                         ::testing::Values("qwen3", "qwen3.5", "gpt-oss", "llama"),
                         [](const auto& family) {
                           std::string name = family.param;
                           std::erase_if(name, [](char c) { return c == '.' || c == '-'; });
                           return name;
                         });

}  // namespace
}  // namespace subbyte
