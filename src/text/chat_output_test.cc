#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/random.h"
#include "support/small_tokenizer.h"
#include "text/harmony_parser.h"
#include "text/think_parser.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

/// Pieces as one line: "analysis:hm|final:Hello". Pieces of one message are joined.
std::string shown(const std::vector<Piece>& pieces) {
  constexpr const char* kNames[] = {"analysis", "commentary", "final"};
  std::string text;
  for (const Piece& piece : pieces) {
    EXPECT_FALSE(piece.text.empty());
    EXPECT_EQ(utf8::replace_invalid(piece.text), piece.text);
    if (piece.begins_message) {
      if (!text.empty()) text += '|';
      text += kNames[static_cast<std::size_t>(piece.channel)];
      if (!piece.recipient.empty()) text += "(" + piece.recipient + ")";
      text += ':';
    }
    text += piece.text;
  }
  return text;
}

template <typename Parser>
std::string run(Parser& parser, const std::vector<TokenId>& ids) {
  std::vector<Piece> pieces;
  for (const TokenId id : ids) {
    for (Piece& piece : parser.push(id)) pieces.push_back(std::move(piece));
  }
  for (Piece& piece : parser.finish()) pieces.push_back(std::move(piece));
  return shown(pieces);
}

class HarmonyOutput : public ::testing::Test {
 protected:
  std::string parse(std::string_view output) {
    HarmonyParser parser(*tokenizer_);
    return run(parser, *tokenizer_->encode(output, SpecialTokens::kRecognize));
  }

  Result<Tokenizer> tokenizer_ = golden_tokenizer("o200k");
};

TEST_F(HarmonyOutput, separates_reasoning_and_answer) {
  EXPECT_EQ(parse("<|channel|>analysis<|message|>User says hi.<|end|><|start|>assistant<|channel|>"
                  "final<|message|>Hello!<|return|>"),
            "analysis:User says hi.|final:Hello!");
  EXPECT_EQ(parse("<|channel|>final<|message|>a\nb to=c<|return|>"), "final:a\nb to=c");
  EXPECT_EQ(parse("<|channel|>analysis<|message|>cut o"), "analysis:cut o");
  EXPECT_EQ(parse(""), "");
}

TEST_F(HarmonyOutput, understands_tool_calls_in_both_orders) {
  EXPECT_EQ(parse("<|channel|>commentary to=functions.get <|constrain|>json<|message|>{}<|call|>"),
            "commentary(functions.get):{}");
  EXPECT_EQ(parse(" to=functions.get<|channel|>commentary json<|message|>{\"a\":1}<|call|>"),
            "commentary(functions.get):{\"a\":1}");
  EXPECT_EQ(parse("<|channel|>analysis to=python<|message|>x<|call|>"), "analysis(python):x");
  EXPECT_EQ(parse("<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant "
                  "to=functions.get<|channel|>commentary<|message|>{}<|call|>"),
            "commentary:I will look.|commentary(functions.get):{}");
  EXPECT_EQ(parse("<|channel|>final to=user<|message|>x<|return|>"), "final:x");
  EXPECT_EQ(parse(" to=functions.get<|message|>{}<|call|>"), "commentary(functions.get):{}");
}

