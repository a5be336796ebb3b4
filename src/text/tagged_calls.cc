#include "text/tagged_calls.h"

#include <algorithm>
#include <utility>

namespace subbyte {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
/// The text is read anew for each mark that may end it.
constexpr int kMaxTries = 16;

/// How much of the end of a text may be the beginning of a mark.
std::size_t begun(std::string_view text, std::string_view mark) {
  for (std::size_t count = std::min(text.size(), mark.size() - 1); count > 0; --count) {
    if (text.ends_with(mark.substr(0, count))) return count;
  }
  return 0;
}

}  // namespace

TaggedCalls::Marks TaggedCalls::tag_of(ToolCallStyle style) {
  if (style == ToolCallStyle::kDeepSeek)
    return {"<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>"};
  if (style == ToolCallStyle::kKimi) {
    return {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"};
  }
  if (style == ToolCallStyle::kInvokes) return {"<minimax:tool_call>", "</minimax:tool_call>"};
  if (style == ToolCallStyle::kBareKeys) return {"<|tool_call>", "<tool_call|>"};
  return {"<tool_call>", "</tool_call>"};
}

TaggedCalls::TaggedCalls(ToolCallStyle style, json::Value tools)
    : style_(style), tag_(tag_of(style)), tools_(std::move(tools)), marks_(tag_) {}

void TaggedCalls::push(const Piece& piece, std::vector<Piece>& pieces) {
  begins_message_ = begins_message_ || piece.begins_message;
  held_ += piece.text;
  while (in_call_ ? end_call(false, pieces) : find_call(false, pieces)) {
  }
}

void TaggedCalls::finish(std::vector<Piece>& pieces) {
  while (in_call_ ? end_call(true, pieces) : find_call(true, pieces)) {
  }
}

std::size_t TaggedCalls::opening(std::size_t from) const {
  const std::size_t tag = held_.find(tag_.open, from);
  if (style_ != ToolCallStyle::kXml) return tag;
  return std::min(tag, held_.find(kFunction.open, from));
}

/// The last one of a call that begins after the first, before `end`; npos where there is none.
std::size_t TaggedCalls::last_opening(std::size_t end) const {
  const std::string_view body = std::string_view(held_).substr(0, end);
  const std::size_t tag = body.rfind(tag_.open);
  if (tag != std::string_view::npos && tag >= body_) return tag;
  const std::size_t function = style_ == ToolCallStyle::kXml ? body.rfind(kFunction.open) : tag;
  return function != std::string_view::npos && function >= body_ ? function : std::string::npos;
}

/// How much of what is held is text, and no call or white space before one can begin in it.
std::size_t TaggedCalls::certain() const {
  std::size_t open = begun(held_, tag_.open);
  if (style_ == ToolCallStyle::kXml) open = std::max(open, begun(held_, kFunction.open));
  if (lacks_front_) open = std::max(open, begun(held_, tag_.close));
  const std::size_t end = held_.find_last_not_of(kSpace, held_.size() - open - 1);
  return open == held_.size() || end == std::string::npos ? 0 : end + 1;
}

void TaggedCalls::drop_space_after_call() {
  const auto skip_space = [&] {
    held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size()));
  };
  skip_space();
  if (!lacks_front_ || !held_.starts_with(tag_.close)) return;
  held_.erase(0, tag_.close.size());
  lacks_front_ = false;
  skip_space();
}

/// Looks for the beginning of a call. Whether something is left to do.
bool TaggedCalls::find_call(bool at_end, std::vector<Piece>& pieces) {
  if (follows_call_) drop_space_after_call();
  const std::size_t begin = opening(0);
  if (begin != std::string::npos) {
    const std::size_t text_end = std::string_view(held_).substr(0, begin).find_last_not_of(kSpace);
    const std::size_t count = text_end == std::string::npos ? 0 : text_end + 1;
    emit(count, pieces);
    begin_call(begin - count);
    return true;
  }
  emit(at_end ? held_.size() : certain(), pieces);
  return false;
}

void TaggedCalls::begin_call(std::size_t begin) {
  const bool is_tag = std::string_view(held_).substr(begin).starts_with(tag_.open);
  in_call_ = true;
  marks_ = is_tag ? tag_ : kFunction;
  body_ = begin + marks_.open.size();
  from_ = body_;
  tries_ = 0;
}

CallText TaggedCalls::parse(std::size_t end, bool is_closed) const {
  const bool is_tag = marks_.open == tag_.open;
  const std::size_t begin = is_tag ? body_ : body_ - marks_.open.size();
  const std::size_t last = is_tag || !is_closed ? end : end + marks_.close.size();
  const std::string_view text = std::string_view(held_).substr(begin, last - begin);
  if (style_ == ToolCallStyle::kXml || style_ == ToolCallStyle::kInvokes) {
    return parse_xml_calls(text, style_, tools_);
  }
  if (style_ == ToolCallStyle::kKeys) return parse_keyed_calls(text, tools_);
  if (style_ == ToolCallStyle::kBareKeys) return parse_bare_key_call(text);
  return style_ == ToolCallStyle::kJson ? parse_json_calls(text) : parse_marked_calls(text, style_);
}

/// Looks for the end of the call that is held. Whether something is left to do.
bool TaggedCalls::end_call(bool at_end, std::vector<Piece>& pieces) {
  const std::size_t found = held_.find(marks_.close, from_);
  const bool is_closed = found != std::string::npos;
  if (!is_closed && !at_end) {
    from_ = std::max(body_, held_.size() - std::min(held_.size(), marks_.close.size() - 1));
    return false;
  }
  const CallText text = parse(is_closed ? found : held_.size(), is_closed);
  const std::size_t end = is_closed ? found + marks_.close.size() : held_.size();
  if (text.kind == CallText::Kind::kOpen && is_closed && ++tries_ < kMaxTries) {
    from_ = end;
    return true;
  }
  if (text.kind != CallText::Kind::kCalls) {
    fail(end, pieces);
    return true;
  }
  for (const ToolCall& call : text.calls) {
    pieces.push_back({Channel::kToolCall, call.name, call.arguments, true});
  }
  held_.erase(0, end);
  in_call_ = false;
  follows_call_ = true;
  lacks_front_ = marks_.open != tag_.open;
  return true;
}

/// What is held up to `end` is text, unless another call begins in it.
void TaggedCalls::fail(std::size_t end, std::vector<Piece>& pieces) {
  const std::size_t next = last_opening(end);
  in_call_ = false;
  if (next == std::string::npos) return emit(end, pieces);
  const std::size_t count = std::string_view(held_).substr(0, next).find_last_not_of(kSpace) + 1;
  emit(count, pieces);
  begin_call(next - count);
}

void TaggedCalls::emit(std::size_t count, std::vector<Piece>& pieces) {
  if (count == 0) return;
  follows_call_ = false;
  lacks_front_ = false;
  pieces.push_back(
      {Channel::kAnswer, {}, held_.substr(0, count), std::exchange(begins_message_, false)});
  held_.erase(0, count);
}

}  // namespace subbyte
