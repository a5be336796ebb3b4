#include "completions/job.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "engine/generate.h"
#include "support/jobs_fixture.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using json::Value;

class Jobs : public JobsFixture {};

const std::string kThree =
    "{\"prompt\": \"It was\", \"custom_id\": \"a\", \"seed\": 5}\n"
    "\n"
    "{\"id\": 7, \"prompt\": \"The dog\", \"temperature\": 0, \"n\": 2, \"max_tokens\": 3}\r\n"
    "{\"custom_id\": \"c\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": "
    "{\"model\": \"m\", \"prompt\": [1, 2, 3], \"logprobs\": 2, \"max_tokens\": 4}}";

TEST_F(Jobs, answers_are_those_of_single_runs) {
  write(kThree);
  const JobCounts counts = run();
  EXPECT_EQ(counts.lines, 3);
  EXPECT_EQ(counts.done, 3);
  EXPECT_EQ(counts.failed, 0);
  const auto all = answers();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all.at(1)["custom_id"], "a");
  EXPECT_EQ(all.at(3)["custom_id"], 7);
  EXPECT_EQ(all.at(4)["custom_id"], "c");

  testing::TestContext context(*model_, *backend_, 400);
  GenerateOptions alone = {neutral_sampling(), 12, model_->config().eos_tokens};
  alone.sampling.seed = 5;
  const auto prompt = *tokenizer_->encode("It was", SpecialTokens::kAsText);
  std::vector<TokenId> tokens;
  ASSERT_TRUE(generate(*model_, *backend_, context.sequence(), prompt, alone, [&](TokenId token) {
                tokens.push_back(token);
                return true;
              }).ok());
  const Value& body = all.at(1)["response"]["body"];
  EXPECT_EQ(body["choices"][0]["text"], *tokenizer_->decode(tokens, true));
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "demo");
  EXPECT_EQ(body["seed"], 5);
  EXPECT_EQ(body["usage"]["prompt_tokens"], std::ssize(prompt));
  EXPECT_TRUE(all.at(1)["error"].is_null());
  // Greedy samples are the same.
  const Value& choices = all.at(3)["response"]["body"]["choices"];
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0]["text"], choices[1]["text"]);
  EXPECT_EQ(choices[1]["index"], 1);
  EXPECT_EQ(choices[0]["finish_reason"], "length");
  EXPECT_EQ(all.at(3)["response"]["body"]["usage"]["completion_tokens"], 6);
  const Value& logprobs = all.at(4)["response"]["body"]["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"].size(), 4u);
  EXPECT_EQ(logprobs["top_logprobs"][0].size(), 2u);
  EXPECT_LT(logprobs["token_logprobs"][0].get<double>(), 0);
}

TEST_F(Jobs, lines_without_a_seed_have_different_ones_which_come_back) {
  write("{\"prompt\": \"It was\"}\n{\"prompt\": \"It was\"}\n");
  run();
  const auto all = answers();
  EXPECT_NE(all.at(1)["response"]["body"]["seed"], all.at(2)["response"]["body"]["seed"]);
  EXPECT_NE(all.at(1)["response"]["body"]["choices"], all.at(2)["response"]["body"]["choices"]);
}

