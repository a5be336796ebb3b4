// Calls of tools with marks of their own around each, as DeepSeek and Kimi write them.

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "json/strict_json.h"
#include "text/tool_calls.h"

namespace subbyte {
namespace {

using Kind = CallText::Kind;

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kBlock = "```json";
constexpr std::string_view kBlockEnd = "```";
constexpr std::string_view kFunctions = "functions.";

struct CallMarks {
  std::string_view begin, between, end;
};
constexpr CallMarks kDeepSeek = {"<\uff5ctool\u2581call\u2581begin\uff5c>",
                                 "<\uff5ctool\u2581sep\uff5c>",
                                 "<\uff5ctool\u2581call\u2581end\uff5c>"};
constexpr CallMarks kKimi = {"<|tool_call_begin|>", "<|tool_call_argument_begin|>",
                             "<|tool_call_end|>"};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, std::max(text.find_last_not_of(kSpace) + 1, begin) - begin);
}

/// "functions.f:0" is a call of f.
std::string_view function_of(std::string_view id) {
  if (id.starts_with(kFunctions)) id.remove_prefix(kFunctions.size());
  const std::size_t colon = id.rfind(':');
  const bool is_numbered = colon != id.npos && colon + 1 < id.size() &&
                           id.find_first_not_of("0123456789", colon + 1) == id.npos;
  return is_numbered ? id.substr(0, colon) : id;
}

/// A call with what stands before the mark between and after it; nullopt where that is none.
std::optional<ToolCall> call_of(std::string_view before, std::string_view after,
                                ToolCallStyle style) {
  std::string_view name = trimmed(before);
  const std::size_t block = style == ToolCallStyle::kDeepSeek ? after.find(kBlock) : after.npos;
  if (block != after.npos && after.find('{') > block) {
    name = trimmed(after.substr(0, block));
    after.remove_prefix(block + kBlock.size());
    const std::size_t end = after.rfind(kBlockEnd);
    if (end == after.npos) return std::nullopt;
    after = after.substr(0, end);
  }
  if (style == ToolCallStyle::kKimi) name = function_of(name);
  after = trimmed(after);
  if (after.empty()) after = "{}";  // of a function that takes none
  const auto arguments = json::parse(after, "arguments", {}, json::kTextMemoryFactor);
  if (name.empty() || !arguments.ok() || !arguments->is_object()) return std::nullopt;
  return ToolCall{std::string(name), std::string(after)};
}

}  // namespace

CallText parse_marked_calls(std::string_view text, ToolCallStyle style) {
  const CallMarks& marks = style == ToolCallStyle::kKimi ? kKimi : kDeepSeek;
  CallText result = {Kind::kCalls};
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    if (!text.starts_with(marks.begin)) return {};
    text.remove_prefix(marks.begin.size());
    const std::size_t between = text.find(marks.between);
    if (between == text.npos) return {};
    const std::string_view before = text.substr(0, between);
    text.remove_prefix(between + marks.between.size());
    std::optional<ToolCall> call;
    for (std::size_t end = text.find(marks.end); end != text.npos && !call;) {
      call = call_of(before, text.substr(0, end), style);
      const std::size_t after = end + marks.end.size();
      end = text.find(marks.end, after);
      if (call) text.remove_prefix(after);
    }
    if (!call) return {text.find(marks.end) == text.npos ? Kind::kOpen : Kind::kNone};
    result.calls.push_back(*std::move(call));
  }
  return result.calls.empty() ? CallText{} : result;
}

}  // namespace subbyte
