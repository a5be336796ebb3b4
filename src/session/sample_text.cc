#include "session/sample_text.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace subbyte {

SampleText::SampleText(const Request& request, const Tokenizer& tokenizer, ChatFormat format,
                       PromptEnd prompt, ToolCallParser calls)
    : decoder_(tokenizer, /*skip_special=*/true),
      calls_(std::move(calls)),
      stops_(request.stops),
      min_tokens_(request.min_tokens),
      takes_one_call_(!request.parallel_tool_calls),
      has_messages_(format == ChatFormat::kHarmony) {
  if (!request.is_chat()) return;
  chat_.emplace(format, prompt, request.is_whole, tokenizer);
  if (request.is_whole && chat_->is_undecided()) undecided_ = {{}, {}, calls_};
}

void SampleText::push(TokenId token, Delta& delta) {
  delta.tokens.push_back(token);
  ++num_tokens_;
  if (!chat_) return add({{Channel::kAnswer, {}, decoder_.push(token), false}}, delta.pieces);
  take_chat(chat_->push(token), delta);
  if (!undecided_ || chat_->is_undecided()) return;
  if (chat_->has_ended_late() && !stopped()) make_reasoning(delta);
  release(delta);
}

void SampleText::finish(Delta& delta) {
  if (chat_) {
    take_chat(chat_->finish(), delta);
    release(delta);
    add(calls_.finish(), delta.pieces);
  } else {
    add({{Channel::kAnswer, {}, decoder_.finish(), false}}, delta.pieces);
  }
  add_answer(stops_.finish(), delta.pieces);
}

void SampleText::take_chat(std::vector<Piece> pieces, Delta& delta) {
  if (!undecided_) return add(calls_.push(std::move(pieces)), delta.pieces);
  for (const Piece& piece : pieces) {
    if (piece.channel == Channel::kAnswer) undecided_->text += piece.text;
  }
  add(calls_.push(std::move(pieces)), undecided_->pieces);
}

/// What came until now is reasoning as a whole: nothing in it was a call, and nothing is held back.
void SampleText::make_reasoning(Delta& delta) {
  calls_ = std::move(undecided_->calls);
  undecided_->pieces.clear();
  static_cast<void>(stops_.finish());
  num_calls_ = 0;
  begins_message_ = true;
  has_content_ = false;
  follows_call_ = false;
  const std::string_view text = without_breaks(undecided_->text);
  if (!text.empty()) {
    delta.pieces.push_back({Channel::kReasoning, {}, std::string(text), true});
    has_reasoning_ = true;
  }
}

void SampleText::release(Delta& delta) {
  if (!undecided_) return;
  std::ranges::move(undecided_->pieces, std::back_inserter(delta.pieces));
  undecided_.reset();
}

void SampleText::add(std::vector<Piece> pieces, std::vector<Piece>& given) {
  for (Piece& piece : pieces) {
    if (piece.channel == Channel::kAnswer) {
      begins_message_ = begins_message_ || piece.begins_message;
      // Stop strings are looked for once there are tokens enough.
      const bool may_stop = num_tokens_ > min_tokens_;
      add_answer(may_stop ? stops_.push(piece.text) : std::move(piece.text), given);
    } else if (!stopped()) {
      if (piece.channel == Channel::kToolCall) {
        if (takes_one_call_ && num_calls_ > 0) continue;
        add_answer(stops_.finish(), given);
        ++num_calls_;
      }
      const bool is_remark = piece.channel == Channel::kCommentary && piece.recipient.empty();
      bool& has_text = is_remark ? has_content_ : has_reasoning_;
      const bool is_call = piece.channel == Channel::kToolCall;
      piece.wants_break = has_messages_ && !is_call && piece.begins_message && has_text;
      has_text = has_text || !is_call;
      follows_call_ = follows_call_ || is_call;
      given.push_back(std::move(piece));
    }
  }
}

void SampleText::add_answer(std::string text, std::vector<Piece>& given) {
  if (text.empty()) return;
  const bool begins = std::exchange(begins_message_, false);
  const bool is_apart = std::exchange(follows_call_, false) || (begins && has_messages_);
  const bool follows = std::exchange(has_content_, true);
  given.push_back({Channel::kAnswer, {}, std::move(text), begins, {}, is_apart && follows});
}

}  // namespace subbyte
