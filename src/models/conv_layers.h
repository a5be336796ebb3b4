#pragma once
// Which layers of a model are short convolutions, as config.json and GGUF files say it.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "json/strict_json.h"
#include "models/gguf_architecture.h"

namespace subbyte {

/// Most taps of their filters.
inline constexpr int64_t kMaxConvTaps = 16;

/// layer_types, else all but those of full_attn_idxs, else none. As in the reference, a number of
/// which there is no layer says nothing. Code config.layer_types.
Result<std::vector<bool>> read_conv_layers(const json::Object& config, int64_t num_layers);

/// Adds layer_types: layers without heads of keys, of `key`, are convolutions.
void add_conv_layers(const GgufModel& model, std::string_view key, json::Value& config);

/// Its inverse: adds `key`, 0 for convolutions.
void add_conv_keys(const std::vector<bool>& conv_layers, std::string_view key, int64_t kv_heads,
                   GgufKeys& keys);

}  // namespace subbyte
