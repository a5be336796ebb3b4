// Calls of tools in answers, however the text is cut, and what only looks like calls.

#include "text/tool_call_parser.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/random.h"
#include "support/random_cases.h"
#include "text/chat_template.h"

namespace subbyte {
namespace {

using json::Value;

Value tools() {
  const auto parsed = json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {
      "type": "object", "properties": {"n": {"type": "integer"}, "x": {"type": "number"},
      "s": {"type": "string"}, "b": {"type": "boolean"}, "l": {"type": "array"},
      "o": {"anyOf": [{"type": "object"}, {"type": "null"}]},
      "e": {"type": ["integer", "string"]},
      "r": {"$ref": "#/$defs/point"}, "a": {"allOf": [{"$ref": "#/$defs/list"}]},
      "k": {"enum": [1, 2, null]}, "p": {"properties": {"x": {}}}, "c": {"$ref": "#/$defs/cycle"}},
      "$defs": {"point": {"type": "object"}, "list": {"items": {}},
                "cycle": {"anyOf": [{"$ref": "#/$defs/cycle"}, {"type": "boolean"}]}}}}},
      {"name": "g"}])",
                                  "tools");
  return *parsed;
}

/// Pieces in one line: text of the answer, [calls], (reasoning), {messages to others}.
std::string shown(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) {
    EXPECT_FALSE(piece.text.empty());
    switch (piece.channel) {
      case Channel::kAnswer:
        text += piece.text;
        break;
      case Channel::kToolCall:
        EXPECT_TRUE(json::parse(piece.text, "arguments").ok()) << piece.text;
        text += "[" + piece.recipient + " " + piece.text + "]";
        break;
      case Channel::kReasoning:
        text += "(" + piece.text + ")";
        break;
      case Channel::kCommentary:
        text += "{" + piece.recipient + ":" + piece.text + "}";
        break;
    }
  }
  return text;
}

/// The same answer in pieces of `bytes` each; what is shown before the end must not change.
std::string parse(std::string_view dialect, std::string_view answer, std::size_t bytes) {
  ToolCallParser parser(find_call_dialect(dialect), tools(), "seed");
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < answer.size(); i += bytes) {
    const Piece piece = {Channel::kAnswer, {}, std::string(answer.substr(i, bytes)), i == 0};
    for (Piece& one : parser.push({piece})) pieces.push_back(std::move(one));
  }
  for (Piece& one : parser.finish()) pieces.push_back(std::move(one));
  return shown(pieces);
}

std::string parse(std::string_view dialect, std::string_view answer) {
  const std::string whole = parse(dialect, answer, answer.size() + 1);
  for (const std::size_t bytes : {1, 2, 3, 7, 12}) {
    EXPECT_EQ(parse(dialect, answer, bytes), whole) << bytes;
  }
  return whole;
}

std::string in_json(std::string_view answer) {
  return parse("json", answer);
}

std::string in_xml(std::string_view answer) {
  return parse("functions", answer);
}

std::string as_answer(std::string_view answer) {
  return parse("json_answer", answer);
}

TEST(JsonToolCalls, are_taken_out_of_the_answer) {
  EXPECT_EQ(in_json("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>"),
            "[f {\"n\": 1}]");
  EXPECT_EQ(in_json("I look. \n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
                    "<tool_call>{\"arguments\":{\"a\":[{}]},\"name\":\"g\"}</tool_call>\n"),
            "I look.[f {}][g {\"a\":[{}]}]");
  EXPECT_EQ(in_json("<tool_call>[{\"name\":\"f\"},{\"name\":\"g\"}]</tool_call> So."),
            "[f {}][g {}]So.");
  EXPECT_EQ(in_json("<tool_call>{\"name\":\"f\",\"parameters\":{\"a\":1}}</tool_call>"),
            "[f {\"a\":1}]");
  // The end token came in place of the mark.
  EXPECT_EQ(in_json("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n"), "[f {}]");
}

