// Calls of tools with bare keys, however the text is cut, and what only looks like such.

#include <gtest/gtest.h>

#include <string>

#include "text/tool_call_parser.h"

namespace subbyte {
namespace {

/// Text of the answer and [calls], of an answer in pieces of `bytes` each.
std::string parse(std::string_view answer, std::size_t bytes) {
  const auto tools = json::parse(R"([{"name": "f"}])", "tools");
  ToolCallParser parser(find_call_dialect("bare_keys"), *tools, "seed");
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < answer.size(); i += bytes) {
    const Piece piece = {Channel::kAnswer, {}, std::string(answer.substr(i, bytes)), i == 0};
    for (Piece& one : parser.push({piece})) pieces.push_back(std::move(one));
  }
  for (Piece& one : parser.finish()) pieces.push_back(std::move(one));
  std::string text;
  for (const Piece& piece : pieces) {
    const bool is_call = piece.channel == Channel::kToolCall;
    text += is_call ? "[" + piece.recipient + " " + piece.text + "]" : piece.text;
  }
  return text;
}

std::string in_bare_keys(std::string_view answer) {
  const std::string whole = parse(answer, answer.size() + 1);
  for (const std::size_t bytes : {1, 2, 3, 7, 12}) EXPECT_EQ(parse(answer, bytes), whole) << bytes;
  return whole;
}

TEST(BareKeyCalls, are_taken_out_of_the_answer) {
  EXPECT_EQ(in_bare_keys(R"(<|tool_call>call:f{s:<|"|>New York<|"|>,n:42}<tool_call|>)"),
            R"([f {"s": "New York", "n": 42}])");
  EXPECT_EQ(in_bare_keys("I look.\n<|tool_call>call:f{}<tool_call|><|tool_call>call:g-1.x{b:true}"
                         "<tool_call|>"),
            R"(I look.[f {}][g-1.x {"b": true}])");
  EXPECT_EQ(in_bare_keys("<|tool_call>call:f{n:1}"), R"([f {"n": 1}])");
}

TEST(BareKeyCalls, have_values_of_all_kinds) {
  EXPECT_EQ(
      in_bare_keys(R"(<|tool_call>call:f{o:{x:1.50,<|"|>a b<|"|>:null},l:[<|"|>p,q}<|"|>, 2,)"
                   R"([]],e:,w:some words ,n:123456789012345678901,m:007,t:-1e3}<tool_call|>)"),
      R"([f {"o": {"x": 1.50, "a b": null}, "l": ["p,q}", 2, []], "e": "", )"
      R"("w": "some words", "n": 123456789012345678901, "m": "007", "t": -1e3}])");
  EXPECT_EQ(in_bare_keys(R"(<|tool_call>call:f{s:<|"|>a "b" \ <tool_call|><|"|>,s:2}<tool_call|>)"),
            R"([f {"s": 2}])");
  EXPECT_EQ(in_bare_keys(R"(<|tool_call>call:f{s:<|"|>{<tool_call|>}<|"|>}<tool_call|>.)"),
            R"([f {"s": "{<tool_call|>}"}].)");
}

TEST(BareKeyCalls, that_do_not_parse_stay_text) {
  for (const char* const text : {
           "<|tool_call>",
           "<|tool_call><tool_call|>",
           "a <|tool_cal",
           "<|tool_call>call:{}<tool_call|>",
           "<|tool_call>call:f<tool_call|>",
           "<|tool_call>call:f{n:1<tool_call|>",
           "<|tool_call>call:f{n:1}}<tool_call|>",
           "<|tool_call>call:f{n}<tool_call|>",
           "<|tool_call>call:f{n:[1}<tool_call|>",
           "<|tool_call>call:f{s:<|\"|>never ends",
           "<|tool_call>{\"name\": \"f\", \"arguments\": {}}<tool_call|>",
           "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
       }) {
    EXPECT_EQ(in_bare_keys(text), text);
  }
  const std::string deep(200, '[');
  const std::string text = "<|tool_call>call:f{l:" + deep + "<tool_call|>";
  EXPECT_EQ(in_bare_keys(text), text);
}

}  // namespace
}  // namespace subbyte
