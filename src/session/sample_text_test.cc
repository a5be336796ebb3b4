#include "session/sample_text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/small_tokenizer.h"

namespace subbyte {
namespace {

/// The texts that come with each byte of `output`, and at its end.
std::vector<std::string> texts(std::string_view output, const SessionRequest& request) {
  const Result<Tokenizer> tokenizer = load_tokenizer(small_tokenizer());
  SampleText sample(request, *tokenizer, ChatFormat::kChatMl);
  std::vector<std::string> found;
  for (const char byte : output) {
    Delta delta;
    sample.push(static_cast<unsigned char>(byte), delta);
    EXPECT_EQ(delta.tokens.size(), 1u);
    found.push_back(delta.text());
  }
  Delta last;
  sample.finish(last);
  found.push_back(last.text());
  return found;
}

using Texts = std::vector<std::string>;

TEST(SampleTexts, are_whole_characters) {
  EXPECT_EQ(texts("a\xC3\xA9", {}), (Texts{"a", "", "\xC3\xA9", ""}));
  EXPECT_EQ(texts("\xF0\x9F\x98\x80", {}), (Texts{"", "", "", "\xF0\x9F\x98\x80", ""}));
  EXPECT_EQ(texts("a\xC3", {}), (Texts{"a", "", "\xEF\xBF\xBD"}));  // cut in the middle of one
}

TEST(SampleTexts, hold_back_what_may_be_a_stop_string) {
  SessionRequest request;
  request.stops = {"abc"};
  EXPECT_EQ(texts("xabd", request), (Texts{"x", "", "", "abd", ""}));
  EXPECT_EQ(texts("xab", request), (Texts{"x", "", "", "ab"}));
  EXPECT_EQ(texts("xabcab", request), (Texts{"x", "", "", "", "", "", ""}));
  request.min_tokens = 4;
  EXPECT_EQ(texts("xabcabc", request), (Texts{"x", "a", "b", "c", "", "", "", ""}));
}

TEST(SampleTexts, tell_the_stop_string_that_was_found) {
  const Result<Tokenizer> tokenizer = load_tokenizer(small_tokenizer());
  SessionRequest request;
  request.stops = {"bc", "x", "abc", "c"};  // three end together: the longest
  SampleText sample(request, *tokenizer, ChatFormat::kChatMl);
  Delta delta;
  for (const char byte : std::string("zabc")) sample.push(byte, delta);
  EXPECT_TRUE(sample.stopped());
  EXPECT_EQ(sample.stop(), "abc");
  EXPECT_EQ(delta.text(), "z");
}

TEST(SampleTexts, have_the_reasoning_of_a_chat_apart) {
  const Result<Tokenizer> tokenizer = golden_tokenizer("qwen");
  SessionRequest request;
  request.is_chat = true;
  SampleText sample(request, *tokenizer, ChatFormat::kChatMl);
  Delta delta;
  const auto ids = tokenizer->encode("<think>\nhm\n</think>\n\nYes", SpecialTokens::kRecognize);
  for (const TokenId id : *ids) {
    sample.push(id, delta);
  }
  sample.finish(delta);
  std::string reasoning;
  for (const OutputPiece& piece : delta.pieces) {
    if (piece.channel == OutputChannel::kAnalysis) reasoning += piece.text;
  }
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(delta.text(), "Yes");
  EXPECT_TRUE(delta.pieces.front().begins_message);
  EXPECT_EQ(std::ranges::count_if(delta.pieces, &OutputPiece::begins_message), 2);
  EXPECT_FALSE(delta.takes_answer_back);
}

}  // namespace
}  // namespace subbyte