TEST(JsonToolCalls, keep_arguments_as_they_are_written) {
  EXPECT_EQ(in_json("<tool_call>{\"name\":\"f\",\"arguments\": {\"n\" : 123456789012345678901, "
                    "\"x\":1.10, \"s\":\"\\u00e9}\\\"\"} }</tool_call>"),
            "[f {\"n\" : 123456789012345678901, \"x\":1.10, \"s\":\"\\u00e9}\\\"\"}]");
  EXPECT_EQ(in_json("<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"n\\\": 1}\"}</tool_call>"),
            "[f {\"n\": 1}]");
  EXPECT_EQ(in_json("<tool_call>{\"n\\u0061me\":\"f\",\"argum\\u0065nts\":{\"n\":1}}</tool_call>"),
            "[f {\"n\":1}]");
  EXPECT_EQ(in_json("<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"</tool_call>\"}}"
                    "</tool_call>"),
            "[f {\"s\":\"</tool_call>\"}]");
  EXPECT_EQ(in_json("<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"<tool_call>\"}}"
                    "</tool_call>"),
            "[f {\"s\":\"<tool_call>\"}]");
}

TEST(JsonToolCalls, that_do_not_parse_stay_text) {
  for (const char* const text : {
           "<tool_call>",
           "<tool_call></tool_call>",
           "</tool_call>",
           "a <tool_cal",
           "a <",
           "a \n ",
           "<tool_call>{\"name\": \"f\"</tool_call>",
           "<tool_call>{\"name\": 1}</tool_call>",
           "<tool_call>{\"name\": \"\"}</tool_call>",
           "<tool_call>[]</tool_call>",
           "<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>",
           "<tool_call>{\"name\":\"f\",\"arguments\":\"no\"}</tool_call>",
           "<tool_call>{\"name\":\"f\",\"name\":\"g\"}</tool_call>",
           "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":NaN}}</tool_call>",
           "<tool_call>f()</tool_call>",
           "<tool_call> {\"name\": \"f\", \"arguments\": {\"s\": \"",
           "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"\\ud800\"}}</tool_call>",
           "<tool_call>{\"name\": \"a\nb\"}</tool_call> and more",
           "{\"name\": \"f\", \"arguments\": {}}",
       }) {
    EXPECT_EQ(in_json(text), text);
  }
  // Of two openings the first is text.
  EXPECT_EQ(in_json("<tool_call> or <tool_call>{\"name\":\"f\"}</tool_call>"),
            "<tool_call> or[f {}]");
  EXPECT_EQ(in_json("<tool_call>{\"name\": \n<tool_call>{\"name\":\"f\"}</tool_call>"),
            "<tool_call>{\"name\":[f {}]");
  // A text that does not end swallows no call of the next line.
  EXPECT_EQ(in_json("<tool_call>{\"name\": \"f</tool_call>\n<tool_call>{\"name\":\"g\"}"
                    "</tool_call>"),
            "<tool_call>{\"name\": \"f</tool_call>[g {}]");
}

TEST(JsonToolCalls, of_deep_and_long_texts_are_refused_quickly) {
  std::string deep = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":";
  deep += std::string(100000, '[') + "</tool_call>";
  EXPECT_EQ(parse("json", deep, 4096), deep);
  std::string openings;
  for (int i = 0; i < 20000; ++i) openings += "<tool_call>";
  EXPECT_EQ(parse("json", openings + "</tool_call>", 4), openings + "</tool_call>");
  std::string closings = "<tool_call>{\"name\":\"";
  for (int i = 0; i < 20000; ++i) closings += "</tool_call>";
  EXPECT_EQ(parse("json", closings, 4), closings);
}

