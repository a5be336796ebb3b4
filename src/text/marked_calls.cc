// Calls with a mark between a name and an object in JSON, as DeepSeek, Kimi and Mistral write them.

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "json/strict_json.h"
#include "text/call_text.h"
#include "text/tool_calls.h"

namespace subbyte {
namespace {

using Kind = CallText::Kind;

constexpr std::string_view kBlock = "```json";
constexpr std::string_view kBlockEnd = "```";
constexpr std::string_view kFunctions = "functions.";

/// What stands before and after the first mark.
std::optional<std::pair<std::string_view, std::string_view>> parts_of(std::string_view text,
                                                                      std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  return std::pair(trimmed_call(text.substr(0, at)), trimmed_call(text.substr(at + mark.size())));
}

/// A call with such arguments, none of which are an empty text.
CallText call_of(std::string_view name, std::string_view arguments, std::string_view id = {}) {
  if (arguments.empty()) arguments = "{}";
  const auto parsed = json::parse(arguments, "arguments", {}, json::kTextMemoryFactor);
  if (!parsed.ok()) {
    bool in_string = false;
    const bool ends = end_of_json(arguments, in_string) != std::string_view::npos;
    return {!ends && in_string ? Kind::kOpen : Kind::kNone};
  }
  if (name.empty() || !parsed->is_object()) return {};
  CallText result = {Kind::kCalls};
  result.calls.push_back({std::string(name), std::string(arguments), std::string(id)});
  return result;
}

/// Says whether an id is that of a call that Kimi numbers: "functions.f:0".
bool is_numbered(std::string_view id) {
  const std::size_t colon = id.rfind(':');
  return colon != id.npos && colon + 1 < id.size() &&
         id.find_first_not_of("0123456789", colon + 1) == id.npos;
}

}  // namespace

CallText parse_deepseek_call(std::string_view text, const json::Value& /*tools*/) {
  const auto parts = parts_of(text, kDeepSeekMark);
  if (!parts) return {};
  const auto& [name, after] = *parts;
  const std::size_t block = after.find(kBlock);
  if (block == after.npos || after.find('{') < block) return call_of(name, after);
  const std::string_view inner = after.substr(block + kBlock.size());
  const std::size_t end = inner.rfind(kBlockEnd);
  if (end == inner.npos) return {Kind::kOpen};
  return call_of(trimmed_call(after.substr(0, block)), trimmed_call(inner.substr(0, end)));
}

CallText parse_kimi_call(std::string_view text, const json::Value& /*tools*/) {
  const auto parts = parts_of(text, kKimiMark);
  if (!parts) return {};
  const std::string_view id = parts->first;
  std::string_view name = id;
  if (name.starts_with(kFunctions)) name.remove_prefix(kFunctions.size());
  if (!is_numbered(id)) return call_of(name, parts->second);
  return call_of(name.substr(0, name.rfind(':')), parts->second, id);
}

CallText parse_named_json_calls(std::string_view text, const json::Value& tools) {
  const std::size_t begin = std::min(text.find('{'), text.size());
  const std::string_view written = trimmed_call(text);
  bool in_string = false;
  const auto end_of = [&](std::string_view value) {
    return std::min(end_of_json(value, in_string), value.size());
  };
  CallText result;
  if (written.starts_with('[') || written.starts_with('{')) {
    const std::size_t end = end_of(written);
    result = parse_json_calls(written.substr(0, end), tools);
    const auto before = static_cast<std::size_t>(written.data() - text.data());
    result.rest = text.size() - before - end;
    return result;
  }
  const std::string_view value = text.substr(begin);
  const std::size_t end = end_of(value);
  std::string_view head = trimmed_call(text.substr(0, begin));
  const bool has_mark = head.ends_with(kArgumentsMark);
  if (has_mark) head.remove_suffix(kArgumentsMark.size());
  std::string_view id;
  if (const auto parts = parts_of(head, kIdMark)) std::tie(head, id) = *parts;
  const bool is_name = head.find_first_of(" \t\r\n<>[]\"") == head.npos;
  if (!is_name || (value.empty() && !has_mark)) return {};
  result = call_of(head, value.substr(0, end), id);
  result.rest = value.size() - end;
  return result;
}

}  // namespace subbyte
