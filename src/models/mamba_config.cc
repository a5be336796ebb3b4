#include "models/mamba_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "json/strict_json.h"
#include "models/model_config.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxHeads = 4096;

/// A limit of steps: a number, or infinity in the words of transformers.
bool read_limit(const json::Value& value, float& limit) {
  const json::Value infinity = {{"__float__", "Infinity"}};
  if (value == infinity) {
    limit = std::numeric_limits<float>::infinity();
    return true;
  }
  if (!value.is_number()) return false;
  limit = static_cast<float>(value.get<double>());
  return limit >= 0;
}

Status read_limits(const json::Object& config, const char* key, MambaShape& shape) {
  if (!config.has(key)) return {};
  const json::Value& limits = *config.find(key);
  const bool are_limits = limits.is_array() && limits.size() == 2 &&
                          read_limit(limits[0], shape.least_step) &&
                          read_limit(limits[1], shape.largest_step);
  if (are_limits && shape.least_step <= shape.largest_step) return {};
  return config.error("config.mamba", key,
                      "two numbers from 0 on, of which the second may be infinite");
}

Status read_head_size(const json::Object& config, const MambaKeys& keys, const ModelConfig& model,
                      MambaShape& shape) {
  if (keys.expand == nullptr) {
    SUBBYTE_TRY(const auto size, config.integer(keys.head_size, 1, kMaxMambaSize));
    shape.head_size = size.value_or(keys.absent_head_size);
    return {};
  }
  SUBBYTE_TRY(const auto expand, config.integer(keys.expand, 1, kMaxWidth));
  const int64_t width = expand.value_or(2) * model.hidden_size;
  if (width % shape.heads != 0 || width / shape.heads > kMaxMambaSize) {
    return config.error("config.mamba", keys.heads,
                        fmt::format("a divisor of {} ({} times hidden_size) into heads of at most "
                                    "{}",
                                    width, keys.expand, kMaxMambaSize));
  }
  shape.head_size = width / shape.heads;
  const json::Value* const given = config.find(keys.head_size);
  if (given == nullptr || *given == "auto") return {};
  SUBBYTE_TRY(const auto size, config.integer(keys.head_size, 1, kMaxMambaSize));
  if (!size || *size == shape.head_size) return {};
  return config.error("config.mamba", keys.head_size,
                      fmt::format("{} ({} times hidden_size divided by {})", shape.head_size,
                                  keys.expand, keys.heads));
}

}  // namespace

Result<MambaConfig> read_mamba(const json::Object& config, const MambaKeys& keys,
                               const ModelConfig& model) {
  MambaConfig mamba;
  MambaShape& shape = mamba.shape;
  SUBBYTE_TRY(const auto heads, config.integer(keys.heads, 1, kMaxHeads));
  SUBBYTE_TRY(const auto groups, config.integer(keys.groups, 1, kMaxHeads));
  SUBBYTE_TRY(const auto state_size, config.integer(keys.state_size, 1, kMaxMambaSize));
  SUBBYTE_TRY(const auto taps, config.integer(keys.taps, 1, kMaxMambaTaps));
  SUBBYTE_TRY(const auto conv_bias, config.boolean(keys.conv_bias));
  SUBBYTE_TRY(const auto bias, config.boolean(keys.bias));
  SUBBYTE_CHECK(config.integer(keys.chunk, 1, kMaxPositions));
  shape.heads = heads.value_or(128);
  shape.groups = groups.value_or(keys.absent_groups);
  shape.state_size = state_size.value_or(keys.absent_state_size);
  shape.taps = taps.value_or(4);
  shape.norm_groups = shape.groups;
  shape.eps = model.rms_norm_eps;
  mamba.has_conv_bias = conv_bias.value_or(true);
  mamba.has_bias = bias.value_or(false);
  if (shape.heads % shape.groups != 0) {
    return config.error("config.mamba", keys.groups,
                        fmt::format("a divisor of {} ({})", keys.heads, shape.heads));
  }
  SUBBYTE_CHECK(read_head_size(config, keys, model, shape));
  SUBBYTE_CHECK(read_limits(config, keys.step_limit, shape));
  return mamba;
}

}  // namespace subbyte
