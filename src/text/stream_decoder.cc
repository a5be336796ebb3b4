#include "text/tokenizer.h"
#include "text/utf8.h"

namespace subbyte {

std::string StreamDecoder::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  pending_ += tokenizer_->token_bytes(id);
  const std::size_t whole = pending_.size() - utf8::unfinished_bytes(pending_);
  std::string text = utf8::replace_invalid(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = utf8::replace_invalid(pending_);
  pending_.clear();
  return text;
}

}  // namespace subbyte
