#include "session/session.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "engine/generate.h"
#include "support/failing_backend.h"
#include "support/lagging_backend.h"
#include "support/open_session.h"
#include "support/paths.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

const std::string kModel = std::string(SUBBYTE_TEST_DATA) + "/../../demo/model";

/// A machine of its own inside another one.
template <class Outer>
class Owning : public Outer {
 public:
  explicit Owning(std::unique_ptr<Backend> machine)
      : Outer(*machine), machine_(std::move(machine)) {}

 private:
  std::unique_ptr<Backend> machine_;
};

template <class Outer>
Result<std::unique_ptr<Backend>> make(const DeviceOptions& device) {
  SUBBYTE_TRY(std::unique_ptr<Backend> machine, make_backend(device));
  return std::unique_ptr<Backend>(std::make_unique<Owning<Outer>>(std::move(machine)));
}

SessionOptions batch_invariant_options() {
  SessionOptions options;
  options.device = {.device = "cpu", .num_threads = 2, .batch_invariant = true};
  options.context = 300;
  options.max_sequences = 3;
  options.cache_positions = 1024;
  options.cache_type = CacheType::kF32;
  options.step_tokens = 16;
  return options;
}

/// All deltas of one sample.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<Logprobs> logprobs;
  std::vector<Logprobs> prompt_logprobs;
  std::string text;
  std::optional<SampleEnd> end;
};
using Answers = std::map<std::pair<RequestId, int64_t>, Answer>;

void take(const std::vector<Delta>& deltas, Answers& answers) {
  for (const Delta& delta : deltas) {
    ASSERT_FALSE(delta.error.has_value()) << delta.error->message;
    Answer& answer = answers[{delta.request, delta.sample}];
    ASSERT_FALSE(answer.end.has_value()) << "nothing comes after the end";
    std::ranges::copy(delta.tokens, std::back_inserter(answer.tokens));
    std::ranges::copy(delta.logprobs, std::back_inserter(answer.logprobs));
    std::ranges::copy(delta.prompt_logprobs, std::back_inserter(answer.prompt_logprobs));
    answer.text += delta.text();
    answer.end = delta.end;
  }
}

void step(Session& session, Answers& answers) {
  const auto deltas = session.step();
  ASSERT_TRUE(deltas.ok()) << deltas.error().message;
  take(*deltas, answers);
}

Answers run(Session& session) {
  Answers answers;
  while (!session.idle() && !::testing::Test::HasFatalFailure()) step(session, answers);
  return answers;
}

RequestId add(Session& session, const Request& request) {
  const auto id = session.add(request);
  EXPECT_TRUE(id.ok()) << id.error().message;
  return id.ok() ? *id : 0;
}

/// With one step on its way, and with two.
class Sessions : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    SessionOptions options = batch_invariant_options();
    open(options);
  }

  void open(const SessionOptions& options) {
    AutoDevice machines;
    if (GetParam() == 2) machines.make = make<testing::LaggingBackend>;
    auto opened = testing::open_session(kModel, options, machines);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    session_ = std::make_unique<Session>(std::move(opened).value());
  }

  Request request(const std::string& prompt, int64_t max_tokens, uint64_t seed = 0) {
    return {.prompt = prompt,
            .sampling = {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed},
            .max_tokens = max_tokens};
  }

  Answer answer(const Request& request) {
    const RequestId id = add(*session_, request);
    return run(*session_)[{id, 0}];
  }

  /// What generate() makes of a request, by itself.
  std::vector<TokenId> generated(const Request& request) {
    const ReadyModel& ready = session_->ready();
    testing::TestContext context(*ready.model, *ready.backend, session_->context());
    std::vector<TokenId> tokens;
    const GenerateOptions options = {session_->text().sampling.with(request.sampling),
                                     request.max_tokens, session_->text().stop_tokens_of(request)};
    const auto stats = generate(*ready.model, *ready.backend, context.sequence(),
                                *session_->text().encode(request), options, [&](TokenId token) {
                                  tokens.push_back(token);
                                  return true;
                                });
    EXPECT_TRUE(stats.ok()) << stats.error().message;
    return tokens;
  }

  std::string decoded(std::span<const TokenId> tokens) {
    return *session_->text().tokenizer.decode(tokens, /*skip_special=*/true);
  }

  std::unique_ptr<Session> session_;
};

