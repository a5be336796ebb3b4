#include "completions/answer.h"

#include <gtest/gtest.h>

#include "session/sample_text.h"
#include "support/small_tokenizer.h"

namespace subbyte {
namespace {

using json::Value;

class Answers : public ::testing::Test {
 protected:
  /// The choice that comes of tokens, which are text with control tokens.
  Value choice(std::string_view output, StopReason reason = StopReason::kStopToken) {
    SampleText text(request_, *tokenizer_, ChatFormat::kChatMl, prompt_,
                    ToolCallParser(find_call_dialect("json"), request_.tools, "seed"));
    Choice choice(request_, *tokenizer_);
    const auto ids = tokenizer_->encode(output, SpecialTokens::kRecognize);
    for (const TokenId id : *ids) {
      Delta delta;
      if (!text.stopped()) text.push(id, delta);
      choice.take(delta);
    }
    Delta last;
    text.finish(last);
    last.end.emplace().reason = text.stopped() ? StopReason::kStopString : reason;
    choice.take(last);
    return choice.take_json(0, {});
  }
  /// "content (reasoning)"
  std::string message(std::string_view output) {
    const Value found = choice(output)["message"];
    std::string text = found["content"].string();
    if (found.contains("reasoning_content")) {
      text += " (" + found["reasoning_content"].get<std::string>() + ")";
    }
    return text;
  }

