// Answers in each dialect of calls (tools/interop/tool_calls.py), whole and byte by byte.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "support/paths.h"
#include "support/test_names.h"
#include "text/chat_template.h"
#include "text/tool_call_parser.h"

namespace subbyte {
namespace {

using json::Value;

Value all_cases() {
  return json::parse_file(std::string(kTestData) + "/calls/cases.json", 1 << 20).value();
}

/// Texts without white space around them, and names with arguments, in their order.
Value parts_of(const std::vector<Piece>& pieces) {
  constexpr std::string_view kSpace = " \t\r\n";
  Value parts = Value::array();
  std::string text;
  const auto add_text = [&] {
    const std::size_t begin = text.find_first_not_of(kSpace);
    if (begin == std::string::npos) return;
    parts.push_back(text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin));
    text.clear();
  };
  for (const Piece& piece : pieces) {
    if (piece.channel != Channel::kToolCall) {
      text += piece.text;
      continue;
    }
    add_text();
    parts.push_back(Value::array({piece.recipient, json::parse(piece.text, "arguments").value()}));
  }
  add_text();
  return parts;
}

class CallDialectAnswers : public ::testing::TestWithParam<std::string> {};

Value parts_in(const std::string& dialect, const Value& tools, std::string_view text,
               std::size_t bytes) {
  ToolCallParser parser(find_call_dialect(dialect), tools, "seed");
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < text.size(); i += bytes) {
    const Piece piece = {Channel::kAnswer, {}, std::string(text.substr(i, bytes)), i == 0};
    for (Piece& one : parser.push({piece})) pieces.push_back(std::move(one));
  }
  for (Piece& one : parser.finish()) pieces.push_back(std::move(one));
  return parts_of(pieces);
}

TEST_P(CallDialectAnswers, have_the_calls_that_can_be_read_and_all_other_text) {
  const Value cases = all_cases();
  int count = 0;
  for (const Value& one : cases["cases"]) {
    if (one["dialect"] != GetParam()) continue;
    ++count;
    SCOPED_TRACE(one["case"].string() + ": " + one["text"].string());
    for (const std::size_t bytes : {1, 7, 100000}) {
      EXPECT_EQ(json::to_text(parts_in(GetParam(), cases["tools"], one["text"].string(), bytes)),
                json::to_text(one["parts"]));
    }
  }
  EXPECT_EQ(count, 20);
}

std::vector<std::string> dialects() {
  std::vector<std::string> names;
  const Value cases = all_cases();
  for (const Value& one : cases["cases"]) {
    if (names.empty() || names.back() != one["dialect"].string()) {
      names.push_back(one["dialect"].string());
    }
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, CallDialectAnswers, ::testing::ValuesIn(dialects()), NamedByValue());

/// The parts of an answer as one text, however it is cut.
std::string shown(const std::string& dialect, std::string_view text) {
  const Value tools = all_cases()["tools"];
  const std::string whole = json::to_text(parts_in(dialect, tools, text, text.size() + 1));
  for (const std::size_t bytes : {1, 5}) {
    EXPECT_EQ(json::to_text(parts_in(dialect, tools, text, bytes)), whole) << bytes;
  }
  return whole;
}

// Templates of ours in tests/data/chats/, by what llama.cpp's llama-chat.cpp and vLLM's parsers say
// of the turns and calls of these models.
TEST(CallDialects, of_templates_that_families_bring_along) {
  const auto dialect = [](const std::string& name) -> std::string_view {
    std::ifstream file(std::string(kTestData) + "/chats/" + name);
    const std::string source{std::istreambuf_iterator<char>(file), {}};
    const auto chat = ChatTemplate::compile(source, name);
    const CallDialect* const found = call_dialect_of(ChatFormat::kNone, &*chat);
    return found == nullptr ? "" : found->name;
  };
  EXPECT_EQ(dialect("ernie4_5.jinja"), "json");
  EXPECT_EQ(dialect("exaone4.jinja"), "json");
  EXPECT_EQ(dialect("hunyuan_v1.jinja"), "json_tool_calls");
}

TEST(CallDialects, of_mistral_come_in_several_forms) {
  EXPECT_EQ(shown("named_json", R"([TOOL_CALLS] [{"name": "f", "arguments": {"n": 1}},
                                {"name": "g"}] So.)"),
            R"([["f",{"n":1}],["g",{}],"So."])");
  EXPECT_EQ(
      shown("named_json", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}] It is done. \n\n"),
      R"([["f",{}],"It is done."])");
  EXPECT_EQ(shown("named_json", R"([TOOL_CALLS]f{"n": 1}[TOOL_CALLS]g[ARGS])"),
            R"([["f",{"n":1}],["g",{}]])");
  EXPECT_EQ(shown("named_json", R"([TOOL_CALLS]f[ARGS]{"s": "[TOOL_CALLS]"})"),
            R"([["f",{"s":"[TOOL_CALLS]"}]])");
  for (const char* const text :
       {"[TOOL_CALLS]", "[TOOL_CALLS]f", "[TOOL_CALLS]f g{}", "[TOOL_CALLS]{}", "[TOOL_CALLS][1]",
        "[TOOL_CALLS]f[ARGS][]", "a [TOOL_CAL"}) {
    EXPECT_EQ(shown("named_json", text), json::to_text(Value::array({text})));
  }
}