INSTANTIATE_TEST_SUITE_P(StepsOnTheirWay, Sessions, ::testing::Values(1, 2));

TEST_P(Sessions, give_the_tokens_of_generate_and_their_whole_text) {
  const Request wanted = request("It was a dark night", 40, 7);
  const Answer found = answer(wanted);
  EXPECT_EQ(found.tokens, generated(wanted));
  EXPECT_EQ(found.tokens.size(), 40u);
  EXPECT_EQ(found.text, decoded(found.tokens));
  ASSERT_TRUE(found.end.has_value());
  EXPECT_EQ(found.end->reason, StopReason::kLength);
  EXPECT_EQ(found.end->generated_tokens, 40);
  EXPECT_EQ(found.end->prompt_tokens, std::ssize(*session_->text().encode(wanted)));
  EXPECT_GT(found.end->prefill_seconds, 0);
  EXPECT_GT(found.end->decode_seconds, 0);
  EXPECT_EQ(session_->cache().held_bytes(), 0);
}

TEST_P(Sessions, answer_requests_between_each_other_as_alone) {
  Request first = request("The dog that did not bark, and the moor", 30, 1);
  first.num_samples = 2;
  const Request second = request("It was", 25, 9);
  Answers answers;
  const RequestId first_id = add(*session_, first);
  for (int i = 0; i < 8; ++i) step(*session_, answers);
  const RequestId second_id = add(*session_, second);
  while (!session_->idle()) step(*session_, answers);
  EXPECT_EQ((answers[{first_id, 0}].tokens), generated(first));
  EXPECT_EQ((answers[{second_id, 0}].tokens), generated(second));
  ++*first.sampling.seed;
  EXPECT_EQ((answers[{first_id, 1}].tokens), generated(first));
}

TEST_P(Sessions, that_are_cancelled_give_back_their_pages_and_the_rest_of_the_text) {
  Request wanted = request("It was a dark night", 60, 7);
  const std::string whole = answer(wanted).text;
  wanted.stops = {whole.substr(10, 20) + "|"};  // never there, and held back as long as it may be
  const RequestId other = add(*session_, request("The dog", 20, 3));
  const RequestId id = add(*session_, wanted);
  Answers answers;
  while (answers[{id, 0}].tokens.size() < 6) step(*session_, answers);
  const int64_t held = session_->cache().held_bytes();
  const std::vector<Delta> last = session_->cancel(id);
  ASSERT_EQ(last.size(), 1u);
  take(last, answers);
  const Answer& found = answers[{id, 0}];
  EXPECT_EQ(found.end->reason, StopReason::kCaller);
  EXPECT_EQ(found.text, decoded(found.tokens));
  EXPECT_LT(session_->cache().held_bytes(), held);
  EXPECT_TRUE(session_->cancel(id).empty());
  while (!session_->idle()) step(*session_, answers);
  EXPECT_EQ((answers[{other, 0}].tokens), generated(request("The dog", 20, 3)));
  EXPECT_EQ(session_->cache().held_bytes(), 0);
}

TEST_P(Sessions, end_at_a_stop_string_that_is_cut_across_tokens) {
  Request wanted = request("It was a dark night", 40, 7);
  const Answer whole = answer(wanted);
  const std::string before = decoded(std::span(whole.tokens).first(12));
  // The last character of one token and the first one of the next.
  wanted.stops = {"never", whole.text.substr(before.size() - 1, 2)};
  const auto at = whole.text.find(wanted.stops[1]);
  const Answer found = answer(wanted);
  EXPECT_EQ(found.text, whole.text.substr(0, at));
  EXPECT_EQ(found.end->reason, StopReason::kStopString);
  EXPECT_EQ(found.end->stop, wanted.stops[1]);
  EXPECT_FALSE(found.end->stop_token.has_value());
  EXPECT_TRUE(std::ranges::equal(found.tokens, std::span(whole.tokens).first(found.tokens.size())));
  EXPECT_EQ(session_->cache().held_bytes(), 0);
}

