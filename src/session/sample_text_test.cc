#include "session/sample_text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/small_tokenizer.h"

namespace subbyte {
namespace {

/// The texts that come with each byte of `output`, and at its end.
std::vector<std::string> texts(std::string_view output, const Request& request) {
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
  Request request;
  request.stops = {"abc"};
  EXPECT_EQ(texts("xabd", request), (Texts{"x", "", "", "abd", ""}));
  EXPECT_EQ(texts("xab", request), (Texts{"x", "", "", "ab"}));
  EXPECT_EQ(texts("xabcab", request), (Texts{"x", "", "", "", "", "", ""}));
  request.min_tokens = 4;
  EXPECT_EQ(texts("xabcabc", request), (Texts{"x", "a", "b", "c", "", "", "", ""}));
}

TEST(SampleTexts, tell_the_stop_string_that_was_found) {
  const Result<Tokenizer> tokenizer = load_tokenizer(small_tokenizer());
  Request request;
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
  Request request;
  request.messages = {{Role::kUser, "a"}};
  SampleText sample(request, *tokenizer, ChatFormat::kChatMl);
  Delta delta;
  const auto ids = tokenizer->encode("<think>\nhm\n</think>\n\nYes", SpecialTokens::kRecognize);
  for (const TokenId id : *ids) {
    sample.push(id, delta);
  }
  sample.finish(delta);
  std::string reasoning;
  for (const Piece& piece : delta.pieces) {
    if (piece.channel == Channel::kReasoning) reasoning += piece.text;
  }
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(delta.text(), "Yes");
  EXPECT_TRUE(delta.pieces.front().begins_message);
  EXPECT_EQ(std::ranges::count_if(delta.pieces, &Piece::begins_message), 2);
}

/// What a reader has at each token of a chat whose reasoning nothing opened, and in the end.
std::vector<std::string> late(bool is_whole, std::string_view output,
                              std::vector<std::string> stops = {}) {
  const Result<Tokenizer> tokenizer = golden_tokenizer("qwen");
  Request request;
  request.messages = {{Role::kUser, "a"}};
  request.is_whole = is_whole;
  request.stops = std::move(stops);
  request.tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  SampleText sample(request, *tokenizer, ChatFormat::kChatMl, PromptEnd::kOpen,
                    ToolCallParser(find_call_dialect("json"), request.tools, "seed"));
  std::string seen;
  std::vector<std::string> all;
  const auto show = [&](const Delta& delta) {
    for (const Piece& piece : delta.pieces) {
      seen += piece.channel == Channel::kReasoning  ? "(" + piece.text + ")"
              : piece.channel == Channel::kToolCall ? "[" + piece.recipient + "]"
                                                    : piece.text;
    }
    all.push_back(seen);
  };
  const auto ids = tokenizer->encode(output, SpecialTokens::kRecognize);
  for (const TokenId id : *ids) {
    Delta delta;
    if (!sample.stopped()) sample.push(id, delta);
    show(delta);
  }
  Delta last;
  sample.finish(last);
  show(last);
  return all;
}

const std::string kCall = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";

TEST(SampleTexts, known_late_as_reasoning_are_that_as_they_were_written) {
  EXPECT_EQ(late(true, "\nmaybe " + kCall + " rest\n</think>\n\nAnswer.").back(),
            "(maybe " + kCall + " rest)Answer.");
  EXPECT_EQ(late(true, "maybe " + kCall + " rest\n</think>\n\n" + kCall).back(),
            "(maybe " + kCall + " rest)[f]");
  EXPECT_EQ(late(true, "</think>Answer.").back(), "Answer.");
  EXPECT_EQ(late(true, "hm <think>no</think>So.").back(), "hm (no)So.");
  EXPECT_EQ(late(true, "Look. " + kCall).back(), "Look.[f]");
  EXPECT_EQ(late(true, "a END b</think>c", {"END"}).back(), "a ");
}

/// Nobody can take back what was handed out: what a stream has shown stays there, and no text of
/// the answer is missing in the end.
TEST(SampleTexts, that_were_handed_out_are_not_taken_back) {
  for (const bool is_whole : {false, true}) {
    for (const std::string& output :
         {"maybe " + kCall + " rest\n</think>\n\nAnswer.", std::string("a</think>b</think>c"),
          std::string("a<think>b</think>c"), std::string("<think>a</think>b")}) {
      const std::vector<std::string> all = late(is_whole, output);
      for (std::size_t i = 1; i < all.size(); ++i) {
        EXPECT_TRUE(all[i].starts_with(all[i - 1])) << all[i - 1] << " | " << all[i];
      }
    }
  }
  const auto all = late(false, "maybe " + kCall + " rest\n</think>\n\nAnswer.");
  EXPECT_EQ(all.front(), "ma");  // at once
  EXPECT_EQ(all.back(), "maybe[f]rest\n</think>\n\nAnswer.");
}

}  // namespace
}  // namespace subbyte