TEST(XmlToolCalls, have_values_of_the_types_of_their_parameters) {
  EXPECT_EQ(in_xml("<tool_call>\n<function=f>\n<parameter=n>\n12\n</parameter>\n<parameter=s>\n12\n"
                   "</parameter>\n</function>\n</tool_call>"),
            "[f {\"n\": 12, \"s\": \"12\"}]");
  const auto value = [](const std::string& name, const std::string& written) {
    const std::string found = in_xml("<tool_call><function=f><parameter=" + name + ">" + written +
                                     "</parameter></function></tool_call>");
    const std::string front = "[f {\"" + name + "\": ";
    EXPECT_TRUE(found.starts_with(front)) << found;
    return found.substr(front.size(), found.size() - front.size() - 2);
  };
  EXPECT_EQ(value("n", "12345678901234567890123"), "12345678901234567890123");
  EXPECT_EQ(value("n", "1.5"), "\"1.5\"");
  EXPECT_EQ(value("n", "many"), "\"many\"");
  EXPECT_EQ(value("x", " 1.50 "), "1.50");
  EXPECT_EQ(value("b", "True"), "true");
  EXPECT_EQ(value("b", "false"), "false");
  EXPECT_EQ(value("b", "yes"), "\"yes\"");
  EXPECT_EQ(value("l", "[1, \"a\"]"), "[1, \"a\"]");
  EXPECT_EQ(value("l", "{\"a\": 1}"), "\"{\\\"a\\\": 1}\"");
  EXPECT_EQ(value("o", "{\"a\": {}}"), "{\"a\": {}}");
  EXPECT_EQ(value("o", "None"), "null");
  EXPECT_EQ(value("e", "7"), "7");
  EXPECT_EQ(value("e", "null"), "\"null\"");
  EXPECT_EQ(value("s", "\n\n a \n\n"), "\"\\n a \\n\"");
  EXPECT_EQ(value("s", "</tool_call>"), "\"</tool_call>\"");
  EXPECT_EQ(value("s", "a</parameter>b<parameter=c>"), "\"a</parameter>b<parameter=c>\"");
  EXPECT_EQ(value("s", ""), "\"\"");
  EXPECT_EQ(value("s", "\"\\"), "\"\\\"\\\\\"");
  EXPECT_EQ(value("unknown", "1"), "\"1\"");
  EXPECT_EQ(value("r", "{\"x\": 1}"), "{\"x\": 1}");
  EXPECT_EQ(value("r", "[1]"), "\"[1]\"");
  EXPECT_EQ(value("a", "[1]"), "[1]");
  EXPECT_EQ(value("k", "2"), "2");
  EXPECT_EQ(value("k", "two"), "\"two\"");
  EXPECT_EQ(value("p", "{}"), "{}");
  EXPECT_EQ(value("c", "true"), "true");
  // As Python writes values.
  EXPECT_EQ(value("l", "['a', 1]"), "[\"a\", 1]");
  EXPECT_EQ(value("l", "\n[\n 'it\\'s', \"\\u00e9\\x41\\101\", (True, None), {'k': 1.5,}, ()]\n"),
            "[\"it's\", \"\xC3\xA9"
            "AA\", [true, null], {\"k\": 1.5}, []]");
  EXPECT_EQ(value("l", "('a',)"), "[\"a\"]");
  EXPECT_EQ(value("o", "{'a': ['</tool_call>']}"), "{\"a\": [\"</tool_call>\"]}");
  for (const std::string text :
       {"['a', 1", "['a' 'b']", "[,]", "[1,,2]", "[a]", "{'a'}", "('a')", "['\\ud800']", "[1_0]",
        "['a\nb']", "[True", "['\\N{DASH}']", "['\\u12']", "[01]"}) {
    EXPECT_EQ(value("l", text), json::to_text(Value(text)));
  }
  EXPECT_EQ(value("l", std::string(100, '[')), "\"" + std::string(100, '[') + "\"");
  EXPECT_EQ(value("o", "{1: 2}"), "\"{1: 2}\"");  // a key that is no text
}

