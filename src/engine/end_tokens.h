#pragma once
// Which tokens end a text.

#include <cstdint>
#include <vector>

#include "models/model_config.h"
#include "text/tokenizer.h"

namespace subbyte {

/// Those of generation_config.json, else of config.json, else what tokenizer_config.json calls
/// eos_token, where the model has such an id.
std::vector<int32_t> end_tokens(const ModelConfig& config, const Tokenizer& tokenizer);

}  // namespace subbyte
