// Sessions as programs of others have them, on the demo model, held to each other and to sums over
// their logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "subbyte/session.h"
#include "subbyte/version.h"
#include "support/paths.h"

namespace {

using namespace subbyte;

const std::string& demo_model() {
  static const std::string path = std::string(kTestData) + "/../../demo/model";
  return path;
}

Session open(SessionOptions options = {}) {
  options.device.device = "cpu";
  options.device.batch_invariant = true;
  options.context = 256;
  return Session::open(demo_model(), options).value();
}

Request greedy(std::string prompt, int64_t max_tokens = 8) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  return request;
}

TEST(PublicSession, all_ways_give_the_same_answers) {
  Session session = open();
  const std::vector<Request> requests = {greedy("Mr. Sherlock Holmes"), greedy("The moor was")};
  const auto all = session.generate_all(requests).value();
  ASSERT_EQ(all.size(), 2u);
  std::vector<std::string> texts(2);
  std::vector<RequestId> ids;
  for (const Request& request : requests) ids.push_back(session.add(request).value());
  EXPECT_EQ(session.generate(requests[0]).error().code, "session.busy");
  while (!session.idle()) {
    const auto deltas = session.step().value();
    for (const Delta& delta : deltas) texts[delta.request == ids[0] ? 0 : 1] += delta.text();
  }
  for (std::size_t i = 0; i < 2; ++i) {
    std::string streamed;
    const Completion alone =
        session
            .generate(requests[i],
                      [&](const Delta& delta) { return streamed += delta.text(), true; })
            .value();
    EXPECT_EQ(alone.text, all[i].text);
    EXPECT_EQ(alone.text, streamed);
    EXPECT_EQ(alone.text, texts[i]);
    EXPECT_EQ(std::ssize(alone.tokens), 8);
    EXPECT_EQ(alone.end.reason, StopReason::kLength);
    EXPECT_EQ(session.tokenizer().decode(alone.tokens).value(), alone.text);
  }
}

TEST(PublicSession, greedy_tokens_are_the_largest_logits) {
  Session session = open();
  const Completion answer = session.generate(greedy("Mr. Sherlock Holmes")).value();
  std::vector<TokenId> tokens = session.encode(greedy("Mr. Sherlock Holmes")).value();
  const std::size_t prompt = tokens.size();
  tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
  const auto logits = session.logits(tokens).value();
  const auto vocabulary = static_cast<std::size_t>(session.model().vocab_size);
  ASSERT_EQ(logits.size(), tokens.size() * vocabulary);
  for (std::size_t i = prompt; i < tokens.size(); ++i) {
    const auto row = std::span(logits).subspan((i - 1) * vocabulary, vocabulary);
    EXPECT_EQ(std::ranges::max_element(row) - row.begin(), tokens[i]);
  }
}

TEST(PublicSession, perplexity_is_that_of_its_logits) {
  Session session = open();
  const std::string text = "Mr. Sherlock Holmes, who was usually very late in the mornings";
  const auto tokens = session.tokenizer().encode(text).value();
  const auto logits = session.logits(tokens).value();
  const auto vocabulary = static_cast<std::size_t>(session.model().vocab_size);
  double nats = 0;
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    const auto row = std::span(logits).subspan((i - 1) * vocabulary, vocabulary);
    double sum = 0;
    for (const float logit : row) sum += std::exp(double{logit});
    nats += std::log(sum) - row[tokens[i]];
  }
  const Perplexity found = session.perplexity(tokens).value();
  EXPECT_EQ(found.scored, std::ssize(tokens) - 1);
  EXPECT_NEAR(found.nats, nats, 1e-4 * nats);
  EXPECT_NEAR(found.per_token, std::exp(nats / static_cast<double>(found.scored)), 1e-2);
  EXPECT_EQ(session.perplexity({}).error().code, "perplexity.too_short");
}

TEST(PublicSession, samples_have_log_probabilities_and_own_seeds) {
  Session session = open();
  Request request = greedy("The moor");
  request.num_samples = 3;
  request.sampling.temperature = 1;
  request.num_top_logprobs = 2;
  const auto samples = session.generate_all({&request, 1}).value();
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_NE(samples[0].text, samples[1].text);
  for (const Completion& sample : samples) {
    ASSERT_EQ(sample.logprobs.size(), sample.tokens.size());
    for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
      EXPECT_EQ(sample.logprobs[i].chosen.token, sample.tokens[i]);
      ASSERT_EQ(sample.logprobs[i].top.size(), 2u);
      EXPECT_GE(sample.logprobs[i].top[0].logprob, sample.logprobs[i].chosen.logprob);
    }
  }
  EXPECT_EQ(session.generate(request).error().code, "session.samples");
}

TEST(PublicSession, answers_end_where_the_caller_says) {
  Session session = open();
  int calls = 0;
  const Completion cut =
      session.generate(greedy("Mr. Sherlock"), [&](const Delta&) { return ++calls < 3; }).value();
  EXPECT_EQ(cut.end.reason, StopReason::kCaller);
  EXPECT_EQ(std::ssize(cut.tokens), 3);
  EXPECT_TRUE(session.idle());
  const RequestId id = session.add(greedy("Mr. Sherlock")).value();
  const auto last = session.cancel(id);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].end->reason, StopReason::kCaller);
  Request stopped = greedy("Mr. Sherlock");
  stopped.stops = {"olm"};
  const Completion answer = session.generate(stopped).value();
  EXPECT_EQ(answer.text, " H");
  EXPECT_EQ(answer.end.stop, "olm");
}

