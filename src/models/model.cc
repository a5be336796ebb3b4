#include "models/model.h"

#include <fmt/format.h>

#include <array>

#include "models/head_bits.h"
#include "models/model_family.h"

namespace subbyte {

#define SUBBYTE_MODEL(name) extern const ModelFamily name##_family;
#include "models/models.def"
#undef SUBBYTE_MODEL

namespace {

constexpr std::array kFamilies = {
#define SUBBYTE_MODEL(name) &name##_family,
#include "models/models.def"
#undef SUBBYTE_MODEL
};

}  // namespace

const ModelFamily* find_family(std::string_view model_type) {
  for (const ModelFamily* family : kFamilies) {
    if (family->model_type == model_type) return family;
  }
  return nullptr;
}

std::string family_names() {
  std::string names;
  for (const ModelFamily* family : kFamilies) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : " or ", family->model_type);
  }
  return names;
}

Status Model::forward(Execution& execution, std::span<const int32_t> tokens, KvCache& cache,
                      std::span<float> logits) const {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= config_.vocab_size) {
      return Error{"model.token_range", fmt::format("token {} is outside the vocabulary [0, {})",
                                                    token, config_.vocab_size)};
    }
  }
  const auto count = static_cast<int64_t>(tokens.size());
  if (count > cache.capacity() - cache.size()) {
    return Error{"model.context_full",
                 fmt::format("{} tokens do not fit into the context: {} of {} positions are used",
                             count, cache.size(), cache.capacity())};
  }
  const int64_t wanted = static_cast<int64_t>(logits.size()) / config_.vocab_size;
  std::vector<float> hidden;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, count);
    hidden.resize((end - begin) * config_.hidden_size);
    run_layers(execution, tokens.subspan(begin, end - begin), cache, hidden);
    cache.advance(end - begin);
    const int64_t first =
        std::max(begin, count - wanted);  // first token whose logits are asked for
    if (first >= end) continue;
    run_head(execution,
             logits.subspan((first - (count - wanted)) * config_.vocab_size,
                            (end - first) * config_.vocab_size),
             std::span(hidden).subspan((first - begin) * config_.hidden_size));
  }
  return {};
}

Result<std::unique_ptr<Model>> load_model(const std::filesystem::path& path, Execution& execution,
                                          const LoadOptions& options) {
  SUBBYTE_CHECK(check_head_bits(options.head_bits));
  SUBBYTE_TRY(const ModelConfig config, read_model_config(path));
  SUBBYTE_TRY(const ConfigFile file, read_config_file(path));
  SUBBYTE_TRY(const json::Object object, file.object());
  SUBBYTE_TRY(const QuantizationConfig quantization, read_quantization_config(object, path));
  SUBBYTE_TRY(const TensorSource tensors, TensorSource::open(path));
  WeightLoader loader({tensors, quantization, execution.pool()}, execution, options);
  SUBBYTE_TRY(auto model, find_family(config.model_type)->load(config, loader));
  SUBBYTE_CHECK(loader.finish(*model));
  return model;
}

}  // namespace subbyte