TEST_P(Sessions, end_at_a_stop_token_and_say_which) {
  Request wanted = request("It was a dark night", 40, 7);
  const Answer whole = answer(wanted);
  const TokenId stop = whole.tokens[9];
  wanted.stop_token_ids = {stop};
  const Answer found = answer(wanted);
  const auto until = std::ranges::find(whole.tokens, stop);
  EXPECT_TRUE(std::ranges::equal(found.tokens, std::span(whole.tokens.begin(), until)));
  EXPECT_EQ(found.text, decoded(found.tokens));
  EXPECT_EQ(found.end->reason, StopReason::kStopToken);
  EXPECT_EQ(found.end->stop_token, stop);
  EXPECT_EQ(found.end->generated_tokens, std::ssize(found.tokens) + 1);
}

/// A control token never shows up as text: it is found as a token, and is the reason all the same.
TEST_P(Sessions, end_at_a_stop_text_that_is_one_token_and_say_which) {
  Request wanted = request("It was a dark night", 40, 7);
  const auto control = session_->text().tokenizer.find("<|im_end|>");
  ASSERT_TRUE(control.has_value());
  wanted.stops = {"never", "<|im_end|>"};
  wanted.sampling.biases = {{*control, 100.0F}};
  const Answer found = answer(wanted);
  EXPECT_EQ(found.text, "");
  EXPECT_EQ(found.end->reason, StopReason::kStopString);
  EXPECT_EQ(found.end->stop, "<|im_end|>");
  EXPECT_EQ(found.end->stop_token, *control);
}

TEST_P(Sessions, have_the_log_probabilities_of_the_engine) {
  Request wanted = request("It was a dark night", 5, 7);
  wanted.num_top_logprobs = 3;
  wanted.scores_prompt = true;
  const Answer found = answer(wanted);
  std::vector<TokenId> tokens = *session_->text().encode(wanted);
  const std::size_t prompt = tokens.size();
  std::ranges::copy(found.tokens, std::back_inserter(tokens));
  const ReadyModel& ready = session_->ready();
  testing::TestContext context(*ready.model, *ready.backend, 300);
  const std::vector<float> logits = context.forward(tokens);
  const auto vocabulary = static_cast<std::size_t>(ready.config.vocab_size);
  std::vector<Logprobs> scores = found.prompt_logprobs;
  std::ranges::copy(found.logprobs, std::back_inserter(scores));
  ASSERT_EQ(found.prompt_logprobs.size(), prompt - 1);
  ASSERT_EQ(scores.size(), tokens.size() - 1);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const Logprobs expected =
        logprobs_of(std::span(logits).subspan(i * vocabulary, vocabulary), tokens[i + 1], 3);
    EXPECT_EQ(scores[i].chosen.token, tokens[i + 1]);
    EXPECT_EQ(scores[i].chosen.logprob, expected.chosen.logprob);
    ASSERT_EQ(scores[i].top.size(), 3u);
    EXPECT_EQ(scores[i].top[2].token, expected.top[2].token);
  }
}

TEST_P(Sessions, read_a_prompt_alone) {
  Request wanted = request("It was a dark night", 0);
  wanted.num_top_logprobs = 0;
  wanted.scores_prompt = true;
  const Answer found = answer(wanted);
  EXPECT_TRUE(found.tokens.empty());
  EXPECT_TRUE(found.logprobs.empty());
  EXPECT_EQ(found.text, "");
  EXPECT_EQ(std::ssize(found.prompt_logprobs), std::ssize(*session_->text().encode(wanted)) - 1);
  EXPECT_EQ(found.end->reason, StopReason::kLength);
  EXPECT_EQ(found.end->generated_tokens, 0);
}

/// The tokens of a prompt and its answer, and those of `more`.
std::vector<TokenId> next_prompt(const Session& session, const Request& request,
                                 const Answer& answer, const std::string& more) {
  std::vector<TokenId> tokens = *session.text().encode(request);
  std::ranges::copy(answer.tokens, std::back_inserter(tokens));
  std::ranges::copy(*session.text().tokenizer.encode(more, SpecialTokens::kAsText),
                    std::back_inserter(tokens));
  return tokens;
}

