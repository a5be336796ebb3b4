#include "text/tokenizer.h"

namespace subbyte {

std::string StreamDecoder::push(TokenId id) {
  std::string text;
  if (!skip_special_ || !tokenizer_->is_special(id)) tokenizer_->decode_next(id, state_, text);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  tokenizer_->end_decoding(state_, text);
  return text;
}

}  // namespace subbyte