  Result<Tokenizer> tokenizer_ = golden_tokenizer("qwen");
  PromptEnd prompt_ = PromptEnd::kOpen;
  Request request_ = [] {
    Request request;
    request.messages = {{Role::kUser, "a"}};
    request.is_whole = true;
    return request;
  }();
};

TEST_F(Answers, have_the_reasoning_beside_the_content) {
  EXPECT_EQ(message("<think>\nhm\n</think>\n\nHello<|im_end|>"), "Hello (hm)");
  EXPECT_EQ(message("Hello<|im_end|>"), "Hello");
  // What Qwen3-Thinking-2507 writes, as its template has opened the reasoning.
  EXPECT_EQ(message("\nhm\n</think>\n\nHello<|im_end|>"), "Hello (hm)");
  EXPECT_EQ(message("hm</think>a</think>b"), "ab (hm)");
  EXPECT_EQ(message("a<think>b</think>c"), "ac (b)");
}

TEST_F(Answers, have_calls_of_tools_where_there_are_tools) {
  const std::string call =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>";
  const std::string output = "<think>\n" + call + "\n</think>\n\nLook.\n" + call + "<|im_end|>";
  Value found = choice(output);
  EXPECT_EQ(found["message"]["content"], "Look.\n" + call);
  EXPECT_FALSE(found["message"].contains("tool_calls"));
  EXPECT_EQ(found["finish_reason"], "stop");

  request_.tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  found = choice(output);
  EXPECT_EQ(found["message"]["content"], "Look.");
  EXPECT_EQ(found["message"]["reasoning_content"], call);
  EXPECT_EQ(found["finish_reason"], "tool_calls");
  Value& calls = found["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0]["id"].get<std::string>().size(), 29u);
  calls[0].erase("id");
  EXPECT_EQ(calls[0], (Value{{"type", "function"},
                             {"function", {{"name", "f"}, {"arguments", "{\"n\": 1}"}}}}));

  EXPECT_EQ(choice("Look. " + call + " Done.")["message"]["content"], "Look.\n\nDone.");
  found = choice(call);
  EXPECT_TRUE(found["message"]["content"].is_null());
  EXPECT_EQ(choice(call, StopReason::kLength)["finish_reason"], "length");
  EXPECT_EQ(choice("<tool_call>{<|im_end|>")["message"]["content"], "<tool_call>{");
  EXPECT_EQ(choice("<tool_call>{<|im_end|>")["finish_reason"], "stop");
}

TEST_F(Answers, have_one_call_where_no_more_are_wanted) {
  request_.tools = {{{"name", "f"}}};
  const std::string call = "<tool_call>{\"name\":\"f\"}</tool_call>";
  const std::string output = "a " + call + " b " + call + call;
  EXPECT_EQ(choice(output)["message"]["tool_calls"].size(), 3u);
  request_.parallel_tool_calls = false;
  const Value found = choice(output);
  EXPECT_EQ(found["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(found["finish_reason"], "tool_calls");
  // Those in reasoning that is known late are none.
  EXPECT_EQ(choice(call + "</think>" + call)["message"]["tool_calls"].size(), 1u);
}

TEST_F(Answers, have_no_calls_that_were_reasoning_and_no_stops_in_calls) {
  request_.tools = {{{"name", "f"}}};
  const std::string call = "<tool_call>{\"name\":\"f\"}</tool_call>";
  const Value found = choice("hm " + call + " hm</think>So.");
  EXPECT_EQ(found["message"]["content"], "So.");
  EXPECT_EQ(found["message"]["reasoning_content"], "hm " + call + " hm");
  EXPECT_FALSE(found["message"].contains("tool_calls"));
  EXPECT_EQ(found["finish_reason"], "stop");
  request_.stops = {"name"};
  EXPECT_EQ(choice("a" + call + "b")["finish_reason"], "tool_calls");
  EXPECT_EQ(choice("a" + call + "name b")["message"]["content"], "a");
  EXPECT_EQ(choice("a <tool_call>{\"name\"")["message"]["content"], "a <tool_call>{\"");
}

/// The choice that comes of pieces.
Value choice_of(const std::vector<Piece>& pieces, const Tokenizer& tokenizer) {
  Request request;
  request.messages = {{Role::kUser, "a"}};
  Choice choice(request, tokenizer);
  Delta delta;
  delta.pieces = pieces;
  choice.take(std::move(delta));
  return choice.take_json(0, {})["message"];
}

TEST_F(Answers, of_harmony_are_what_their_channels_say) {
  const Result<Tokenizer> harmony = golden_tokenizer("o200k");
  SampleText text(
      request_, *harmony, ChatFormat::kHarmony, PromptEnd::kOpen,
      ToolCallParser(find_call_dialect("harmony"), Value(), "seed"));  // without any tools
  const auto ids = harmony->encode(
      "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>"
      "Two.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>"
      "assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"n\": 1}"
      "<|end|><|start|>assistant<|channel|>commentary to=python<|message|>1 + 1<|end|>"
      "<|start|>assistant<|channel|>final<|message|>So.",
      SpecialTokens::kRecognize);
  Delta delta;
  for (const TokenId id : *ids) text.push(id, delta);
  text.finish(delta);
  const Value message = choice_of(delta.pieces, *harmony);
  EXPECT_EQ(message["content"], "I look.\n\nSo.");
  EXPECT_EQ(message["reasoning_content"], "One.\n\nTwo.\n\nto=python\n1 + 1");
  ASSERT_EQ(message["tool_calls"].size(), 1u);
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], "{\"n\": 1}");
}

/// First bytes of Chinese characters look alike as text, and ids beyond the vocabulary have none.
TEST_F(Answers, name_each_alternative_otherwise) {
  TokenizerJson json =
      small_tokenizer({"\xC4\xA0"
                       "a"});
  json["added_tokens"] = TokenizerJson::array({added_token(300, " a")});
  const Result<Tokenizer> bytes = load_tokenizer(json);
  Request request;
  request.num_top_logprobs = 7;
  Choice choice(request, *bytes);
  Delta delta;
  delta.tokens = {0xE4, 256, 301};
  Logprobs one;
  for (const TokenId id : {0xE4, 0xE5, 65, 256, 300, 301, 302}) one.top.push_back({id, -1.0});
  for (const TokenId id : delta.tokens) {
    one.chosen = {id, -1.0};
    delta.logprobs.push_back(one);
  }
  choice.take(std::move(delta));
  const Value found = choice.take_json(0, {})["logprobs"];
  EXPECT_EQ(found["tokens"], (Value{"bytes:\\xe4", " a", "token_id:301"}));
  EXPECT_EQ(found["text_offset"], (Value{0, 1, 3}));
  std::vector<std::string> names;
  for (const auto& [name, logprob] : found["top_logprobs"][0].items()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"bytes:\\xe4", "bytes:\\xe5", "A", " a",
                                             "token_id:300", "token_id:301", "token_id:302"}));
}

TEST_F(Answers, begin_inside_the_reasoning_where_the_prompt_opens_it) {
  prompt_ = PromptEnd::kReasons;
  EXPECT_EQ(message("hm\n</think>\n\nHello"), "Hello (hm)");
  EXPECT_EQ(message("hm and no more"), " (hm and no more)");  // cut
  prompt_ = PromptEnd::kAnswers;
  EXPECT_EQ(message("a</think>b"), "ab");
}

TEST_F(Answers, look_for_stop_strings_after_the_reasoning) {
  request_.stops = {"END"};
  EXPECT_EQ(message("hm ENthe</think>a END b"), "a  (hm ENthe)");
  EXPECT_EQ(message("a END b</think>c"), "a ");
}

TEST_F(Answers, look_for_stop_strings_once_there_are_tokens_enough) {
  request_.messages.clear();
  request_.stops = {"b"};
  EXPECT_EQ(choice("a b c b d")["text"], "a ");
  request_.min_tokens = 2;  // "a", " b"
  EXPECT_EQ(choice("a b c b d")["text"], "a b c ");
  EXPECT_EQ(choice("a b c b d")["finish_reason"], "stop");
}

}  // namespace
}  // namespace subbyte
