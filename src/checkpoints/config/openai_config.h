#pragma once
// config.json of OpenAI's own directory of gpt-oss, which has keys of its own.

#include "json/strict_json.h"

namespace subbyte {

/// The model_type of what openai_config() gives.
inline constexpr const char* kOpenAiContainer = "openai";

/// It names no model_type, and the ramp of YaRN as no other does.
bool is_openai_config(const json::Value& config);

/// The same in the words of transformers. What has a wrong type keeps it, so that reading it is
/// refused; an absent key has the default of OpenAI's program, where that has one that differs from
/// ours.
json::Value openai_config(const json::Value& config);

}  // namespace subbyte
