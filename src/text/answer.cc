#include "subbyte/answer.h"

namespace subbyte {
namespace {

template <typename T>
void append_all(const std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

double SampleEnd::prefill_tokens_per_second() const {
  const auto computed = static_cast<double>(prompt_tokens - cached_tokens);
  return prefill_seconds > 0 ? computed / prefill_seconds : 0;
}

double SampleEnd::decode_tokens_per_second() const {
  if (decode_seconds <= 0 || generated_tokens < 2) return 0;
  return static_cast<double>(generated_tokens - 1) / decode_seconds;
}

std::string Delta::text_of(Channel channel) const {
  std::string text;
  for (const Piece& piece : pieces) {
    if (piece.channel == channel) text += piece.text;
  }
  return text;
}

void Completion::append(const Delta& delta) {
  text += delta.text();
  reasoning += delta.reasoning();
  commentary += delta.text_of(Channel::kCommentary);
  for (const Piece& piece : delta.pieces) {
    if (piece.channel == Channel::kToolCall) tool_calls.push_back(piece);
  }
  append_all(delta.tokens, tokens);
  append_all(delta.logprobs, logprobs);
  append_all(delta.prompt_logprobs, prompt_logprobs);
  if (delta.end) end = *delta.end;
}

}  // namespace subbyte
