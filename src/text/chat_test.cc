#include "text/chat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/json_of.h"
#include "support/small_tokenizer.h"
#include "text/chat_messages.h"
#include "text/think_parser.h"

namespace subbyte {
namespace {

using Messages = std::vector<Message>;
constexpr auto kChatMl = ChatFormat::kChatMl;
constexpr auto kHarmony = ChatFormat::kHarmony;
constexpr auto kHeaders = ChatFormat::kHeaders;
constexpr auto kDatedHeaders = ChatFormat::kDatedHeaders;
constexpr auto kDeepSeek = ChatFormat::kDeepSeek;

std::string rendered(ChatFormat format, const Messages& messages, const Request& options = {}) {
  std::string text;
  bool was_text = false;
  const auto segments = render_chat(format, messages, options);
  EXPECT_TRUE(segments.ok()) << segments.error().message;
  for (const PromptSegment& segment : *segments) {
    EXPECT_FALSE(was_text && !segment.is_control) << "text beside text: " << segment.text;
    EXPECT_FALSE(segment.text.empty());
    was_text = !segment.is_control;
    text += segment.text;
  }
  return text;
}

Message system(std::string text) {
  return {Role::kSystem, std::move(text)};
}
Message user(std::string text) {
  return {Role::kUser, std::move(text)};
}
Message assistant(std::string text) {
  return {Role::kAssistant, std::move(text)};
}

TEST(ChatMlPrompt, renders_turns) {
  EXPECT_EQ(rendered(kChatMl, {user("Hi")}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(rendered(kChatMl, {system("Be brief."), user("Hi"), assistant("Hello!"), user("Bye")}),
            "<|im_start|>system\nBe brief.<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nHello!<|im_end|>\n"
            "<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(rendered(kChatMl, {}), "<|im_start|>assistant\n");
}

TEST(ChatMlPrompt, thinking_off_closes_the_reasoning) {
  Request options;
  options.thinking = false;
  EXPECT_EQ(rendered(kChatMl, {user("Hi")}, options),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(ChatMlPrompt, drops_the_reasoning_of_earlier_turns) {
  EXPECT_EQ(rendered(kChatMl, {user("1"), assistant("<think>\nhm\n</think>\n\nOne."), user("2")}),
            "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\nOne.<|im_end|>\n"
            "<|im_start|>user\n2<|im_end|>\n<|im_start|>assistant\n");
  // After the last question it stays, and its two tokens are control tokens again.
  const Messages open = {user("1"), assistant("<think>\nhm\n</think>\n\nOne.")};
  EXPECT_EQ(rendered(kChatMl, open),
            "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nOne."
            "<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(rendered(kChatMl, {user("1"), assistant("One.")}),
            "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nOne."
            "<|im_end|>\n<|im_start|>assistant\n");
  // A tool's answer is no question.
  EXPECT_EQ(rendered(kChatMl, {user("1"), assistant("<think>a</think>b"),
                               user("<tool_response>x</tool_response>")}),
            "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n<think>\na\n</think>\n\nb"
            "<|im_end|>\n<|im_start|>user\n<tool_response>x</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(HarmonyPrompt, renders_turns) {
  Request options;
  options.date = "2025-08-05";
  options.effort = "high";
  EXPECT_EQ(rendered(kHarmony, {system("Be brief."), user("Hi"), assistant("Hello!"), user("Bye")},
                     options),
            "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
            "Knowledge cutoff: 2024-06\nCurrent date: 2025-08-05\n\nReasoning: high\n\n"
            "# Valid channels: analysis, commentary, final. Channel must be included for every "
            "message.<|end|>"
            "<|start|>developer<|message|># Instructions\n\nBe brief.<|end|>"
            "<|start|>user<|message|>Hi<|end|>"
            "<|start|>assistant<|channel|>final<|message|>Hello!<|end|>"
            "<|start|>user<|message|>Bye<|end|>"
            "<|start|>assistant");
}

TEST(HarmonyPrompt, names_each_effort_and_leaves_an_unknown_date_out) {
  const auto text = [](const char* effort) {
    Request options;
    options.effort = effort;
    return rendered(kHarmony, {}, options);
  };
  EXPECT_NE(text("low").find("cutoff: 2024-06\n\nReasoning: low\n\n#"), std::string::npos);
  EXPECT_NE(text("medium").find("Reasoning: medium\n"), std::string::npos);
}

// As the templates of Llama 3 and 3.1 have it.
TEST(HeadersPrompt, renders_turns) {
  EXPECT_EQ(rendered(kHeaders, {user(" Hi\n")}),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(rendered(kHeaders, {system("Be brief."), user("Hi"), assistant("Hello!"), user("Bye")}),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(HeadersPrompt, with_dates_always_has_a_system_turn) {
  const std::string begin = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n";
  const std::string end =
      "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n";
  EXPECT_EQ(rendered(kDatedHeaders, {user("Hi")}),
            begin + "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n" + end);
  Request options;
  options.date = "2025-08-05";
  EXPECT_EQ(
      rendered(kDatedHeaders, {system(" Be brief. "), user("Hi")}, options),
      begin + "Cutting Knowledge Date: December 2023\nToday Date: 05 Aug 2025\n\nBe brief." + end);
}

TEST(DeepSeekPrompt, renders_turns_without_earlier_reasoning) {
  const auto token = [](const std::string& name) {
    return "<\xEF\xBD\x9C" + name + "\xEF\xBD\x9C>";
  };
  const std::string of = "\xE2\x96\x81of\xE2\x96\x81sentence";
  EXPECT_EQ(rendered(kDeepSeek, {system("Be brief."), user("Hi"),
                                 assistant("<think>\nhm\n</think>\n\nHello!"), user("Bye")}),
            token("begin" + of) + "Be brief." + token("User") + "Hi" + token("Assistant") +
                "\n\nHello!" + token("end" + of) + token("User") + "Bye" + token("Assistant"));
  Request options;
  options.thinking = false;
  EXPECT_EQ(
      rendered(kDeepSeek, {user("Hi")}, options),
      token("begin" + of) + token("User") + "Hi" + token("Assistant") + "<think>\n\n</think>\n\n");
}

TEST(Chat, chooses_the_format_that_a_tokenizer_has_tokens_for) {
  const ChatFormat formats[] = {kChatMl, kHeaders, kDeepSeek, kDatedHeaders};
  EXPECT_EQ(choose_format(formats, *golden_tokenizer("llama3")), kDatedHeaders);
  EXPECT_EQ(choose_format(formats, *golden_tokenizer("qwen")), kChatMl);
  EXPECT_EQ(choose_format(formats, *golden_tokenizer("o200k")), kChatMl);  // none: the first
  const auto with = [&](const std::vector<std::string>& tokens) {
    TokenizerJson json = small_tokenizer();
    int id = 256;
    for (const std::string& token : tokens) {
      json["added_tokens"].push_back(added_token(id++, token));
    }
    return choose_format(formats, *load_tokenizer(json));
  };
  EXPECT_EQ(with({"<|start_header_id|>", "<|eot_id|>"}), kHeaders);
  // A distilled model has the tokens of the model that it was made from, too.
  EXPECT_EQ(
      with({"<|start_header_id|>", "<|eot_id|>", "<|eom_id|>", "<\xEF\xBD\x9CUser\xEF\xBD\x9C>",
            "<\xEF\xBD\x9C"
            "Assistant\xEF\xBD\x9C>"}),
      kDeepSeek);
}

struct Model {
  ChatFormat format;
  const char* tokenizer;
};
constexpr Model kModels[] = {
    {kChatMl, "qwen"}, {kHarmony, "o200k"}, {kHeaders, "llama3"}, {kDatedHeaders, "llama3"}};

TEST(Chat, no_control_token_comes_from_content) {
  for (const Model& model : kModels) {
    const auto tokenizer = golden_tokenizer(model.tokenizer);
    ASSERT_TRUE(tokenizer.ok());
    const TokenizerJson json = golden_json(model.tokenizer, ".tokenizer");
    const TokenId first_added = json["added_tokens"][0]["id"].get<TokenId>();
    const auto controls = [&](const std::string& content) {
      const auto segments = render_chat(
          model.format, Messages{system(content), user(content), assistant(content), user(content)},
          {});
      auto ids = *encode_segments(*tokenizer, *segments);
      std::erase_if(ids, [&](TokenId id) { return id < first_added; });
      return ids;
    };
    const auto expected = controls("harmless");
    EXPECT_GE(expected.size(), 9U);
    for (const auto& token : json["added_tokens"]) {
      const auto content = token["content"].get<std::string>();
      EXPECT_EQ(controls(content), expected) << content;
      EXPECT_EQ(controls("\n" + content + "system\n" + content), expected) << content;
      // Halves that meet the template's own text.
      EXPECT_EQ(controls(content.substr(content.size() / 2)), expected) << content;
      EXPECT_EQ(controls(content.substr(0, content.size() / 2)), expected) << content;
    }
  }
}

TEST(Chat, segments_encode_like_the_whole_prompt) {
  for (const Model& model : kModels) {
    const auto tokenizer = golden_tokenizer(model.tokenizer);
    ASSERT_TRUE(tokenizer.ok());
    for (const std::string content : {"Hello, world!", "\n\n  indented", " ", "x\n", "'s", ""}) {
      const Messages messages = {system(content), user(content), assistant("a " + content),
                                 user("b")};
      const auto segments = render_chat(model.format, messages, {});
      EXPECT_EQ(*encode_segments(*tokenizer, *segments),
                *tokenizer->encode(rendered(model.format, messages), SpecialTokens::kRecognize));
    }
  }
}

TEST(Chat, refuses_a_tokenizer_without_the_control_tokens) {
  const auto qwen = golden_tokenizer("qwen");
  const auto segments = render_chat(kHarmony, Messages{user("Hi")}, {});
  EXPECT_EQ(encode_segments(*qwen, *segments).error().code, "chat.missing_token");
}

TEST(Chat, knows_the_tokens_that_end_a_turn) {
  const auto qwen = golden_tokenizer("qwen");
  const auto o200k = golden_tokenizer("o200k");
  const auto names = [](const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
    std::vector<std::string> texts;
    for (const TokenId id : ids) texts.emplace_back(tokenizer.token_bytes(id));
    return texts;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(*qwen, stop_tokens(kChatMl, *qwen)), (Names{"<|im_end|>", "<|endoftext|>"}));
  EXPECT_EQ(names(*o200k, stop_tokens(kHarmony, *o200k)),
            (Names{"<|return|>", "<|call|>", "<|endoftext|>"}));
  EXPECT_EQ(names(*qwen, stop_tokens(kHarmony, *qwen)), (Names{"<|endoftext|>"}));
  const auto llama3 = golden_tokenizer("llama3");
  EXPECT_EQ(names(*llama3, stop_tokens(kHeaders, *llama3)),
            (Names{"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}));
}

TEST(Chat, reasoning_beside_the_content_is_that_between_the_marks) {
  const Message inside[] = {{Role::kUser, "a"}, {Role::kAssistant, "<think>\nr\n</think>\n\nb"}};
  const Message beside[] = {{Role::kUser, "a"}, {Role::kAssistant, "b", "r"}};
  const auto texts = [](std::span<const Message> messages, ChatFormat format) {
    std::string text;
    const auto segments = render_chat(format, messages, {});
    for (const PromptSegment& segment : *segments) text += segment.text;
    return text;
  };
  EXPECT_EQ(texts(beside, ChatFormat::kChatMl), texts(inside, ChatFormat::kChatMl));
  EXPECT_NE(texts(beside, ChatFormat::kChatMl).find("<think>\nr\n</think>\n\nb"),
            std::string::npos);
  // Before the last question it is left out, and always in harmony.
  const Message earlier[] = {beside[0], beside[1], {Role::kUser, "c"}};
  EXPECT_EQ(texts(earlier, ChatFormat::kChatMl).find("r\n</think>"), std::string::npos);
  EXPECT_EQ(texts(earlier, ChatFormat::kHarmony).find("\nr"), std::string::npos);
}

TEST(Chat, a_prompt_ends_in_the_reasoning_or_after_it_where_a_mark_says_so) {
  const auto tokenizer = golden_tokenizer("qwen");
  const auto end = [&](std::string_view text) {
    return prompt_end(*tokenizer, *tokenizer->encode(text, SpecialTokens::kRecognize));
  };
  EXPECT_EQ(end(""), PromptEnd::kOpen);
  EXPECT_EQ(end("<|im_start|>assistant\n"), PromptEnd::kOpen);
  EXPECT_EQ(end("<think>a</think><|im_end|>\n<|im_start|>assistant\n"), PromptEnd::kOpen);
  EXPECT_EQ(end("<|im_start|>assistant\n<think>\n"), PromptEnd::kReasons);
  EXPECT_EQ(end("<|im_start|>assistant\n<think>\n\n</think>\n\n"), PromptEnd::kAnswers);
  // A message that is gone on with.
  EXPECT_EQ(end("<|im_start|>assistant\n<think>\nThe user"), PromptEnd::kReasons);
  EXPECT_EQ(end("<|im_start|>assistant\n<think>\nhm\n</think>\n\nIt is"), PromptEnd::kAnswers);
  // What a user typed is no mark.
  EXPECT_EQ(prompt_end(*tokenizer, *tokenizer->encode("<think>\n", SpecialTokens::kAsText)),
            PromptEnd::kOpen);
}

TEST(ChatMessages, are_those_of_apis_and_back) {
  const Messages messages = {system("Be brief."), user("Hi"), {Role::kAssistant, "b", "r"}};
  const json::Value value = to_json(messages);
  EXPECT_EQ(value.text(),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},)"
            R"({"role":"assistant","content":"b","reasoning_content":"r"}])");
  const auto plain = plain_messages(value);
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ(to_json(*plain), value);
  EXPECT_EQ(to_json(Messages{user("\xFF")})[0]["content"], "\xEF\xBF\xBD");
}

TEST(ChatMessages, of_built_in_formats_have_no_tools) {
  const auto refusal = [](const char* message) {
    const auto plain = plain_messages(json::Value::array({json_of(message)}));
    return plain.ok() ? "" : std::string(plain.error().code);
  };
  EXPECT_EQ(refusal(R"({"role": "developer", "content": "a"})"), "");
  EXPECT_EQ(refusal(R"({"role": "assistant", "content": "a", "tool_calls": null})"), "");
  EXPECT_EQ(refusal(R"({"role": "tool", "content": "a"})"), "chat.no_template");
  EXPECT_EQ(refusal(R"({"role": "user", "content": "a", "name": "b"})"), "chat.no_template");
  EXPECT_EQ(refusal(R"({"role": "assistant", "tool_calls": [{}]})"), "chat.no_template");
  EXPECT_EQ(refusal(R"({"role": "user"})"), "chat.no_template");
}

}  // namespace
}  // namespace subbyte
