// Calls of tools in JSON. Arguments are cut out of the text, so that numbers keep their digits.

#include <optional>
#include <utility>

#include "text/call_text.h"
#include "text/tool_calls.h"

namespace subbyte {
namespace {

using json::Value;
using Kind = CallText::Kind;

/// The text of a member of an object, which is known to be JSON; empty where its name is written
/// with escapes.
std::string_view member_text(std::string_view object, std::string_view key) {
  bool in_string = false;
  for (std::size_t at = object.find('"'); at < object.size();) {
    const std::size_t name_end = at + end_of_json(object.substr(at), in_string);
    const std::string_view name = object.substr(at + 1, name_end - at - 2);
    const std::size_t value = object.find_first_not_of(kCallSpace, object.find(':', name_end) + 1);
    std::size_t end = object.find_first_of(",}", value);
    if (object[value] == '"' || object[value] == '{' || object[value] == '[') {
      end = value + end_of_json(object.substr(value), in_string);
    }
    if (name == key) return trimmed_call(object.substr(value, end - value));
    at = object.find('"', end);
  }
  return {};
}

/// An object in JSON, or one that is written as a text.
std::optional<std::string> arguments_of(const Value& value, std::string_view written) {
  if (value.is_object()) return std::string(written.empty() ? json::to_text(value) : written);
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.string();
  const auto inner = json::parse(text, "arguments", {}, json::kTextMemoryFactor);
  if (!inner.ok() || !inner->is_object()) return std::nullopt;
  return text;
}

/// One call; `written` is its text, or empty.
std::optional<ToolCall> call_of(const Value& value, std::string_view written) {
  if (!value.is_object()) return std::nullopt;
  const auto name = value.find("name");
  if (name == nullptr || !name->is_string()) return std::nullopt;
  ToolCall call = {name->get<std::string>(), "{}"};
  if (call.name.empty()) return std::nullopt;
  for (const char* const key : {"arguments", "parameters"}) {
    const auto found = value.find(key);
    if (found == nullptr || found->is_null()) continue;
    auto arguments = arguments_of(*found, member_text(written, key));
    if (!arguments) return std::nullopt;
    call.arguments = *std::move(arguments);
    break;
  }
  return call;
}

}  // namespace

std::size_t end_of_json(std::string_view text, bool& in_string) {
  int64_t depth = 0;
  in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c != '"' && c != '\n') continue;
      in_string = false;
      if (c == '\n') break;
    } else if (c == '"') {
      in_string = true;
      continue;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (depth > 0) {
      continue;
    }
    if (depth <= 0) return i + 1;
  }
  return std::string_view::npos;
}

CallText parse_json_calls(std::string_view text, const Value& /*tools*/) {
  text = trimmed_call(text);
  if (text.empty() || (text[0] != '{' && text[0] != '[')) return {};
  const auto value = json::parse(text, "tool_call", {}, json::kTextMemoryFactor);
  if (!value.ok()) {
    bool in_string = false;
    const bool ends = end_of_json(text, in_string) != std::string_view::npos;
    return {!ends && in_string ? Kind::kOpen : Kind::kNone};
  }
  CallText result = {Kind::kCalls};
  if (!value->is_array()) {
    auto call = call_of(*value, text);
    if (!call) return {};
    result.calls.push_back(*std::move(call));
    return result;
  }
  std::string_view rest = text.substr(1);
  for (const Value& entry : *value) {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n,"), rest.size()));
    bool in_string = false;
    const std::size_t end = std::min(end_of_json(rest, in_string), rest.size());
    auto call = call_of(entry, rest.substr(0, end));
    if (!call) return {};
    result.calls.push_back(*std::move(call));
    rest.remove_prefix(end);
  }
  return result.calls.empty() ? CallText{} : result;
}

CallText parse_json_answer(std::string_view text, const Value& tools) {
  CallText result = {Kind::kCalls};
  for (text = trimmed_call(text); !text.empty();) {
    bool in_string = false;
    const std::size_t end = text[0] == '{' ? end_of_json(text, in_string) : std::string_view::npos;
    if (end == std::string_view::npos) return {};
    const std::string_view object = text.substr(0, end);
    CallText one = parse_json_calls(object, tools);
    const bool is_call =
        one.kind == Kind::kCalls && find_function(tools, one.calls[0].name) &&
        (!member_text(object, "parameters").empty() || !member_text(object, "arguments").empty());
    if (!is_call) return {};
    result.calls.push_back(std::move(one.calls[0]));
    const std::size_t next = text.find_first_not_of(" \t\r\n;", end);
    text = next == std::string_view::npos ? std::string_view() : text.substr(next);
  }
  return result.calls.empty() ? CallText{} : result;
}

}  // namespace subbyte