TEST_F(HarmonyOutput, survives_broken_output) {
  // No header at all, and words that look like one.
  EXPECT_EQ(parse("Hello there<|return|>"), "final:Hello there");
  EXPECT_EQ(parse("final answer: 5<|return|>"), "final:final answer: 5");
  EXPECT_EQ(parse("assistants help<|return|>"), "final:assistants help");
  EXPECT_EQ(parse("<|message|>Hi<|return|>"), "final:Hi");
  EXPECT_EQ(parse("<|start|>assistant<|message|>Hi<|return|>"), "final:Hi");
  // No <|message|>.
  EXPECT_EQ(parse("<|channel|>final Hello<|return|>"), "final:Hello");
  EXPECT_EQ(parse("<|channel|>analysis\nlong\nthoughts<|end|>"), "analysis:\nlong\nthoughts");
  EXPECT_EQ(parse("<|channel|>final " + std::string(300, 'x')), "final:" + std::string(300, 'x'));
  // No <|end|>, no <|start|>, no role.
  EXPECT_EQ(parse("<|channel|>analysis<|message|>a<|channel|>final<|message|>b<|return|>"),
            "analysis:a|final:b");
  EXPECT_EQ(parse("<|channel|>analysis<|message|>a<|end|>assistant<|channel|>final<|message|>b"),
            "analysis:a|final:b");
  EXPECT_EQ(parse("<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b"),
            "analysis:a|final:b");
  EXPECT_EQ(parse("<|channel|>analysis<|message|>a<|end|>b"), "analysis:a|final:b");
  // Odd names, doubled and useless tokens.
  EXPECT_EQ(parse("<|channel|>analyze<|message|>a<|end|>"), "analysis:a");
  EXPECT_EQ(parse("<|channel|>comment<|message|>a<|end|>"), "commentary:a");
  EXPECT_EQ(parse("<|channel|><|message|>a<|end|>"), "final:a");
  EXPECT_EQ(parse("<|channel|><|channel|>analysis<|message|><|message|>a<|constrain|>b"),
            "analysis:ab");
  EXPECT_EQ(parse("<|end|><|end|><|start|><|start|>assistant<|return|><|message|>"), "");
  EXPECT_EQ(parse("<|start|>assistant<|channel|>analysis<|return|>"), "");
  EXPECT_EQ(parse("<|channel|>commentary to=functions.x<|return|>"), "");
}

TEST_F(HarmonyOutput, gives_text_out_as_soon_as_the_message_begins) {
  HarmonyParser parser(*tokenizer_);
  const std::vector<TokenId> header =
      *tokenizer_->encode("<|channel|>final<|message|>", SpecialTokens::kRecognize);
  for (const TokenId id : header) {
    EXPECT_TRUE(parser.push(id).empty());
  }
  EXPECT_EQ(shown(parser.push(*tokenizer_->find("H"))), "final:H");
  const auto next = parser.push(*tokenizer_->find("i"));
  ASSERT_EQ(next.size(), 1U);
  EXPECT_FALSE(next[0].begins_message);
}

TEST_F(HarmonyOutput, replaces_a_character_that_a_control_token_cuts_off) {
  HarmonyParser parser(*tokenizer_);
  std::vector<TokenId> ids =
      *tokenizer_->encode("<|channel|>final<|message|>", SpecialTokens::kRecognize);
  // The bytes F0 and 9F, which the alphabet spells U+00F0 and U+0141.
  for (const char* token : {"\xC3\xB0", "\xC5\x81"}) ids.push_back(*tokenizer_->find(token));
  ids.push_back(*tokenizer_->find("<|return|>"));
  EXPECT_EQ(run(parser, ids), "final:\xEF\xBF\xBD");
}

TEST_F(HarmonyOutput, takes_any_sequence_of_tokens) {
  Random random(5);
  const std::vector<std::string> tokens = {
      "<|start|>",  "<|channel|>", "<|message|>", "<|end|>",      "<|constrain|>",
      "<|return|>", "assistant",   "analysis",    "final",        " to=x",
      "hello",      "\n",          "to=",         "<|endoftext|>"};
  for (int i = 0; i < 3000; ++i) {
    std::string output;
    for (uint64_t n = random.below(20); n > 0; --n) output += tokens[random.below(tokens.size())];
    EXPECT_EQ(parse(output).find("<|"), std::string::npos) << output;
  }
}

class ThinkOutput : public ::testing::Test {
 protected:
  std::string parse(std::string_view output, PromptEnd prompt = PromptEnd::kOpen,
                    bool may_end_late = true) {
    ThinkParser parser(*tokenizer_, prompt, may_end_late);
    return run(parser, *tokenizer_->encode(output, SpecialTokens::kRecognize));
  }
  /// After each token: '?' undecided, 'x' reasoning that has ended late.
  std::string states(std::string_view output, PromptEnd prompt = PromptEnd::kOpen,
                     bool may_end_late = true) {
    ThinkParser parser(*tokenizer_, prompt, may_end_late);
    std::string marks;
    const auto ids = tokenizer_->encode(output, SpecialTokens::kRecognize);
    for (const TokenId id : *ids) {
      static_cast<void>(parser.push(id));
      marks += parser.has_ended_late() ? 'x' : parser.is_undecided() ? '?' : '.';
    }
    return marks;
  }