TEST(CallDialects, of_python_have_values_as_it_or_json_writes_them) {
  const auto in_python = [](const std::string& calls) {
    return shown("python_list", "<|tool_call_start|>" + calls + "<|tool_call_end|>");
  };
  EXPECT_EQ(in_python("[f(n=-1, s='it\\'s\n', b=true, o={'a': None}), a.g-1(),]"),
            R"([["f",{"n":-1,"s":"it's\n","b":true,"o":{"a":null}}],["a.g-1",{}]])");
  EXPECT_EQ(in_python("f(n=1)\ng()"), R"([["f",{"n":1}],["g",{}]])");
  for (const std::string text : {"", "[]", "[f]", "f", "[f(1)]", "[f(n)]", "[f(n=)]", "[f(n=a)]",
                                 "[f(n=1, n=2)]", "[f(n=01)]", "[f(n=1) g()]", "[f(n=1)",
                                 "[f(n=1)] so", "[f(n=1,,)]", "[f(s='a)]", "[(n=1)]"}) {
    EXPECT_EQ(in_python(text),
              json::to_text(Value::array({"<|tool_call_start|>" + text + "<|tool_call_end|>"})));
  }
}

TEST(CallDialects, give_the_ids_that_models_write_and_templates_take) {
  const auto ids = [](std::string_view dialect, const std::string& answer) {
    ToolCallParser parser(find_call_dialect(dialect), all_cases()["tools"], "seed");
    std::vector<std::string> found;
    for (const Piece& piece : parser.push({{Channel::kAnswer, {}, answer, true}})) {
      found.push_back(piece.call_id);
    }
    for (const Piece& piece : parser.finish()) found.push_back(piece.call_id);
    return found;
  };
  EXPECT_EQ(ids("numbered",
                "<|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{}<|tool_call_end|>"
                "<|tool_call_begin|> g:4 <|tool_call_argument_begin|><|tool_call_end|>"),
            (std::vector<std::string>{"functions.f:3", "g:4"}));
  const auto mistral =
      ids("named_json", "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[CALL_ID]aB3456789[ARGS]{}");
  ASSERT_EQ(mistral.size(), 2u);
  EXPECT_EQ(mistral[0].size(), 9u);
  EXPECT_EQ(mistral[1], "aB3456789");
  const auto others =
      ids("named_json", "[TOOL_CALLS]f[CALL_ID]a b[ARGS]{}[TOOL_CALLS]g[CALL_ID]aB345678-[ARGS]{}");
  ASSERT_EQ(others.size(), 2u);
  for (const std::string& id : others) EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), id.npos);
  const std::string same =
      "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>";
  const auto twice = ids("numbered", same + same);
  ASSERT_EQ(twice.size(), 2u);
  EXPECT_NE(twice[0], twice[1]);
}

/// Calls that a text quotes are no calls.
TEST(CallDialects, keep_marks_in_quoted_texts) {
  EXPECT_EQ(
      shown("json", R"(<tool_call>{"name": "f", "arguments": {"s": "a </tool_call><tool_call>)"
                    R"({\"name\": \"g\"}</tool_call> b"}}</tool_call>)"),
      R"([["f",{"s":"a </tool_call><tool_call>{\"name\": \"g\"}</tool_call> b"}]])");
}

/// Numbers are those of the model, letter for letter, in lists, too.
TEST(CallDialects, keep_the_texts_of_arguments) {
  ToolCallParser parser(find_call_dialect("json_toolcall"), all_cases()["tools"], "seed");
  std::vector<Piece> pieces =
      parser.push({{Channel::kAnswer,
                    {},
                    R"(<TOOLCALL>[{"name": "f", "arguments": {"n": 1.10}}, )"
                    R"({"name": "g", "arguments": {"n": 12345678901234567890.5}}]</TOOLCALL>)",
                    true}});
  for (Piece& piece : parser.finish()) pieces.push_back(std::move(piece));
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].text, R"({"n": 1.10})");
  EXPECT_EQ(pieces[1].text, R"({"n": 12345678901234567890.5})");
}

/// A value that seems to go on after a mark does not swallow the call that comes next.
TEST(CallDialects, take_a_call_after_one_that_does_not_end) {
  EXPECT_EQ(shown("keys",
                  "<tool_call>f<arg_key>n</arg_key><arg_value>1</tool_call>\n"
                  "<tool_call>f<arg_key>n</arg_key><arg_value>2</arg_value></tool_call>"),
            R"(["<tool_call>f<arg_key>n</arg_key><arg_value>1</tool_call>",["f",{"n":2}]])");
}

}  // namespace
}  // namespace subbyte
