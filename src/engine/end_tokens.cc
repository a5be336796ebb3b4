#include "engine/end_tokens.h"

namespace subbyte {

std::vector<int32_t> end_tokens(const ModelConfig& config, const Tokenizer& tokenizer) {
  if (!config.eos_tokens.empty()) return config.eos_tokens;
  const auto end = tokenizer.end_token();
  if (!end || *end >= config.vocab_size) return {};
  return {*end};
}

}  // namespace subbyte