  Result<Tokenizer> tokenizer_ = golden_tokenizer("qwen");
};

TEST_F(ThinkOutput, separates_reasoning_and_answer) {
  EXPECT_EQ(parse("<think>\nhm\n\nso\n</think>\n\nHello!\n<|im_end|>"),
            "analysis:hm\n\nso|final:Hello!\n");
  EXPECT_EQ(parse("Hello!<|im_end|>"), "final:Hello!");
  EXPECT_EQ(parse("\nHello"), "final:\nHello");
  EXPECT_EQ(parse("<think>\n\n</think>\n\nHello"), "final:Hello");
  EXPECT_EQ(parse("<think>\ncut off\n"), "analysis:cut off");
  EXPECT_EQ(parse("hm\n</think>\n\nHello", PromptEnd::kReasons), "analysis:hm|final:Hello");
  EXPECT_EQ(parse(""), "");
}

TEST_F(ThinkOutput, may_have_ended_without_a_beginning) {
  EXPECT_EQ(states("a</think>b"), "?x.");
  EXPECT_EQ(states("</think>b"), "x.");
  EXPECT_EQ(states("a</think>b</think>c"), "?x...");
  EXPECT_EQ(states("<think>a</think>b</think>c"), "......");
  EXPECT_EQ(states("a<think>b</think>c"), "?....");
  EXPECT_EQ(states("a</think>b", PromptEnd::kReasons), "...");
  EXPECT_EQ(states("a</think>b", PromptEnd::kAnswers), "...");
  EXPECT_EQ(states("a</think>b", PromptEnd::kOpen, false), "?..");
  EXPECT_EQ(parse("a\n</think>\n\nb", PromptEnd::kOpen, false), "final:a\n</think>\n\nb");
}

TEST_F(ThinkOutput, survives_broken_output) {
  EXPECT_EQ(parse("a</think>b"), "final:a|final:b");
  EXPECT_EQ(parse("<think>a<think>b</think>c"), "analysis:a|analysis:b|final:c");
  EXPECT_EQ(parse("a<think>b</think>c<think>d"), "final:a|analysis:b|final:c|analysis:d");
  EXPECT_EQ(parse("</think></think>"), "");
}

TEST_F(ThinkOutput, keeps_tool_calls_and_text_that_only_looks_like_the_tokens) {
  EXPECT_EQ(parse("<tool_call>\n{}\n</tool_call><|im_end|>"),
            "final:<tool_call>\n{}\n</tool_call>");
  ThinkParser parser(*tokenizer_, PromptEnd::kOpen, true);
  EXPECT_EQ(run(parser, *tokenizer_->encode("<think>x", SpecialTokens::kAsText)), "final:<think>x");
}

/// The tokens of text are bytes, and marks are special.
Result<Tokenizer> tokenizer_with(const std::vector<std::string>& marks) {
  TokenizerJson json = small_tokenizer();
  int64_t id = 256;
  for (const std::string& mark : marks) {
    json["added_tokens"].push_back(added_token(id++, mark));
    json["added_tokens"].back()["special"] = true;
  }
  return load_tokenizer(json);
}

class ChannelOutput : public ::testing::Test {
 protected:
  ChannelOutput()
      : tokenizer_(tokenizer_with({"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>",
                                   "<|\"|>", "<turn|>", "<|think|>"})) {}

  std::string parse(std::string_view output, PromptEnd prompt = PromptEnd::kOpen) {
    ThinkParser parser(*tokenizer_, prompt, true);
    return run(parser, *tokenizer_->encode(output, SpecialTokens::kRecognize));
  }
  PromptEnd end_of(std::string_view prompt) {
    return prompt_end(*tokenizer_, *tokenizer_->encode(prompt, SpecialTokens::kRecognize));
  }