int64_t computed(const Answer& answer) {
  return answer.end->prompt_tokens - answer.end->cached_tokens;
}

TEST_P(Sessions, compute_of_a_prompt_what_is_new_and_answer_as_without) {
  Request turn = request("It was a dark night", 12, 5);
  turn.sampling.repetition_penalty = 1.3;  // of the whole conversation
  const Answer first = answer(turn);
  EXPECT_EQ(first.end->cached_tokens, 0);
  const std::vector<TokenId> tokens =
      next_prompt(*session_, turn, first, " And the moor was silent.");
  const int64_t known = std::ssize(*session_->text().encode(turn)) + 11;
  turn.prompt.clear();
  turn.prompt_tokens = tokens;
  const Answer second = answer(turn);
  EXPECT_EQ(second.tokens, generated(turn));
  // The last token of the first answer was not computed.
  EXPECT_EQ(second.end->cached_tokens, known);
  EXPECT_EQ(second.end->prompt_tokens, std::ssize(tokens));

  turn.prompt_tokens.resize(tokens.size() - 2);  // another end of the message
  const Answer third = answer(turn);
  EXPECT_EQ(third.tokens, generated(turn));
  EXPECT_EQ(computed(third), 1);
  turn.cache_salt = "of another";
  EXPECT_EQ(answer(turn).end->cached_tokens, 0);
  EXPECT_EQ(computed(answer(turn)), 1);
}

TEST_P(Sessions, know_of_a_request_that_is_cancelled_what_was_computed) {
  const Request wanted = request("It was a dark night", 40, 5);
  const RequestId id = add(*session_, wanted);
  Answers answers;
  while (answers[{id, 0}].tokens.size() < 3) step(*session_, answers);
  take(session_->cancel(id), answers);
  const Answer again = answer(wanted);
  EXPECT_EQ(again.tokens, generated(wanted));
  EXPECT_EQ(computed(again), 1);
}

TEST_P(Sessions, know_prefixes_beside_other_requests_until_they_are_forgotten) {
  const Request wanted = request("It was a dark night", 12, 5);
  const Request other = request("The dog", 60, 5);
  const Answer first = answer(wanted);
  const RequestId other_id = add(*session_, other);
  const RequestId id = add(*session_, wanted);
  Answers answers = run(*session_);
  EXPECT_EQ((answers[{id, 0}].tokens), first.tokens);
  EXPECT_EQ(computed(answers[{id, 0}]), 1);
  EXPECT_EQ((answers[{other_id, 0}].tokens), generated(other));
  EXPECT_GT(session_->scheduler().prefix_counts().pages, 0);
  session_->forget();
  EXPECT_EQ(session_->scheduler().prefix_counts().pages, 0);
  EXPECT_EQ(answer(wanted).end->cached_tokens, 0);
}

TEST_P(Sessions, know_several_conversations) {
  const std::string beginning = "It was a dark night in December, and ";  // of both
  Request turns[] = {request(beginning + "the moor", 12, 5),
                     request(beginning + "Holmes said", 12, 6)};
  const auto both = [&] {
    const RequestId ids[] = {add(*session_, turns[0]), add(*session_, turns[1])};
    Answers answers = run(*session_);
    return std::array{answers[{ids[0], 0}], answers[{ids[1], 0}]};
  };
  const std::array first = both();  // at the same time
  for (int i = 0; i < 2; ++i) {
    turns[i].prompt_tokens = next_prompt(*session_, turns[i], first[i], " And then");
    turns[i].prompt.clear();
  }
  const std::array second = both();
  const auto more =
      std::ssize(*session_->text().tokenizer.encode(" And then", SpecialTokens::kAsText));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(second[i].tokens, generated(turns[i]));
    EXPECT_EQ(computed(second[i]), more + 1) << i;
  }
  // A third one shares the beginning, and takes it from nobody.
  const Request third = request(beginning + "a dog", 12, 7);
  const Answer shared = answer(third);
  EXPECT_EQ(shared.tokens, generated(third));
  EXPECT_LT(computed(shared), 6);
  for (const Request& turn : turns) EXPECT_EQ(computed(answer(turn)), 1);
}

