#include "text/tool_calls.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "text/call_text.h"
#include "text/chat_template.h"
#include "text/python_literal.h"

namespace subbyte {
namespace {

constexpr CallMarks kToolCall = {"<tool_call>", "</tool_call>"};
constexpr CallMarks kFunction = {"<function=", "</function>"};

// A template is of the first one that has a sign in it.
constexpr CallDialect kDialects[] = {
    // Gemma 4: <|tool_call>call:f{x:1,s:<|"|>text<|"|>}<tool_call|>
    {.name = "bare_keys",
     .signs = "<|tool_call>call:",
     .call = {"<|tool_call>", "<tool_call|>"},
     .read = parse_bare_key_call,
     .inner_marks = {kQuoteMark}},
    // Seed-OSS: <seed:tool_call><function=f><parameter=x>1</parameter></function></seed:tool_call>
    {.name = "seed_functions",
     .signs = "<seed:tool_call>",
     .section = {"<seed:tool_call>", "</seed:tool_call>"},
     .call = kFunction,
     .read = parse_function},
    // Qwen3-Coder, Qwen3.5, Nemotron 3: the same between <tool_call> and </tool_call>
    {.name = "functions",
     .signs = "<function=",
     .section = kToolCall,
     .call = kFunction,
     .read = parse_function},
    // MiniMax-M2: <minimax:tool_call><invoke name="f"><parameter name="x">1</parameter></invoke>
    // </minimax:tool_call>
    {.name = "invokes",
     .signs = "<minimax:tool_call>",
     .section = {"<minimax:tool_call>", "</minimax:tool_call>"},
     .call = {"<invoke name=", "</invoke>"},
     .read = parse_invoke},
    // GLM: <tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>
    {.name = "keys", .signs = "<arg_key>", .call = kToolCall, .read = parse_keyed_call},
    // DeepSeek: <tool_call_begin>f<tool_sep>{"x": 1}<tool_call_end>, with bars of full width
    {.name = "separated",
     .signs = "<\uff5ctool\u2581call\u2581begin\uff5c>",
     .section = {"<\uff5ctool\u2581calls\u2581begin\uff5c>",
                 "<\uff5ctool\u2581calls\u2581end\uff5c>"},
     .call = {"<\uff5ctool\u2581call\u2581begin\uff5c>", "<\uff5ctool\u2581call\u2581end\uff5c>"},
     .read = parse_deepseek_call,
     .inner_marks = {kDeepSeekMark}},
    // Kimi: <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"x": 1}<|tool_call_end|>
    {.name = "numbered",
     .signs = kKimiMark,
     .section = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
     .call = {"<|tool_call_begin|>", "<|tool_call_end|>"},
     .read = parse_kimi_call,
     .inner_marks = {kKimiMark}},
    // LFM2: <|tool_call_start|>[f(x=1), g()]<|tool_call_end|>
    {.name = "python_list",
     .signs = "<|tool_call_start|> <|tool_list_start|>",
     .call = {"<|tool_call_start|>", "<|tool_call_end|>"},
     .read = parse_python_calls,
     .quotes_texts = true},
    // OLMo 3: the same without brackets, one in each line
    {.name = "python_lines",
     .signs = "<function_calls>",
     .call = {"<function_calls>", "</function_calls>"},
     .read = parse_python_calls,
     .quotes_texts = true},
    // Mistral: [TOOL_CALLS]f[ARGS]{"x": 1}, some of these; older ones [TOOL_CALLS] and a list
    {.name = "named_json",
     .signs = "[TOOL_CALLS]",
     .call = {"[TOOL_CALLS]", ""},
     .read = parse_named_json_calls,
     .inner_marks = {kArgumentsMark, kIdMark},
     .has_short_ids = true},
    // Nemotron: <TOOLCALL>[{"name": "f", "arguments": {"x": 1}}]</TOOLCALL>
    {.name = "json_toolcall",
     .signs = "<TOOLCALL>",
     .call = {"<TOOLCALL>", "</TOOLCALL>"},
     .read = parse_json_calls,
     .quotes_texts = true},
    // Hunyuan: <tool_calls>[{"name": "f", "arguments": {"x": 1}}]</tool_calls>
    {.name = "json_tool_calls",
     .signs = "<tool_calls>",
     .call = {"<tool_calls>", "</tool_calls>"},
     .read = parse_json_calls,
     .quotes_texts = true},
    // Granite 3: <|tool_call|>[{"name": "f", "arguments": {"x": 1}}]
    {.name = "json_to_the_end",
     .signs = "<|tool_call|>",
     .call = {"<|tool_call|>", ""},
     .read = parse_named_json_calls},
    // Qwen, Hermes and many: <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>
    {.name = "json",
     .signs = "<tool_call>",
     .call = kToolCall,
     .read = parse_json_calls,
     .quotes_texts = true},
    // Llama 3.1 and later: {"name": "f", "parameters": {"x": 1}}, as they are told, and the name of
    // the tool of theirs that does not
    {.name = "json_answer", .signs = "<|python_tag|> \"parameters\":", .read = parse_json_answer},
    // gpt-oss: a message in commentary to functions.f
    {.name = "harmony", .signs = ""}};

/// Calls `use` with each part of a list with blanks, until it returns true; whether it did.
template <typename Use>
bool any_of_parts(std::string_view list, const Use& use) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(' '), list.size());
    if (use(list.substr(0, end))) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

const CallDialect* find_call_dialect(std::string_view name) {
  const auto found = std::ranges::find(kDialects, name, &CallDialect::name);
  return found == std::end(kDialects) ? nullptr : found;
}

const CallDialect* call_dialect_of(ChatFormat format, const ChatTemplate* chat_template) {
  if (format == ChatFormat::kHarmony) return find_call_dialect("harmony");
  if (chat_template == nullptr) return nullptr;
  const auto found = std::ranges::find_if(kDialects, [&](const CallDialect& dialect) {
    return any_of_parts(dialect.signs,
                        [&](std::string_view sign) { return chat_template->contains(sign); });
  });
  return found == std::end(kDialects) ? nullptr : found;
}

bool is_mark_of_calls(std::string_view token) {
  return !token.empty() && std::ranges::any_of(kDialects, [&](const CallDialect& dialect) {
    const auto& [section, call] = std::pair(dialect.section, dialect.call);
    return token == section.open || token == section.close || token == call.open ||
           token == call.close ||
           std::ranges::find(dialect.inner_marks, token) != dialect.inner_marks.end();
  });
}

CallText parse_python_calls(std::string_view text, const json::Value& /*tools*/) {
  PythonCalls found = read_python_calls(text);
  if (!found.is_read) return {found.is_open ? CallText::Kind::kOpen : CallText::Kind::kNone};
  CallText result = {CallText::Kind::kCalls};
  for (auto& [name, arguments] : found.calls) {
    result.calls.push_back({std::move(name), std::move(arguments)});
  }
  return result;
}

const json::Value* find_function(const json::Value& tools, std::string_view name) {
  if (!tools.is_array()) return nullptr;
  for (const json::Value& tool : tools) {
    if (!tool.is_object()) continue;
    const auto inner = tool.find("function");
    const json::Value& function = inner != nullptr && inner->is_object() ? *inner : tool;
    const auto found = function.find("name");
    if (found != nullptr && found->is_string() && found->string() == name) {
      return &function;
    }
  }
  return nullptr;
}

}  // namespace subbyte
