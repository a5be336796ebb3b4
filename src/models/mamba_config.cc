#include "models/mamba_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "json/strict_json.h"
#include "models/model_config.h"

namespace subbyte {
namespace {

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

Status read_limits(const json::Object& config, std::string_view key, MambaShape& shape) {
  if (!config.has(key)) return {};
  const json::Value& limits = *config.find(key);
  const bool are_limits = limits.is_array() && limits.size() == 2 &&
                          read_limit(limits[0], shape.least_step) &&
                          read_limit(limits[1], shape.largest_step);
  const bool fit = std::isfinite(shape.least_step) && shape.least_step <= shape.largest_step;
  if (are_limits && fit) return {};
  return config.error("config.mamba", key,
                      "two numbers from 0 on, of which the second may be infinite");
}

/// The size of a head, which nothing else may be said of than that the heads are mamba_expand times
/// hidden_size; "auto" says nothing.
Status read_head_size(const json::Object& config, const ModelConfig& model, MambaShape& shape) {
  constexpr const char* kHeadSize = "mamba_d_head";
  SUBBYTE_TRY(const auto expand, config.integer("mamba_expand", 1, kMaxWidth));
  const int64_t width = expand.value_or(2) * model.hidden_size;
  if (width % shape.heads != 0 || width / shape.heads > kMaxMambaSize) {
    return config.error(
        "config.mamba", "mamba_n_heads",
        fmt::format("a divisor of {} (mamba_expand times hidden_size) into heads of at most {}",
                    width, kMaxMambaSize));
  }
  shape.head_size = width / shape.heads;
  const json::Value* const given = config.find(kHeadSize);
  if (given == nullptr || *given == "auto") return {};
  SUBBYTE_TRY(const auto size, config.integer(kHeadSize, 1, kMaxMambaSize));
  if (!size || *size == shape.head_size) return {};
  return config.error(
      "config.mamba", kHeadSize,
      fmt::format("{} (mamba_expand times hidden_size divided by mamba_n_heads)", shape.head_size));
}

}  // namespace

Result<MambaConfig> read_mamba(const json::Object& config, ModelConfig& model) {
  MambaConfig mamba;
  SUBBYTE_CHECK(read_keys(config, kMambaKeys, &mamba, model));
  SUBBYTE_CHECK(finish_mamba(config, {}, model, mamba));
  SUBBYTE_CHECK(read_head_size(config, model, mamba.shape));
  return mamba;
}

Status finish_mamba(const json::Object& config, const MambaNames& names, const ModelConfig& model,
                    MambaConfig& mamba) {
  MambaShape& shape = mamba.shape;
  shape.norm_groups = shape.groups;
  shape.eps = model.rms_norm_eps;
  if (shape.heads % shape.groups != 0) {
    SUBBYTE_TRY(const auto groups, name_of(config, names.groups));
    return config.error("config.mamba", groups,
                        fmt::format("a divisor of {} ({})", names.heads, shape.heads));
  }
  SUBBYTE_TRY(const auto chunk, name_of(config, names.chunk));
  SUBBYTE_CHECK(config.integer(chunk, 1, kMaxPositions));
  SUBBYTE_TRY(const auto limit, name_of(config, names.step_limit));
  return read_limits(config, limit, shape);
}

}  // namespace subbyte
