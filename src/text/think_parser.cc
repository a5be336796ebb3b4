#include "text/think_parser.h"

#include <algorithm>
#include <utility>

#include "text/tool_calls.h"

namespace subbyte {
namespace {

constexpr ReasoningMarks kThink = {"<think>", "</think>"};
/// Gemma 4, Seed-OSS, Ministral 3.
constexpr ReasoningMarks kOthers[] = {{"<|channel>", "<channel|>", "thought\n"},
                                      {"<seed:think>", "</seed:think>"},
                                      {"[THINK]", "[/THINK]"}};
/// ERNIE, Hunyuan.
constexpr ReasoningMarks kAnswers[] = {{"<response>", "</response>"}, {"<answer>", "</answer>"}};

/// The first of `all` that a tokenizer has, or the usual one.
const ReasoningMarks& marks_of(const Tokenizer& tokenizer, std::span<const ReasoningMarks> all,
                               const ReasoningMarks& usual) {
  const auto found = std::ranges::find_if(all, [&](const ReasoningMarks& marks) {
    return tokenizer.find(marks.open) && tokenizer.find(marks.close);
  });
  return found == all.end() ? usual : *found;
}

const ReasoningMarks& marks_of(const Tokenizer& tokenizer) {
  return marks_of(tokenizer, kOthers, kThink);
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

PromptEnd prompt_end(const Tokenizer& tokenizer, std::span<const TokenId> prompt) {
  const ReasoningMarks& marks = marks_of(tokenizer);
  const auto open = tokenizer.find(marks.open);
  const auto close = tokenizer.find(marks.close);
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
    : marks_(marks_of(tokenizer)),
      tokenizer_(tokenizer),
      decoder_(tokenizer, true),
      open_(tokenizer.find(marks_.open)),
      close_(tokenizer.find(marks_.close)),
      answer_open_(tokenizer.find(marks_of(tokenizer, kAnswers, kAnswers[0]).open)),
      answer_close_(tokenizer.find(marks_of(tokenizer, kAnswers, kAnswers[0]).close)),
      thinking_(prompt == PromptEnd::kReasons),
      may_end_late_(may_end_late),
      is_undecided_(prompt == PromptEnd::kOpen && close_),
      skip_breaks_(thinking_),
      may_have_label_(thinking_ && !marks_.label.empty()) {}

/// Whether it is a mark before or after the answer, which is no text of it.
bool ThinkParser::takes_answer_mark(TokenId id, std::vector<Piece>& pieces) {
  const bool opens = answer_open_ && id == *answer_open_ && !thinking_ && begins_message_;
  const bool closes = answer_close_ && id == *answer_close_ && in_answer_;
  if (!opens && !closes) return false;
  take_text(decoder_.finish(), pieces);
  in_answer_ = opens;
  skip_breaks_ = skip_breaks_ || opens;
  num_held_breaks_ = 0;
  return true;
}

std::vector<Piece> ThinkParser::push(TokenId id) {
  std::vector<Piece> pieces;
  if (takes_answer_mark(id, pieces)) return pieces;
  const bool opens = open_ && id == *open_;
  const bool closes = close_ && id == *close_;
  const bool ends_late = closes && is_undecided_;
  has_ended_late_ = ends_late && may_end_late_;
  if (opens || closes) {
    take_text(decoder_.finish(), pieces);
    may_have_label_ = false;
    take_text(std::exchange(begun_label_, {}), pieces);
    is_undecided_ = false;
    if (!ends_late || may_end_late_) {
      enter(opens);
    } else {
      take_text(std::string(marks_.close), pieces);
    }
  } else if (tokenizer_.is_special(id) && is_mark_of_calls(tokenizer_.token_bytes(id))) {
    take_text(decoder_.finish(), pieces);
    take_text(std::string(tokenizer_.token_bytes(id)), pieces);
  } else {
    take_text(decoder_.push(id), pieces);
  }
  return pieces;
}

std::vector<Piece> ThinkParser::finish() {
  std::vector<Piece> pieces;
  take_text(decoder_.finish(), pieces);
  may_have_label_ = false;
  take_text(std::exchange(begun_label_, {}), pieces);
  num_held_breaks_ = 0;
  return pieces;
}

void ThinkParser::enter(bool thinking) {
  thinking_ = thinking;
  in_answer_ = false;
  may_have_label_ = thinking && !marks_.label.empty();
  skip_breaks_ = true;
  num_held_breaks_ = 0;
  begins_message_ = true;
}

/// Holds text back as long as it may be the label, which is dropped.
std::string ThinkParser::without_label(std::string text) {
  begun_label_ += text;
  if (marks_.label.starts_with(begun_label_) && begun_label_.size() < marks_.label.size()) {
    return {};
  }
  may_have_label_ = false;
  text = std::exchange(begun_label_, {});
  if (text.starts_with(marks_.label)) text.erase(0, marks_.label.size());
  return text;
}

void ThinkParser::take_text(std::string text, std::vector<Piece>& pieces) {
  if (may_have_label_) text = without_label(std::move(text));
  if (skip_breaks_) text.erase(0, std::min(text.find_first_not_of('\n'), text.size()));
  if (text.empty()) return;
  skip_breaks_ = false;
  if (thinking_ || in_answer_) {
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
