#include "text/think_parser.h"

#include <algorithm>
#include <utility>

namespace subbyte {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

PromptEnd prompt_end(const Tokenizer& tokenizer, std::span<const TokenId> prompt) {
  const auto open = tokenizer.find(kOpen);
  const auto close = tokenizer.find(kClose);
  if (!open || !close) return PromptEnd::kOpen;
  for (; !prompt.empty(); prompt = prompt.first(prompt.size() - 1)) {
    const TokenId last = prompt.back();
    if (last == *open) return PromptEnd::kReasons;
    if (last == *close) return PromptEnd::kAnswers;
    if (tokenizer.is_added(last) && !is_blank(tokenizer.token_bytes(last))) break;
  }
  return PromptEnd::kOpen;
}

ThinkParser::ThinkParser(const Tokenizer& tokenizer, PromptEnd prompt, bool may_end_late)
    : decoder_(tokenizer, true),
      open_(tokenizer.find(kOpen)),
      close_(tokenizer.find(kClose)),
      thinking_(prompt == PromptEnd::kReasons),
      may_end_late_(may_end_late),
      is_undecided_(prompt == PromptEnd::kOpen && close_),
      skip_breaks_(thinking_) {}

std::vector<Piece> ThinkParser::push(TokenId id) {
  std::vector<Piece> pieces;
  const bool opens = open_ && id == *open_;
  const bool closes = close_ && id == *close_;
  const bool ends_late = closes && is_undecided_;
  has_ended_late_ = ends_late && may_end_late_;
  if (opens || closes) {
    take_text(decoder_.finish(), pieces);
    is_undecided_ = false;
    if (!ends_late || may_end_late_) {
      enter(opens);
    } else {
      take_text(std::string(kClose), pieces);
    }
  } else {
    take_text(decoder_.push(id), pieces);
  }
  return pieces;
}

std::vector<Piece> ThinkParser::finish() {
  std::vector<Piece> pieces;
  take_text(decoder_.finish(), pieces);
  num_held_breaks_ = 0;
  return pieces;
}

void ThinkParser::enter(bool thinking) {
  thinking_ = thinking;
  skip_breaks_ = true;
  num_held_breaks_ = 0;
  begins_message_ = true;
}

void ThinkParser::take_text(std::string text, std::vector<Piece>& pieces) {
  if (skip_breaks_) text.erase(0, std::min(text.find_first_not_of('\n'), text.size()));
  if (text.empty()) return;
  skip_breaks_ = false;
  if (thinking_) {
    const std::size_t end = text.find_last_not_of('\n') + 1;
    const std::size_t num_breaks = text.size() - end;
    if (end == 0) {
      num_held_breaks_ += num_breaks;
      return;
    }
    text.resize(end);
    text.insert(0, std::exchange(num_held_breaks_, num_breaks), '\n');
  }
  const auto channel = thinking_ ? Channel::kReasoning : Channel::kAnswer;
  pieces.push_back({channel, {}, std::move(text), begins_message_});
  begins_message_ = false;
}

}  // namespace subbyte