TEST(XmlToolCalls, come_in_several_forms) {
  EXPECT_EQ(in_xml("<tool_call>\n<function=g>\n</function>\n</tool_call>\n<tool_call>\n"
                   "<function=g>\n</function>\n</tool_call>"),
            "[g {}][g {}]");
  // Without the marks around it, or without the end of the function, as is seen.
  EXPECT_EQ(in_xml("Now.\n<function=g>\n</function>\n</tool_call>\nDone."), "Now.[g {}]Done.");
  EXPECT_EQ(in_xml("<function=g></function><function=f></function>"), "[g {}][f {}]");
  EXPECT_EQ(in_xml("<tool_call><function=f><parameter=n>1</parameter></tool_call>"),
            "[f {\"n\": 1}]");
  EXPECT_EQ(in_xml("<tool_call><function=f><parameter=n>1</parameter></tool_call>\n<tool_call>"
                   "<function=g></function></tool_call>"),
            "[f {\"n\": 1}][g {}]");
  EXPECT_EQ(in_xml("<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>"),
            "[f {\"n\": 1}]");
}

TEST(XmlToolCalls, that_do_not_parse_stay_text) {
  for (const char* const text : {
           "<tool_call>",
           "<tool_call></tool_call>",
           "<function=",
           "<function=f",
           "a <functio",
           "<function=>x</function>",
           "<tool_call><function=f>x</function></tool_call>",
           "<tool_call><function=f><parameter=n>1</function></tool_call>",
           "<tool_call><function=f><parameter=n>1</parameter><parameter=n>2</parameter></function>"
           "</tool_call>",
           "<tool_call><function=a<b></function></tool_call>",
           "<function=f><parameter=s>cut o",
           "<tool_call>{\"name\": \"f\"}</tool_call>",
           "</function></tool_call>",
       }) {
    EXPECT_EQ(in_xml(text), text);
  }
  std::string many;
  for (int i = 0; i < 20000; ++i) many += "<tool_call><function=f><parameter=s>";
  EXPECT_EQ(parse("functions", many + "</tool_call>", 5), many + "</tool_call>");
}

TEST(InvokedToolCalls, have_values_of_the_types_of_their_parameters) {
  const auto found = [](std::string_view answer) { return parse("invokes", answer); };
  EXPECT_EQ(
      found("So.\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"n\">1</parameter>"
            "\n<parameter name=\"s\">1</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n"
            "</minimax:tool_call>"),
      R"(So.[f {"n": 1, "s": "1"}][g {}])");
  EXPECT_EQ(found("<minimax:tool_call><invoke name=\"f\"><parameter name=\"s\">a </parameter> b"
                  "</parameter></invoke></minimax:tool_call>"),
            R"([f {"s": "a </parameter> b"}])");
  EXPECT_EQ(found("<minimax:tool_call><invoke name=f><parameter name=s>\na\n</parameter></invoke>"
                  "</minimax:tool_call>"),
            R"([f {"s": "\na\n"}])");
  for (const char* const text :
       {"<minimax:tool_call></minimax:tool_call>",
        "<minimax:tool_call><invoke name=\"\"></invoke></minimax:tool_call>",
        "<minimax:tool_call><invoke name=\"f></invoke></minimax:tool_call>",
        "<minimax:tool_call><invoke name=\"f\">x</invoke></minimax:tool_call>"}) {
    EXPECT_EQ(found(text), text);
  }
}

