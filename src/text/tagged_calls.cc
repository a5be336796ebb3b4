#include "text/tagged_calls.h"

#include <algorithm>
#include <utility>

#include "text/call_text.h"

namespace subbyte {
namespace {

constexpr std::size_t kNone = std::string_view::npos;
/// The text is read anew for each mark that may end it.
constexpr int kMaxTries = 16;

/// How much of the end of a text may be the beginning of a mark.
std::size_t begun(std::string_view text, std::string_view mark) {
  if (mark.empty()) return 0;
  for (std::size_t count = std::min(text.size(), mark.size() - 1); count > 0; --count) {
    if (text.ends_with(mark.substr(0, count))) return count;
  }
  return 0;
}

/// Where a mark is; there is none where it is empty.
std::size_t find(std::string_view text, std::string_view mark, std::size_t from) {
  return mark.empty() ? kNone : text.find(mark, from);
}

std::size_t without_space(std::string_view text) {
  return text.find_last_not_of(kCallSpace) + 1;  // npos + 1 is 0
}

}  // namespace

TaggedCalls::TaggedCalls(const CallDialect& dialect, json::Value tools)
    : dialect_(&dialect), tools_(std::move(tools)) {}

void TaggedCalls::push(const Piece& piece, std::vector<Piece>& pieces) {
  begins_message_ = begins_message_ || piece.begins_message;
  held_ += piece.text;
  while (in_call_ ? end_call(false, pieces) : find_call(false, pieces)) {
  }
}

void TaggedCalls::finish(std::vector<Piece>& pieces) {
  while (in_call_ ? end_call(true, pieces) : find_call(true, pieces)) {
  }
  in_section_ = false;
}

/// How much of what is held is text, and no call or white space before one can begin in it.
std::size_t TaggedCalls::certain() const {
  std::size_t open =
      std::max(begun(held_, dialect_->section.open), begun(held_, dialect_->call.open));
  if (may_close_section()) open = std::max(open, begun(held_, dialect_->section.close));
  return without_space(std::string_view(held_).substr(0, held_.size() - open));
}

void TaggedCalls::drop_space_after_call() {
  const auto skip_space = [&] {
    held_.erase(0, std::min(held_.find_first_not_of(kCallSpace), held_.size()));
  };
  skip_space();
  const std::string_view close = dialect_->section.close;
  if (!may_close_section() || !held_.starts_with(close)) return;
  held_.erase(0, close.size());
  in_section_ = lacks_front_ = false;
  skip_space();
}

/// Looks for the beginning of a call. Whether something is left to do.
bool TaggedCalls::find_call(bool at_end, std::vector<Piece>& pieces) {
  if (follows_call_) drop_space_after_call();
  const std::size_t call = held_.find(dialect_->call.open);
  const std::size_t section = find(held_, dialect_->section.open, 0);
  const std::size_t close = in_section_ ? find(held_, dialect_->section.close, 0) : kNone;
  const std::size_t first = std::min({call, section, close});
  if (first == kNone) {
    emit(at_end ? held_.size() : certain(), pieces);
    return false;
  }
  if (first == call) {
    begin_call(call, pieces);
    return true;
  }
  if (first == section) return open_section(section, at_end, pieces);
  emit(without_space(std::string_view(held_).substr(0, close)), pieces);
  follows_call_ = true;  // what is left before the mark is white space
  return true;
}

/// The mark of a section is one where a call comes next. Whether something is left to do.
bool TaggedCalls::open_section(std::size_t begin, bool at_end, std::vector<Piece>& pieces) {
  const std::size_t end = begin + dialect_->section.open.size();
  const std::size_t next = std::min(held_.find_first_not_of(kCallSpace, end), held_.size());
  const std::string_view rest = std::string_view(held_).substr(next);
  if (rest.starts_with(dialect_->call.open)) {
    begin_call(next, pieces);
    opens_section_ = true;
    return true;
  }
  const bool is_open = !at_end && dialect_->call.open.starts_with(rest);
  emit(is_open ? without_space(std::string_view(held_).substr(0, begin)) : end, pieces);
  return !is_open;
}

/// `call` is where its mark is. What stands before it, and before the mark of its section, is text.
void TaggedCalls::begin_call(std::size_t call, std::vector<Piece>& pieces) {
  std::string_view text = std::string_view(held_).substr(0, call);
  text = text.substr(0, without_space(text));
  opens_section_ = !dialect_->section.open.empty() && text.ends_with(dialect_->section.open);
  if (opens_section_) text.remove_suffix(dialect_->section.open.size());
  const std::size_t count = without_space(text);
  emit(count, pieces);
  in_call_ = true;
  body_ = call - count + dialect_->call.open.size();
  from_ = body_;
  tries_ = 0;
}

/// The first mark that may end the call; npos where none has come.
TaggedCalls::End TaggedCalls::find_end() const {
  const CallMarks& call = dialect_->call;
  const std::size_t end = held_.find(call.close.empty() ? call.open : call.close, from_);
  const std::size_t section = find(held_, dialect_->section.close, from_);
  if (section < end) return {section, section};
  return {end, end == kNone ? kNone : end + call.close.size()};
}

/// Says whether a call comes next, white space aside.
bool TaggedCalls::begins_call(std::size_t from) const {
  const std::size_t next = std::min(held_.find_first_not_of(kCallSpace, from), held_.size());
  return std::string_view(held_).substr(next).starts_with(dialect_->call.open);
}

/// Looks for the end of the call that is held. Whether something is left to do.
bool TaggedCalls::end_call(bool at_end, std::vector<Piece>& pieces) {
  const auto [found, next] = find_end();
  const bool is_closed = found != kNone;
  if (!is_closed && !at_end) {
    const std::size_t longest = std::max(
        {dialect_->call.open.size(), dialect_->call.close.size(), dialect_->section.close.size()});
    from_ = std::max(from_, held_.size() - std::min(held_.size(), longest - 1));
    return false;
  }
  const std::size_t end = is_closed ? found : held_.size();
  const CallText text = dialect_->read(std::string_view(held_).substr(body_, end - body_), tools_);
  // Where texts have no quotes, a call after a mark that could belong to one says that it does not.
  const bool is_sound = dialect_->quotes_texts && text.kind != CallText::Kind::kNone;
  if (!is_sound && tries_ > 0 && !dialect_->call.close.empty() && begins_call(last_end_)) {
    in_call_ = false;
    emit(last_end_, pieces);
    return true;
  }
  if (text.kind == CallText::Kind::kOpen && is_closed && ++tries_ < kMaxTries) {
    last_end_ = next;
    from_ = found + 1;
    return true;
  }
  const std::size_t after = is_closed ? next : held_.size();
  if (text.kind == CallText::Kind::kCalls) {
    take(text, after, pieces);
  } else {
    fail(is_closed || tries_ == 0 ? after : last_end_, pieces);
  }
  return true;
}

void TaggedCalls::take(const CallText& text, std::size_t end, std::vector<Piece>& pieces) {
  for (const ToolCall& call : text.calls) {
    pieces.push_back({Channel::kToolCall, call.name, call.arguments, true});
    pieces.back().call_id = call.id;
  }
  held_.erase(0, end - text.rest);
  in_call_ = false;
  follows_call_ = true;
  in_section_ = in_section_ || opens_section_;
  lacks_front_ = !in_section_ && !dialect_->section.open.empty();
}

/// What is held up to `end` is text, unless another call begins in it: the last one of them.
void TaggedCalls::fail(std::size_t end, std::vector<Piece>& pieces) {
  const std::string_view body = std::string_view(held_).substr(0, end);
  const std::size_t next = std::max<std::size_t>(body.rfind(dialect_->call.open) + 1, 1) - 1;
  in_call_ = false;
  if (next < body_) return emit(end, pieces);
  begin_call(next, pieces);
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
