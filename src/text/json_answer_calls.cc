// Llama 3.1 and later write calls as an answer in JSON; <|python_tag|> before it is no text.

#include "text/whole_answer_calls.h"

namespace subbyte {

void JsonAnswerCalls::push(const Piece& piece, std::vector<Piece>& pieces) {
  if (is_text_) {
    pieces.push_back(piece);
    return;
  }
  begins_message_ = begins_message_ || piece.begins_message;
  held_ += piece.text;
  const std::size_t begin = held_.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || held_[begin] == '{') return;
  finish(pieces);
}

void JsonAnswerCalls::finish(std::vector<Piece>& pieces) {
  if (held_.empty()) return;
  const CallText text = parse_json_answer(held_, tools_);
  for (const ToolCall& call : text.calls) {
    pieces.push_back({Channel::kToolCall, call.name, call.arguments, true});
  }
  is_text_ = text.calls.empty();
  if (is_text_) pieces.push_back({Channel::kAnswer, {}, held_, begins_message_});
  held_.clear();
}

}  // namespace subbyte