TEST(KeyedToolCalls, have_values_of_the_types_of_their_parameters) {
  const auto found = [](std::string_view answer) { return parse("keys", answer); };
  EXPECT_EQ(found("So.\n<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n"
                  "<arg_key>s</arg_key>\n<arg_value>1</arg_value>\n<arg_key>l</arg_key>"
                  "<arg_value>[1, {\"a\": 2}]</arg_value>\n</tool_call>"),
            R"(So.[f {"n": 1, "s": "1", "l": [1, {"a": 2}]}])");
  EXPECT_EQ(found("<tool_call>g</tool_call>\n<tool_call>f<arg_key>b</arg_key><arg_value>true"
                  "</arg_value></tool_call>"),
            R"([g {}][f {"b": true}])");
  EXPECT_EQ(found("<tool_call>f<arg_key>s</arg_key><arg_value>a </tool_call> b</arg_value>"
                  "</tool_call>"),
            R"([f {"s": "a </tool_call> b"}])");
  EXPECT_EQ(found("<tool_call>f<arg_key>s</arg_key><arg_value>a </arg_value> b</arg_value>\n"
                  "<arg_key>n</arg_key><arg_value>1</arg_value></tool_call>"),
            R"([f {"s": "a </arg_value> b", "n": 1}])");
  // The end token came in place of the mark.
  EXPECT_EQ(found("<tool_call>f<arg_key>n</arg_key><arg_value>2</arg_value>"), R"([f {"n": 2}])");
}

TEST(KeyedToolCalls, that_do_not_parse_stay_text) {
  for (const char* const text :
       {"<tool_call></tool_call>", "<tool_call>f<arg_key>n</arg_key></tool_call>",
        "<tool_call>f<arg_key>n</arg_key>x<arg_value>1</arg_value></tool_call>",
        "<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value>x</tool_call>",
        "<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value><arg_key>n</arg_key><arg_value>2"
        "</arg_value></tool_call>",
        "<tool_call>f<arg_key>n</arg_key><arg_value>1</tool_call>", "a <tool_call"}) {
    EXPECT_EQ(parse("keys", text), text);
  }
}

TEST(MarkedToolCalls, of_deepseek_come_in_two_forms) {
  const auto found = [](std::string_view answer) { return parse("separated", answer); };
  EXPECT_EQ(
      found("Look.<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>"
            "function<\uff5ctool\u2581sep\uff5c>f\n```json\n"
            "{\"n\": "
            "1}\n```<\uff5ctool\u2581call\u2581end\uff5c>\n<\uff5ctool\u2581call\u2581begin\uff5c>"
            "function<\uff5ctool\u2581sep\uff5c>g\n"
            "```json\n{}\n```<\uff5ctool\u2581call\u2581end\uff5c><"
            "\uff5ctool\u2581calls\u2581end\uff5c>"),
      R"(Look.[f {"n": 1}][g {}])");
  EXPECT_EQ(found("<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>"
                  "f<\uff5ctool\u2581sep\uff5c>{\"s\": "
                  "\"<\uff5ctool\u2581call\u2581end\uff5c>```json\"}<"
                  "\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>"),
            "[f {\"s\": \"<\uff5ctool\u2581call\u2581end\uff5c>```json\"}]");
  for (const char* const text :
       {"<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>",
        "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>f<"
        "\uff5ctool\u2581sep\uff5c>1<\uff5ctool\u2581call\u2581end\uff5c><"
        "\uff5ctool\u2581calls\u2581end\uff5c>",
        "<\uff5ctool\u2581calls\u2581begin\uff5c>f<\uff5ctool\u2581calls\u2581end\uff5c>",
        "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>f<"
        "\uff5ctool\u2581sep\uff5c>{\"n\": "}) {
    EXPECT_EQ(found(text), text);
  }
}

TEST(MarkedToolCalls, of_kimi_have_numbered_names) {
  const auto found = [](std::string_view answer) { return parse("numbered", answer); };
  EXPECT_EQ(found("So. <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
                  "<|tool_call_argument_begin|>{\"n\": 1}<|tool_call_end|><|tool_call_begin|>"
                  "functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
                  "<|tool_calls_section_end|>"),
            R"(So.[f {"n": 1}][g {}])");
  EXPECT_EQ(found("<|tool_calls_section_begin|><|tool_call_begin|>a.b:c<|tool_call_argument_begin|>"
                  "{}<|tool_call_end|><|tool_calls_section_end|>"),
            "[a.b:c {}]");
}