TEST_P(Sessions, evict_the_prefix_that_was_used_last_the_longest_ago_where_pages_lack) {
  std::vector<Request> wanted;
  for (const char* prompt : {"It was a dark night", "The dog", "Holmes said"}) {
    wanted.push_back(request(prompt, 4, 5));
    answer(wanted.back());
  }
  EXPECT_EQ(computed(answer(wanted[0])), 1);
  // Three of eight pages are known, and two requests for six preempt nobody.
  Request large = request("She opened", 290, 5);
  large.ignore_eos = true;
  Request other = large;
  other.prompt = "Watson went";
  const RequestId ids[] = {add(*session_, large), add(*session_, other)};
  Answers answers = run(*session_);
  EXPECT_EQ(session_->scheduler().num_preemptions(), 0);
  EXPECT_EQ((answers[{ids[0], 0}].tokens), generated(large));
  EXPECT_EQ((answers[{ids[1], 0}].tokens), generated(other));
  EXPECT_EQ(computed(answer(wanted[0])), 1);
  EXPECT_GT(computed(answer(wanted[1])), 1);
}

TEST_P(Sessions, share_a_cache_that_is_too_small_for_two_requests) {
  SessionOptions options = batch_invariant_options();
  options.cache_positions = 384;  // three pages
  for (const bool prefix_cache : {true, false}) {
    options.prefix_cache = prefix_cache;
    open(options);
    Request wanted = request("It was a dark night", 200, 5);
    wanted.ignore_eos = true;
    Request other = request("The dog", 200, 5);
    other.ignore_eos = true;
    const RequestId other_id = add(*session_, other);
    const RequestId id = add(*session_, wanted);
    Answers answers = run(*session_);
    EXPECT_GT(session_->scheduler().num_preemptions(), 0);
    EXPECT_EQ((answers[{id, 0}].tokens), generated(wanted));
    EXPECT_EQ((answers[{other_id, 0}].tokens), generated(other));
    EXPECT_EQ(session_->scheduler().prefix_counts().pages > 0, prefix_cache);
    EXPECT_EQ(answer(other).end->cached_tokens > 0, prefix_cache);
  }
}

TEST_P(Sessions, refuse_requests_by_code) {
  EXPECT_EQ(session_->add(request("", 4)).error().code, "generate.empty_prompt");
  Request wrong = request("It was", 4);
  wrong.num_samples = 0;
  EXPECT_EQ(session_->add(wrong).error().code, "scheduler.request");
  wrong = request("It was", 4);
  wrong.prompt_tokens = {7};
  EXPECT_EQ(session_->add(wrong).error().code, "session.prompt");
  wrong.prompt.clear();
  wrong.prompt_tokens = {1'000'000};
  EXPECT_EQ(session_->add(wrong).error().code, "model.token_range");
  wrong.prompt_tokens.assign(301, 1);
  EXPECT_EQ(session_->add(wrong).error().code, "model.context_full");
  EXPECT_TRUE(session_->idle());
  EXPECT_EQ(session_->step()->size(), 0u);
}

TEST(SessionSteps, that_the_machine_fails_can_be_tried_again) {
  SessionOptions options = batch_invariant_options();
  auto session = testing::open_session(kModel, options, {.make = make<testing::FailingBackend>});
  Request request;
  request.prompt = "It was a dark night";
  request.max_tokens = 12;
  const RequestId first = add(*session, request);
  const auto expected = run(*session)[{first, 0}].tokens;
  const RequestId id = add(*session, request);
  Answers answers;
  dynamic_cast<testing::FailingBackend&>(*session->ready().backend).fail_after(4);
  for (int i = 0; i < 4; ++i) step(*session, answers);
  EXPECT_EQ(session->step().error().code, "memory");
  while (!session->idle()) step(*session, answers);
  EXPECT_EQ((answers[{id, 0}].tokens), expected);
}

}  // namespace
}  // namespace subbyte