  Result<Tokenizer> tokenizer_;
};

TEST_F(ChannelOutput, separates_reasoning_and_answer) {
  EXPECT_EQ(parse("<|channel>thought\nhm\n\nso\n<channel|>Hello!<turn|>"),
            "analysis:hm\n\nso|final:Hello!");
  EXPECT_EQ(parse("<|channel>thought\n<channel|>Hello"), "final:Hello");
  EXPECT_EQ(parse("<|channel>thoughts\nhm<channel|>Hello"), "analysis:thoughts\nhm|final:Hello");
  EXPECT_EQ(parse("<|channel>thou<channel|>Hello"), "analysis:thou|final:Hello");
  EXPECT_EQ(parse("<|channel>thou"), "analysis:thou");
  EXPECT_EQ(parse("<|channel>thought\na<channel|>b<|channel>thought\nc<channel|>d"),
            "analysis:a|final:b|analysis:c|final:d");
  EXPECT_EQ(parse("thought\nhm<channel|>Hello", PromptEnd::kReasons), "analysis:hm|final:Hello");
  EXPECT_EQ(parse("Hello"), "final:Hello");
}

TEST_F(ChannelOutput, keeps_the_marks_of_calls_and_drops_other_special_tokens) {
  EXPECT_EQ(parse("<|channel>thought\nx<channel|><|tool_call>call:f{s:<|\"|>y<|\"|>}<tool_call|>"
                  "<|think|><turn|>"),
            "analysis:x|final:<|tool_call>call:f{s:<|\"|>y<|\"|>}<tool_call|>");
}

/// What a model with such special tokens writes, and its prompt.
std::string parse_with(const std::vector<std::string>& marks, std::string_view output,
                       PromptEnd prompt = PromptEnd::kOpen) {
  const Result<Tokenizer> tokenizer = tokenizer_with(marks);
  ThinkParser parser(*tokenizer, prompt, true);
  return run(parser, *tokenizer->encode(output, SpecialTokens::kRecognize));
}

TEST(ReasoningMarks, are_those_of_the_vocabulary) {
  EXPECT_EQ(parse_with({"<seed:think>", "</seed:think>"}, "<seed:think>hm</seed:think>Hello"),
            "analysis:hm|final:Hello");
  EXPECT_EQ(parse_with({"[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]", "</s>"},
                       "[THINK]hm[/THINK]So.[TOOL_CALLS]f[ARGS]{}</s>"),
            "analysis:hm|final:So.[TOOL_CALLS]f[ARGS]{}");
  EXPECT_EQ(parse_with({"</think>", "<think>"}, "hm</think>a", PromptEnd::kReasons),
            "analysis:hm|final:a");
}

TEST(ReasoningMarks, may_stand_around_the_answer_too) {
  for (const std::string name : {"response", "answer"}) {
    const std::string open = "<" + name + ">", close = "</" + name + ">";
    const std::vector<std::string> marks = {"<think>", "</think>", open, close};
    EXPECT_EQ(parse_with(marks, "<think>\nhm\n</think>\n\n" + open + "\nHello\n\nyou\n" + close),
              "analysis:hm|final:Hello\n\nyou");
    EXPECT_EQ(parse_with(marks, open + "Hello" + close + "\nmore"), "final:Hello\nmore");
    EXPECT_EQ(parse_with(marks, "a" + open + "b"), "final:ab");  // a special token is no text
    EXPECT_EQ(parse_with(marks, "<think>hm</think>" + open + "\nHel"), "analysis:hm|final:Hel");
  }
}

TEST_F(ChannelOutput, prompts_end_before_in_or_after_reasoning) {
  EXPECT_EQ(end_of("<turn|>model\n"), PromptEnd::kOpen);
  EXPECT_EQ(end_of("<turn|>model\n<|channel>thought\n"), PromptEnd::kReasons);
  EXPECT_EQ(end_of("<turn|>model\n<|channel>thought\n<channel|>"), PromptEnd::kAnswers);
}

}  // namespace
}  // namespace subbyte