TEST(JsonAnswers, are_the_whole_answer) {
  EXPECT_EQ(as_answer("{\"name\": \"f\", \"parameters\": {\"n\": 1}}"), "[f {\"n\": 1}]");
  EXPECT_EQ(as_answer("\n{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"arguments\":{}}\n"),
            "[f {}][g {}]");
  for (const char* const text : {
           "{\"name\": \"Ada\", \"parameters\": {}}",
           "{\"name\": \"f\"}",
           "{\"name\": \"f\", ",
           "{\"name\": \"f\", \"parameters\": {}} and so on",
           "{\"a\": {}}",
           "{",
           "  ",
           "plain {",
           "{\"name\": \"f\", \"parameters\": {}}{\"name\": \"Ada\", \"parameters\": {}}",
           "f(n=1)",
       }) {
    EXPECT_EQ(as_answer(text), text);
  }
}

TEST(HarmonyToolCalls, are_messages_to_functions) {
  const auto parse = [](std::vector<Piece> given) {
    ToolCallParser parser(find_call_dialect("harmony"), tools(), "seed");
    std::vector<Piece> pieces;
    for (Piece& piece : given) {
      for (Piece& one : parser.push({piece})) pieces.push_back(std::move(one));
    }
    for (Piece& one : parser.finish()) pieces.push_back(std::move(one));
    return shown(pieces);
  };
  using enum Channel;
  EXPECT_EQ(parse({{kReasoning, {}, "hm", true},
                   {kCommentary, "functions.f", "{\"n\"", true},
                   {kCommentary, "functions.f", ": 1}", false},
                   {kCommentary, "functions.f", "{}", true},
                   {kAnswer, {}, "so", true}}),
            "(hm)[f {\"n\": 1}][f {}]so");
  EXPECT_EQ(parse({{kCommentary, "functions.f", "{\"n\"", true},
                   {kCommentary, "functions.f", ": ", false},
                   {kCommentary, "python", "1 + 1", true},
                   {kCommentary, {}, "I look", true},
                   {kAnswer, {}, "<tool_call>{\"name\":\"f\"}</tool_call>", true}}),
            "{functions.f:{\"n\"}{functions.f:: }{python:1 + 1}{:I look}"
            "<tool_call>{\"name\":\"f\"}</tool_call>");
}

TEST(ToolCalls, have_ids_of_their_own_and_are_looked_for_in_the_answer_alone) {
  std::set<std::string> ids;
  const std::string call = "<tool_call>{\"name\":\"f\"}</tool_call>";
  for (const char* const seed : {"a", "b"}) {
    ToolCallParser parser(find_call_dialect("json"), tools(), seed);
    for (const auto& piece : parser.push({{Channel::kAnswer, {}, call + call, true}})) {
      EXPECT_TRUE(piece.call_id.starts_with("call_"));
      ids.insert(piece.call_id);
    }
    EXPECT_EQ(parser.num_calls(), 2);
    const Piece thought = {Channel::kReasoning, {}, call, true};
    EXPECT_EQ(shown(parser.push({thought})), "(" + call + ")");
  }
  EXPECT_EQ(ids.size(), 4u);
  ToolCallParser without(find_call_dialect("json"), Value(), "a");
  EXPECT_EQ(shown(without.push({{Channel::kAnswer, {}, call, true}})), call);
}

/// Half a call ends where the answer does; nothing of it is shown before.
TEST(ToolCalls, are_never_shown_in_part) {
  ToolCallParser parser(find_call_dialect("json"), tools(), "seed");
  std::string seen;
  for (const char c : std::string("a <b> \n<tool_call>{\"name\": \"f\", \"arguments\"")) {
    seen += shown(parser.push({{Channel::kAnswer, {}, std::string(1, c), false}}));
  }
  EXPECT_EQ(seen, "a <b>");
  EXPECT_EQ(shown(parser.finish()), " \n<tool_call>{\"name\": \"f\", \"arguments\"");
}

