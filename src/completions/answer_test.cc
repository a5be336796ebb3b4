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
                    ToolCallParser(ToolCallStyle::kJson, request_.chat.tools, "seed"));
    Choice choice(request_, *tokenizer_);
    const auto ids = tokenizer_->encode(output, SpecialTokens::kRecognize);
    for (const TokenId id : *ids) {
      Delta delta;
      if (!text.stopped()) text.push(id, delta);
      choice.take(delta);
    }
    Delta last;
    text.finish(last);
    last.end.emplace().stats.reason = text.stopped() ? StopReason::kStopString : reason;
    choice.take(last);
    return choice.take_json(0, {});
  }
  /// "content (reasoning)"
  std::string message(std::string_view output) {
    const Value found = choice(output)["message"];
    std::string text = found["content"];
    if (found.contains("reasoning_content")) {
      text += " (" + found["reasoning_content"].get<std::string>() + ")";
    }
    return text;
  }

  Result<Tokenizer> tokenizer_ = golden_tokenizer("qwen");
  PromptEnd prompt_ = PromptEnd::kOpen;
  SessionRequest request_ = [] {
    SessionRequest request;
    request.is_chat = true;
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

  request_.chat.tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
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

  found = choice(call);
  EXPECT_TRUE(found["message"]["content"].is_null());
  EXPECT_EQ(choice(call, StopReason::kLength)["finish_reason"], "length");
  EXPECT_EQ(choice("<tool_call>{<|im_end|>")["message"]["content"], "<tool_call>{");
  EXPECT_EQ(choice("<tool_call>{<|im_end|>")["finish_reason"], "stop");
}

TEST_F(Answers, have_one_call_where_no_more_are_wanted) {
  request_.chat.tools = {{{"name", "f"}}};
  const std::string call = "<tool_call>{\"name\":\"f\"}</tool_call>";
  const std::string output = "a " + call + " b " + call + call;
  EXPECT_EQ(choice(output)["message"]["tool_calls"].size(), 3u);
  request_.parallel_tool_calls = false;
  const Value found = choice(output);
  EXPECT_EQ(found["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(found["finish_reason"], "tool_calls");
  // Those that were taken back as reasoning are none.
  EXPECT_EQ(choice(call + "</think>" + call)["message"]["tool_calls"].size(), 1u);
}

TEST_F(Answers, have_no_calls_that_were_reasoning_and_no_stops_in_calls) {
  request_.chat.tools = {{{"name", "f"}}};
  const std::string call = "<tool_call>{\"name\":\"f\"}</tool_call>";
  const Value found = choice("hm " + call + " hm</think>So.");
  EXPECT_EQ(found["message"]["content"], "So.");
  EXPECT_FALSE(found["message"].contains("tool_calls"));
  EXPECT_EQ(found["finish_reason"], "stop");
  request_.stops = {"name"};
  EXPECT_EQ(choice("a" + call + "b")["finish_reason"], "tool_calls");
  EXPECT_EQ(choice("a" + call + "name b")["message"]["content"], "a");
  EXPECT_EQ(choice("a <tool_call>{\"name\"")["message"]["content"], "a <tool_call>{\"");
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
  request_.is_chat = false;
  request_.stops = {"b"};
  EXPECT_EQ(choice("a b c b d")["text"], "a ");
  request_.min_tokens = 2;  // "a", " b"
  EXPECT_EQ(choice("a b c b d")["text"], "a b c ");
  EXPECT_EQ(choice("a b c b d")["finish_reason"], "stop");
}

}  // namespace
}  // namespace subbyte
