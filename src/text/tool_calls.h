#pragma once
// Calls of tools that a model writes into its answer, in one of these ways:
//
//   kJson        <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>      Qwen, Hermes
//   kXml         <tool_call><function=f><parameter=x>1</parameter></function></tool_call>
//                                                                     Qwen3-Coder, Qwen3.5
//   kInvokes     <minimax:tool_call><invoke name="f"><parameter name="x">1</parameter></invoke>
//                </minimax:tool_call>
//   kKeys        <tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>      GLM
//   kDeepSeek    <tool_call_begin>f<tool_sep>{"x": 1}<tool_call_end>, some of these between
//                <tool_calls_begin> and <tool_calls_end>, with bars of full width
//   kKimi        <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"x": 1}
//                <|tool_call_end|>, some of these in a section
//   kJsonAnswer  {"name": "f", "parameters": {"x": 1}} as the whole answer         Llama 3
//   kBareKeys    <|tool_call>call:f{x:1,s:<|"|>text<|"|>}<tool_call|>              Gemma 4
//   kHarmony     a message in commentary to functions.f                            gpt-oss
//
// What does not parse stays the text that it is.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "json/strict_json.h"
#include "text/chat.h"

namespace subbyte {

class ChatTemplate;

enum class ToolCallStyle : uint8_t {
  kNone,
  kJson,
  kXml,
  kInvokes,
  kKeys,
  kDeepSeek,
  kKimi,
  kBareKeys,
  kJsonAnswer,
  kHarmony
};

/// The way of a model, by what its template writes of earlier calls; of harmony by the format.
ToolCallStyle tool_call_style(ChatFormat format, const ChatTemplate* chat_template);

struct ToolCall {
  std::string name;
  std::string arguments;  // an object in JSON
};

/// Result of reading a text that should hold calls. `kOpen`: it ends inside of a value, to
/// which a mark that looked like its end may belong.
struct CallText {
  enum class Kind : uint8_t { kCalls, kOpen, kNone };
  Kind kind = Kind::kNone;
  std::vector<ToolCall> calls = {};
};

/// Calls in JSON, one or a list: "name" and "arguments" or "parameters", which are kept as they are
/// written. Without them a call has none: {}.
CallText parse_json_calls(std::string_view text);

/// Objects one after the other, with white space or ';' between them. Each has arguments, and the
/// name of one of `tools`: an answer in JSON may look like a call.
CallText parse_json_answer(std::string_view text, const json::Value& tools);

/// Functions with parameters, of which `tools` say what is no text: a value that is not of a type
/// that its parameter has is a text.
/// `style` is kXml or kInvokes.
CallText parse_xml_calls(std::string_view text, ToolCallStyle style, const json::Value& tools);

/// A name with keys and values, of which `tools` say the same.
CallText parse_keyed_calls(std::string_view text, const json::Value& tools);

/// Calls that begin and end with marks of their own: those of kDeepSeek, or of kKimi. In the former
/// a type may stand before the mark between, and the name and a block of JSON after it.
CallText parse_marked_calls(std::string_view text, ToolCallStyle style);

/// One call of such, "call:NAME{...}".
CallText parse_bare_key_call(std::string_view text);

/// The description of a function in a list of tools; nullptr for none of them.
const json::Value* find_function(const json::Value& tools, std::string_view name);

}  // namespace subbyte