TEST_F(Jobs, chats_have_messages_reasons_and_logprobs) {
  write(
      "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, {\"role\": \"user\", "
      "\"content\": [{\"type\": \"text\", \"text\": \"Hello\"}]}], \"logprobs\": true, "
      "\"top_logprobs\": 3, \"ignore_eos\": true, \"max_completion_tokens\": 5}\n");
  EXPECT_EQ(run().failed, 0);
  const Value body = answers().at(1)["response"]["body"];
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  const Value& content = body["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 5u);
  EXPECT_EQ(content[0]["top_logprobs"].size(), 3u);
  EXPECT_TRUE(content[0]["bytes"].is_array());
}

TEST_F(Jobs, a_stop_string_ends_a_sample_and_is_not_in_its_text) {
  write("{\"prompt\": \"It was\", \"temperature\": 0, \"max_tokens\": 60}\n");
  run();
  const std::string text = answers().at(1)["response"]["body"]["choices"][0]["text"].string();
  const std::string stop = text.substr(text.size() / 2, 3);
  fs::remove(results_);
  write("{\"prompt\": \"It was\", \"temperature\": 0, \"max_tokens\": 60, \"stop\": " +
        Value(stop).text() + "}\n");
  run();
  const Value choice = answers().at(1)["response"]["body"]["choices"][0];
  EXPECT_EQ(choice["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST_F(Jobs, a_request_that_cannot_run_is_an_error_of_its_line_and_the_others_go_on) {
  write("{\"prompt\": \"It was\"}\n{\"prompt\": [1, 99999999], \"id\": \"b\"}\n" + [] {
    return "{\"prompt\": " + Value(std::vector<int>(401, 1)).text() + "}\n{\"prompt\": \"A\"}\n";
  }());
  const JobCounts counts = run();
  EXPECT_EQ(counts.done, 4);
  EXPECT_EQ(counts.failed, 2);
  const auto all = answers();
  EXPECT_EQ(all.at(2)["error"]["code"], "model.token_range");
  EXPECT_EQ(all.at(2)["custom_id"], "b");
  EXPECT_TRUE(all.at(2)["response"].is_null());
  EXPECT_EQ(all.at(3)["error"]["code"], "model.context_full");
  const std::string message = all.at(3)["error"]["message"].string();
  EXPECT_NE(message.find("prompts.jsonl:3: "), std::string::npos) << message;
  EXPECT_TRUE(all.at(4)["error"].is_null());
}

TEST_F(Jobs, answers_have_ids_that_a_second_run_has_again) {
  write("{\"prompt\": \"It was\"}\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
  run();
  const auto first = answers();
  for (const int line : {1, 2}) {
    const Value& body = first.at(line)["response"]["body"];
    const std::string digest = first.at(line)["request_sha256"].string();
    EXPECT_EQ(body["id"], (line == 1 ? "cmpl-" : "chatcmpl-") + digest.substr(0, 32));
    EXPECT_EQ(body["created"], 0);
  }
  fs::remove(results_);
  run();
  EXPECT_EQ(answers(), first);
}

/// Greedy, of 12 tokens, with more fields.
std::string greedy_line(const std::string& fields) {
  return "{\"prompt\": \"It was\", \"temperature\": 0, \"logprobs\": 0, " + fields + "}\n";
}

TEST_F(Jobs, biases_and_stop_tokens_decide_which_tokens_come) {
  write(greedy_line("\"n\": 1"));
  run();
  testing::TestContext context(*model_, *backend_, 400);
  const auto prompt = *tokenizer_->encode("It was", SpecialTokens::kAsText);
  GenerateOptions options = {neutral_sampling(), 12, {}};
  options.sampling.temperature = 0;
  std::vector<TokenId> tokens;
  const auto keep = [&](TokenId token) {
    tokens.push_back(token);
    return true;
  };
  ASSERT_TRUE(generate(*model_, *backend_, context.sequence(), prompt, options, keep).ok());
  const std::string third = std::to_string(tokens[2]);
  fs::remove(results_);
  write(greedy_line("\"stop_token_ids\": [" + third + "]") +
        greedy_line("\"stop_token_ids\": [" + third + "], \"min_tokens\": 5") +
        greedy_line("\"logit_bias\": {\"" + third + "\": -100}") +
        greedy_line("\"logit_bias\": {\"" + third + "\": 100}, \"max_tokens\": 4"));
  run();
  const auto all = answers();
  const auto choice = [&](int line) -> const Value& {
    return all.at(line)["response"]["body"]["choices"][0];
  };
  EXPECT_EQ(choice(1)["text"], *tokenizer_->decode(std::span(tokens).first(2), true));
  EXPECT_EQ(choice(1)["finish_reason"], "stop");
  EXPECT_GE(choice(2)["logprobs"]["tokens"].size(), 5u);
  const std::string text = *tokenizer_->decode({&tokens[2], 1}, false);
  for (const Value& token : choice(2)["logprobs"]["tokens"]) EXPECT_NE(token, text);
  for (const Value& token : choice(3)["logprobs"]["tokens"]) EXPECT_NE(token, text);
  EXPECT_EQ(choice(4)["logprobs"]["tokens"], Value(std::vector<std::string>(4, text)));
}

TEST_F(Jobs, penalties_are_those_of_a_run_alone) {
  write(
      "{\"prompt\": \"the the the the\", \"seed\": 3, \"presence_penalty\": 2}\n"
      "{\"prompt\": \"the the the the\", \"seed\": 3, \"frequency_penalty\": 1.5}\n"
      "{\"prompt\": \"the the the the\", \"seed\": 3, \"frequency_penalty\": 0}\n");
  run();
  const auto all = answers();
  const auto prompt = *tokenizer_->encode("the the the the", SpecialTokens::kAsText);
  for (const int line : {1, 2, 3}) {
    GenerateOptions options = {neutral_sampling(), 12, model_->config().eos_tokens};
    options.sampling.seed = 3;
    if (line == 1) options.sampling.presence_penalty = 2;
    if (line == 2) options.sampling.frequency_penalty = 1.5;
    testing::TestContext context(*model_, *backend_, 400);
    std::vector<TokenId> tokens;
    ASSERT_TRUE(
        generate(*model_, *backend_, context.sequence(), prompt, options, [&](TokenId token) {
          tokens.push_back(token);
          return true;
        }).ok());
    EXPECT_EQ(all.at(line)["response"]["body"]["choices"][0]["text"],
              *tokenizer_->decode(tokens, true));
  }
}

TEST_F(Jobs, an_echo_has_the_prompt_and_how_likely_it_was) {
  const std::string text = "It was a dark night and the dog did not come home";
  write("{\"prompt\": \"" + text +
        "\", \"echo\": true, \"logprobs\": 2, \"max_tokens\": 3, "
        "\"temperature\": 0, \"n\": 2}\n"
        "{\"prompt\": \"" +
        text +
        "\", \"echo\": true, \"logprobs\": 2, \"max_tokens\": 0}\n"
        "{\"prompt\": \"" +
        text + "\", \"echo\": true, \"max_tokens\": 0}\n");
  run();
  const auto prompt = *tokenizer_->encode(text, SpecialTokens::kAsText);
  const auto size = std::ssize(prompt);
  testing::TestContext context(*model_, *backend_, 400);
  Logits logits;
  const Part part = {&context.sequence(), prompt, size};
  ASSERT_TRUE(model_->forward(*backend_, {{&part, 1}}, logits).ok());
  const auto all = answers();
  for (const int line : {1, 2}) {
    const Value& body = all.at(line)["response"]["body"];
    for (const Value& choice : body["choices"]) {
      const Value& scores = choice["logprobs"];
      EXPECT_EQ(std::ssize(scores["tokens"]), size + (line == 1 ? 3 : 0));
      EXPECT_TRUE(scores["token_logprobs"][0].is_null());
      EXPECT_TRUE(scores["top_logprobs"][0].is_null());
      for (int64_t i = 1; i < size; ++i) {
        const Logprobs expected = logprobs_of(logits.row(i - 1), prompt[i], 2);
        EXPECT_NEAR(scores["token_logprobs"][i].get<double>(), expected.chosen.logprob, 1e-9);
        EXPECT_EQ(scores["top_logprobs"][i].size(), 2u);
      }
      EXPECT_TRUE(choice["text"].get<std::string>().starts_with(text));
      EXPECT_EQ(choice["text"].get<std::string>().size() > text.size(), line == 1);
      EXPECT_EQ(scores["text_offset"][1], (*tokenizer_->decode({prompt.data(), 1}, false)).size());
    }
    EXPECT_EQ(body["usage"]["completion_tokens"], line == 1 ? 6 : 0);
  }
  EXPECT_EQ(all.at(3)["response"]["body"]["choices"][0]["text"], text);
  EXPECT_TRUE(all.at(3)["response"]["body"]["choices"][0]["logprobs"].is_null());
}

TEST_F(Jobs, goes_on_wherever_it_was_stopped) {
  write(kThree);
  run();
  const std::string whole = written();
  const auto expected = answers();
  const std::size_t known = std::string("{\"line\":1,\"custom_id\":").size();
  for (std::size_t size = 0; size < whole.size(); size += 1 + size / 9) {
    std::ofstream(results_, std::ios::binary) << whole.substr(0, size);
    if (size > 0 && size < known) {  // may be anybody's, and is nobody's loss
      EXPECT_TRUE(refusal(kThree).starts_with("results.foreign"));
      EXPECT_EQ(written(), whole.substr(0, size));
      continue;
    }
    const JobCounts counts = run();
    EXPECT_EQ(counts.skipped, std::ranges::count(whole.substr(0, size), '\n'));
    EXPECT_EQ(counts.done, 3 - counts.skipped);
    EXPECT_EQ(answers(), expected) << size;
  }
  EXPECT_EQ(run().done, 0);
}

TEST_F(Jobs, does_not_go_on_with_results_of_something_else) {
  write(kThree);
  run();
  const std::string before = written();
  EXPECT_TRUE(refusal("{\"prompt\": \"It is\"}\n").starts_with("job.other_results"));
  EXPECT_TRUE(refusal("{\"prompt\": \"It was\", \"custom_id\": \"a\", \"seed\": 5}\n")
                  .starts_with("job.other_results"));  // the others are missing
  const JobRecord identity = identity_;
  identity_["seed"] = "2";
  identity_["file config.json"] = "abd";
  identity_["special"] = "true";
  const std::string refused = refusal(kThree);
  EXPECT_TRUE(refused.starts_with("job.other_results")) << refused;
  EXPECT_NE(refused.find(": the file config.json is another one, seed is \"2\" and was \"1\", "
                         "special is \"true\" and was \"\"; "),
            std::string::npos)
      << refused;
  identity_ = identity;
  EXPECT_EQ(refusal(kThree), "");
  EXPECT_EQ(written(), before);
  for (const char* foreign : {"a text", "{\"line\": 1}\n", "{\"line\":1}\n", "[]\n", "{\"lin\n"}) {
    std::ofstream(results_, std::ios::binary) << foreign;
    EXPECT_NE(refusal(kThree), "") << foreign;
    EXPECT_EQ(written(), foreign);
  }
}

TEST_F(Jobs, one_job_at_a_time_writes_to_a_file) {
  write(kThree);
  const int other = ::open(results_.c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  EXPECT_TRUE(refusal(kThree).starts_with("file.locked"));
  ::close(other);
  EXPECT_EQ(refusal(kThree), "");
  results_ = "/dev/null";
  EXPECT_TRUE(refusal(kThree).starts_with("file.not_regular"));
}

/// Without the line that says what the job was begun with the digests still tell.
TEST_F(Jobs, are_known_by_every_line) {
  write(kThree);
  run();
  const std::string before = written();
  std::string without;
  std::istringstream lines(before);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"job\":{") == std::string::npos) without += line + "\n";
  }
  EXPECT_EQ(std::ranges::count(without, '\n'), 2);
  std::ofstream(results_, std::ios::binary) << without;
  EXPECT_EQ(refusal(kThree), "");
  identity_["seed"] = "2";
  EXPECT_TRUE(refusal(kThree).starts_with("job.other_results"));
}

/// The date of a prompt is that of the beginning, also tomorrow.
TEST_F(Jobs, keep_the_date_of_their_beginning) {
  identity_[kJobDate] = "2026-11-25T23:59:50";
  write(kThree);
  run();
  const std::string first = written().substr(0, written().find('\n') + 1);
  const auto whole = answers();
  std::ofstream(results_, std::ios::binary) << first;
  identity_[kJobDate] = "2026-11-26T00:00:10";
  EXPECT_EQ(run().done, 2);
  EXPECT_EQ(answers(), whole);
}

/// Of a template that comes with a line, too: it counts the seconds in tokens.
TEST_F(Jobs, keep_the_date_of_templates_of_lines) {
  const std::string line =
      R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "chat_template":)"
      R"( "{% for i in range(strftime_now('%S')|int) %}{{ messages[0].content }} {% endfor %}"})"
      "\n";
  write("{\"prompt\": \"A\", \"max_tokens\": 1}\n" + line + line);
  date_ = "2026-11-25T23:59:50";
  run();
  const std::string whole = written();
  const auto expected = answers();
  const auto tokens = expected.at(3)["response"]["body"]["usage"]["prompt_tokens"].get<int64_t>();
  EXPECT_GE(tokens, 50);
  date_ = "2026-11-26T00:00:10";
  std::ofstream(results_, std::ios::binary) << whole.substr(0, whole.find('\n') + 1);
  EXPECT_EQ(run().done, 2);
  EXPECT_EQ(answers(), expected);

  fs::remove(results_);
  write("{\"prompt\": \"A\", \"max_tokens\": 1}\n");
  run();  // has no date
  const std::string refused = refusal("{\"prompt\": \"A\", \"max_tokens\": 1}\n" + line);
  EXPECT_TRUE(refused.starts_with("job.other_results")) << refused;
  EXPECT_NE(refused.find("its template names the day"), std::string::npos) << refused;
}

TEST_F(Jobs, say_that_answers_are_errors_in_later_runs_too) {
  write("{\"prompt\": [99999999]}\n{\"prompt\": \"A\"}\n");
  EXPECT_EQ(run().errors, 1);
  const JobCounts again = run();
  EXPECT_EQ(again.done, 0);
  EXPECT_EQ(again.failed, 0);
  EXPECT_EQ(again.errors, 1);
}

/// What becomes of the file while the job runs, before its last line is written.
TEST_F(Jobs, stop_when_their_results_are_not_theirs_any_more) {
  const std::function<void()> harm[] = {
      [&] { fs::remove(results_); },
      [&] { fs::rename(results_, folder_ / "elsewhere"); },
      [&] { fs::resize_file(results_, 0); },
      [&] { std::ofstream(results_, std::ios::app) << "{}\n"; },
      [&] { fs::remove(results_), std::ofstream(results_) << "another file"; },
  };
  write(kThree);
  for (const auto& act : harm) {
    fs::remove(results_);
    auto job = open();
    ASSERT_TRUE(job.ok()) << job.error().message;
    bool is_harmed = false;
    const Status status = job->run(*session_, [&](const JobCounts& counts) {
      if (counts.done > 0 && !std::exchange(is_harmed, counts.done > 0)) act();
    });
    EXPECT_EQ(status.ok() ? "ok" : status.error().code, "file.changed");
    EXPECT_TRUE(session_->idle());
  }
}

TEST_F(Jobs, that_answer_nothing_leave_no_file) {
  EXPECT_EQ(refusal(kThree), "");  // opened, and not run, as when the model cannot be loaded
  EXPECT_FALSE(fs::exists(results_));
  EXPECT_EQ(refusal(""), "");  // nothing to answer
  EXPECT_TRUE(fs::exists(results_));
}

TEST_F(Jobs, malformed_lines_are_refused_by_number_before_anything_is_computed) {
  const std::string good = "{\"prompt\": \"a\", \"id\": 1}\n";
  const std::pair<const char*, const char*> cases[] = {
      {"{\"prompt\": \"a\"", "json.syntax"},
      {"[]", "json.type"},
      {"{}", "completion.prompt"},
      {"{\"prompt\": \"a\", \"messages\": []}", "completion.prompt"},
      {"{\"prompt\": \"a\", \"promt\": 1}", "completion.field"},
      {"{\"prompt\": \"a\", \"presence_penalty\": 2.5}", "json.range"},
      {"{\"prompt\": \"a\", \"logit_bias\": {\"x\": 1}}", "json.range"},
      {"{\"prompt\": \"a\", \"logit_bias\": {\"1\": 1, \"01\": 1}}", "json.duplicate_key"},
      {"{\"prompt\": \"a\", \"stop_token_ids\": [-1]}", "json.type"},
      {"{\"prompt\": \"a\", \"min_tokens\": 5, \"max_tokens\": 4}", "json.range"},
      {"{\"prompt\": [\"a\", \"b\"]}", "json.type"},
      {"{\"prompt\": \"a\", \"stream\": true}", "completion.field"},
      {"{\"prompt\": \"a\", \"logprobs\": true}", "json.type"},
      {"{\"prompt\": \"a\", \"top_logprobs\": 2}", "completion.field"},
      {"{\"prompt\": \"a\", \"n\": 0}", "json.range"},
      {"{\"prompt\": \"a\", \"temperature\": \"hot\"}", "json.type"},
      {"{\"prompt\": \"a\", \"temperature\": -1}", "json.range"},
      {"{\"prompt\": \"a\", \"max_tokens\": 0}", "json.range"},
      {"{\"prompt\": \"a\", \"seed\": -1}", "json.range"},
      {"{\"prompt\": \"a\", \"stop\": [1]}", "json.type"},
      {"{\"prompt\": \"\"}", "json.type"},
      {"{\"prompt\": [1, -2]}", "json.type"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"echo\": true}",
       "completion.field"},
      {"{\"body\": {\"input\": \"a\"}, \"url\": \"/v1/embeddings\"}", "job.line"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"top_logprobs\": 1}",
       "completion.field"},
      {"{\"body\": {\"prompt\": \"a\"}, \"url\": \"/v1/chat/completions\"}", "job.line"},
      {"{\"body\": {\"prompt\": \"a\"}, \"n\": 2}", "job.line"},
      {"{\"prompt\": \"b\", \"custom_id\": 1}", "job.duplicate_id"},
  };
  for (const auto& [line, code] : cases) {
    const std::string found = refusal(good + line + "\n" + good);
    EXPECT_TRUE(found.starts_with(code)) << line << ": " << found;
    EXPECT_NE(found.find("prompts.jsonl:2: "), std::string::npos) << line << ": " << found;
    EXPECT_FALSE(fs::exists(results_)) << line;
  }
  EXPECT_EQ(refusal("{\"prompt\": \"a\", \"stream\": false, \"user\": \"me\", \"tools\": []}"), "");
  EXPECT_EQ(written(), "");
}

}  // namespace
}  // namespace subbyte