TEST(PublicSession, tells_a_template_of_tools_messages_and_variables) {
  const Session session = open();
  Request request;
  request.messages = {
      {Role::kUser, "a"},
      {.json = Json::parse(R"({"role": "tool", "content": "7", "name": "f"})").value()}};
  request.tools = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])").value();
  request.template_variables = Json::parse(R"({"x": [1, 2]})").value();
  request.effort = "max";
  request.date = "2025-08-05";
  request.chat_template =
      "{% for m in messages %}{{ m.role }} {{ m.content }} {{ m.name }};{% endfor %}"
      "{{ tools[0].function.name }} {{ x[1] }} {{ reasoning_effort }} {{ strftime_now('%d') }}";
  const auto tokens = session.encode(request).value();
  EXPECT_EQ(session.tokenizer().decode(tokens).value(), "user a ;tool 7 f;f 2 max 05");
  request.chat_template = "{{ messages[0].content }}";
  EXPECT_EQ(session.encode(request).error().code, "chat.option");
  EXPECT_EQ(Json::parse("{").error().code, "json.syntax");
  EXPECT_EQ(request.template_variables.text(), R"({"x":[1,2]})");
  EXPECT_EQ(Json().text(), "null");
}

TEST(PublicSession, refuses_values_that_no_text_of_json_has) {
  Session session = open();
  const auto code_of = [&](const Request& request) {
    return std::string(session.generate(request).error().code);
  };
  Json deep = 1;
  for (int i = 0; i < 65; ++i) deep = Json::array({std::move(deep)});
  Request tools, variables;
  tools.messages = variables.messages = {{Role::kUser, "a"}};
  tools.tools = deep;
  EXPECT_EQ(code_of(tools), "json.depth");
  variables.template_variables = {{"x", "\xFF"}};
  EXPECT_EQ(code_of(variables), "json.utf8");
  Request message;
  message.messages = {{.json = {{"role", "user"}, {"content", deep}}}};
  EXPECT_EQ(code_of(message), "json.depth");
}

TEST(PublicSession, refuses_what_it_cannot_do) {
  Session session = open();
  Request both = greedy("a");
  both.messages = {{Role::kUser, "b"}};
  EXPECT_EQ(session.add(both).error().code, "session.prompt");
  Request wild = greedy("a");
  wild.sampling.top_p = 2;
  EXPECT_EQ(session.add(wild).error().code, "sampling.range");
  EXPECT_EQ(Session::open("/none").error().code, "model.not_found");
  EXPECT_THROW(Session::open("/none").value(), Exception);
  EXPECT_EQ(Session::open(demo_model(), {.device = {.device = "none"}}).error().code,
            "device.unknown");
}

/// Counts what runs on it.
class CountingThreads : public Executor {
 public:
  int size() const override { return 2; }
  void run(int num_tasks, Task task) override {
    ++runs;
    for (int i = num_tasks - 1; i >= 0; --i) task(i);
  }
  int runs = 0;
};

TEST(PublicSession, runs_on_threads_of_the_caller) {
  const auto threads = std::make_shared<CountingThreads>();
  SessionOptions options;
  options.device.threads = threads;
  Session lent = open(options);
  const int loading = threads->runs;
  const std::string text = lent.generate(greedy("Mr. Sherlock Holmes")).value().text;
  EXPECT_GT(threads->runs, loading);
  EXPECT_EQ(text, open().generate(greedy("Mr. Sherlock Holmes")).value().text);
}

TEST(PublicSession, a_tokenizer_outlives_its_session_alone) {
  SessionOptions options;
  options.device.threads = std::make_shared<CountingThreads>();
  const std::weak_ptr<const Executor> watch = options.device.threads;
  std::optional<Tokenizer> kept = open(std::exchange(options, {})).tokenizer();
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(kept->decode(kept->encode("Holmes").value()).value(), "Holmes");
  StreamDecoder decoder(*kept);
  kept.reset();
  EXPECT_EQ(decoder.push(1), decoder.push(1));  // which keeps what it decodes with
}

TEST(PublicSession, a_loop_over_a_temporary_is_sound) {
  Session session = open();
  ASSERT_TRUE(session.add(greedy("Mr. Sherlock")).ok());
  std::string text;
  while (!session.idle()) {
    for (const Delta& delta : session.step().value()) text += delta.text();
  }
  EXPECT_EQ(text, session.generate(greedy("Mr. Sherlock")).value().text);
}

TEST(PublicSession, moves_and_keeps_two_models_apart) {
  Session first = open();
  Session second = open();
  const std::string text = second.generate(greedy("The moor")).value().text;
  first = std::move(second);
  EXPECT_EQ(first.generate(greedy("The moor")).value().text, text);
  const Tokenizer kept = first.tokenizer();
  first = open();
  EXPECT_EQ(kept.decode(kept.encode("Holmes").value()).value(), "Holmes");
}

TEST(PublicTokenizer, decodes_a_stream_in_whole_characters) {
  const Tokenizer tokenizer = Tokenizer::load(demo_model() + "/tokenizer.json").value();
  const std::string text = "na\xc3\xafve \xe2\x82\xac 5";
  StreamDecoder decoder(tokenizer);
  std::string streamed;
  const auto tokens = tokenizer.encode(text).value();
  for (const TokenId id : tokens) {
    const std::string piece = decoder.push(id);
    EXPECT_TRUE(piece.empty() || (static_cast<uint8_t>(piece[0]) & 0xC0) != 0x80);
    streamed += piece;
  }
  EXPECT_EQ(streamed + decoder.finish(), text);
  EXPECT_EQ(Tokenizer::load("/none").error().code, "file.not_found");
}

TEST(PublicVersion, is_that_of_the_project) {
  EXPECT_EQ(std::count(version().begin(), version().end(), '.'), 2);
  EXPECT_FALSE(commit().empty());
}

}  // namespace