/// Marks and braces at random: all text that is no call comes out as it went in.
TEST(ToolCalls, lose_no_text_of_answers_without_white_space) {
  const std::string_view parts[] = {"<tool_call>",
                                    "</tool_call>",
                                    "{\"name\":\"f\"",
                                    "}",
                                    "\"",
                                    "<function=f>",
                                    "</function>",
                                    "<parameter=s>",
                                    "</parameter>",
                                    "x",
                                    "\\",
                                    "<",
                                    "{",
                                    "[TOOL_CALLS]",
                                    "f[ARGS]{}",
                                    "<|tool_call|>",
                                    "<|tool_call_start|>",
                                    "f(n=1)",
                                    "<|tool_call_end|>",
                                    "<function_calls>",
                                    "</function_calls>",
                                    "<tool_calls>",
                                    "<seed:tool_call>",
                                    "</seed:tool_call>",
                                    "call:f{n:1}",
                                    "<tool_call|>"};
  Random random(7);
  for (int round = 0; round < testing::num_random_cases(300, 1000); ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += parts[random.next() % std::size(parts)];
    for (const std::string_view dialect :
         {"json", "functions", "invokes", "keys", "separated", "numbered", "json_answer",
          "bare_keys", "seed_functions", "python_list", "python_lines", "named_json",
          "json_toolcall", "json_tool_calls", "json_to_the_end"}) {
      const std::string found = parse(dialect, text, 1 + round % 9);
      EXPECT_EQ(parse(dialect, text, 200), found) << text;
      if (found.find('[') == std::string::npos) {
        EXPECT_EQ(found, text);
      }
    }
  }
}

TEST(CallDialects, are_chosen_by_what_the_template_writes) {
  const auto dialect = [](std::string_view source) -> std::string_view {
    const auto chat = ChatTemplate::compile(source, "chat_template.jinja");
    const CallDialect* const found = call_dialect_of(ChatFormat::kChatMl, &*chat);
    return found == nullptr ? "" : found->name;
  };
  EXPECT_EQ(dialect("{{ '<tool_call>\n{\"name\": ' }}"), "json");
  EXPECT_EQ(dialect("{{ '<tool_call>\n<function=' }}"), "functions");
  EXPECT_EQ(dialect("{{ '<seed:tool_call>\n<function=' }}"), "seed_functions");
  EXPECT_EQ(dialect("{{ '<tool_call>f<arg_key>' }}"), "keys");
  EXPECT_EQ(dialect("{{ '<minimax:tool_call>' }}"), "invokes");
  EXPECT_EQ(dialect("{{ '<\uff5ctool\u2581call\u2581begin\uff5c>' }}"), "separated");
  EXPECT_EQ(dialect("{{ '<|tool_call_argument_begin|>' }}"), "numbered");
  EXPECT_EQ(dialect("{{ '<|tool_list_start|>' }}"), "python_list");
  EXPECT_EQ(dialect("{{ '<|tool_call_start|>' }}"), "python_list");
  EXPECT_EQ(dialect("{{ '[TOOL_CALLS]' }}"), "named_json");
  EXPECT_EQ(dialect("{{ '<TOOLCALL>[' }}"), "json_toolcall");
  EXPECT_EQ(dialect("{{ '<tool_calls>[' }}"), "json_tool_calls");
  EXPECT_EQ(dialect("{{ '<|tool_call|>' }}"), "json_to_the_end");
  EXPECT_EQ(dialect("{{ '<function_calls>' }}"), "python_lines");
  EXPECT_EQ(dialect("{{ '<|python_tag|>' }}"), "json_answer");
  EXPECT_EQ(dialect("{{ messages }}"), "");
  EXPECT_EQ(call_dialect_of(ChatFormat::kHarmony, nullptr), find_call_dialect("harmony"));
  EXPECT_EQ(call_dialect_of(ChatFormat::kChatMl, nullptr), nullptr);
}

}  // namespace
}  // namespace subbyte
