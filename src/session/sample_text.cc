#include "session/sample_text.h"

#include <utility>

namespace subbyte {

std::string Delta::text() const {
  std::string text;
  for (const OutputPiece& piece : pieces) {
    if (piece.channel == OutputChannel::kFinal) text += piece.text;
  }
  return text;
}

SampleText::SampleText(const SessionRequest& request, const Tokenizer& tokenizer, ChatFormat format,
                       PromptEnd prompt, ToolCallParser calls)
    : decoder_(tokenizer, /*skip_special=*/true),
      calls_(std::move(calls)),
      stops_(request.stops),
      min_tokens_(request.min_tokens),
      takes_one_call_(!request.parallel_tool_calls) {
  if (request.is_chat) chat_.emplace(format, prompt, tokenizer);
}

void SampleText::push(TokenId token, Delta& delta) {
  delta.tokens.push_back(token);
  ++num_tokens_;
  if (!chat_) return add({{OutputChannel::kFinal, {}, decoder_.push(token), false}}, delta);
  add(calls_.push(chat_->push(token)), delta);
  if (!chat_->takes_answer_back() || stopped()) return;
  add(calls_.finish(), delta);
  add_answer(stops_.finish(), delta);
  delta.takes_answer_back = true;
  num_calls_ = 0;
}

void SampleText::finish(Delta& delta) {
  if (chat_) {
    add(calls_.push(chat_->finish()), delta);
    add(calls_.finish(), delta);
  } else {
    add({{OutputChannel::kFinal, {}, decoder_.finish(), false}}, delta);
  }
  add_answer(stops_.finish(), delta);
}

void SampleText::add(std::vector<OutputPiece> pieces, Delta& delta) {
  for (OutputPiece& piece : pieces) {
    if (piece.channel == OutputChannel::kFinal) {
      begins_message_ = begins_message_ || piece.begins_message;
      // Stop strings are looked for once there are tokens enough.
      const bool may_stop = num_tokens_ > min_tokens_;
      add_answer(may_stop ? stops_.push(piece.text) : std::move(piece.text), delta);
    } else if (!stopped()) {
      if (piece.channel == OutputChannel::kToolCall) {
        if (takes_one_call_ && num_calls_ > 0) continue;
        add_answer(stops_.finish(), delta);
        ++num_calls_;
      }
      delta.pieces.push_back(std::move(piece));
    }
  }
}

void SampleText::add_answer(std::string text, Delta& delta) {
  if (text.empty()) return;
  const bool begins = std::exchange(begins_message_, false);
  delta.pieces.push_back({OutputChannel::kFinal, {}, std::move(text), begins});
}

}  // namespace subbyte
