// Writes ak48, version 5. The format is drawn in orin_model.h.

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <map>

#include "base/quote.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/integer_config.h"

namespace subbyte {
namespace {

constexpr uint32_t kMagic = 0x616B3438;
constexpr int64_t kMaxField = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxPositions = 40960;

/// Refuses a number that is there and is another one than readers take for granted.
Status require_number(const json::Object& config, const char* key, double expected) {
  SUBBYTE_TRY(const auto found, config.number(key, 0, 1e300));
  if (!found || *found == expected) return {};
  return config.error("export.format", key, fmt::format("{}, which is not stored", expected));
}

Status require_what_is_not_stored(const json::Object& config) {
  SUBBYTE_CHECK(require_number(config, "rms_norm_eps", 1e-6));
  SUBBYTE_CHECK(require_number(config, "rope_theta", 1e6));
  SUBBYTE_TRY(const auto rope, config.object("rope_parameters"));
  if (rope) SUBBYTE_CHECK(require_number(*rope, "rope_theta", 1e6));
  if (!config.has("rope_theta") && !(rope && rope->has("rope_theta"))) {
    return config.error("export.format", "rope_theta", "1e6, which is not stored");
  }
  SUBBYTE_TRY(const auto kind, rope ? rope->string("rope_type") : config.string("rope_type"));
  if (kind.value_or("default") != "default" || config.has("rope_scaling")) {
    return config.error("export.format", "rope_scaling", "nothing: there is no place for it");
  }
  SUBBYTE_TRY(const auto window, config.boolean("use_sliding_window"));
  if (window.value_or(false)) {
    return config.error("export.format", "use_sliding_window", "false");
  }
  return {};
}

/// The 256 bytes in front of the tensors of version 5.
std::string header_bytes(const OrinHeader& header) {
  std::string bytes(kOrinHeaderBytes, '\0');
  const auto store = [&](std::size_t at, int64_t value) {
    const auto field = static_cast<int32_t>(value);
    std::memcpy(bytes.data() + at, &field, sizeof field);
  };
  const int64_t fields[] = {kMagic,
                            5,
                            header.hidden_size,
                            header.intermediate_size,
                            header.num_layers,
                            header.num_heads,
                            header.num_kv_heads,
                            header.vocab_size,
                            header.max_positions};
  for (std::size_t i = 0; i < std::size(fields); ++i) store(4 * i, fields[i]);
  bytes[36] = header.tied ? 1 : 0;
  store(37, header.head_dim);
  store(41, header.group_size);
  return bytes;
}

/// nullptr: there is none of that name.
Status check_tensor(const TensorEntry& entry, const TensorDeclaration* tensor) {
  if (tensor == nullptr) {
    return Error{"import.missing", fmt::format("ak48 needs {}, which the model does not have",
                                               quote_name(entry.name))};
  }
  if (tensor->dtype != entry.dtype) {
    return Error{"import.dtype", fmt::format("{}: ak48 holds {}, found {}", quote_name(entry.name),
                                             name(entry.dtype), name(tensor->dtype))};
  }
  if (tensor->shape == entry.shape) return {};
  return Error{"import.shape",
               fmt::format("{}: expected {} (config.json), found {}", quote_name(entry.name),
                           to_string(entry.shape), to_string(tensor->shape))};
}

}  // namespace

const Exporter& orin_exporter() {
  return **awq_flavour.exporters.begin();
}

Result<OrinHeader> orin_header(const json::Object& config) {
  SUBBYTE_CHECK(require_what_is_not_stored(config));
  OrinHeader header;
  const std::pair<const char*, int64_t*> sizes[] = {
      {"hidden_size", &header.hidden_size},
      {"intermediate_size", &header.intermediate_size},
      {"num_hidden_layers", &header.num_layers},
      {"num_attention_heads", &header.num_heads},
      {"num_key_value_heads", &header.num_kv_heads},
      {"vocab_size", &header.vocab_size},
      {"head_dim", &header.head_dim}};
  for (const auto& [key, size] : sizes) {
    SUBBYTE_TRY(*size, config.required_integer(key, 1, kMaxField));
  }
  SUBBYTE_TRY(header.max_positions,
              config.required_integer("max_position_embeddings", 1, kMaxPositions));
  SUBBYTE_TRY(const auto tied, config.boolean("tie_word_embeddings"));
  header.tied = tied.value_or(false);
  SUBBYTE_TRY(const auto section, config.object("quantization_config"));
  if (!section) return config.error("export.format", "quantization_config", "that of AWQ");
  SUBBYTE_TRY(const std::string method, section->required_string("quant_method"));
  if (method != awq_flavour.name) {
    return section->error("export.format", "quant_method", quote(awq_flavour.name));
  }
  SUBBYTE_TRY(header.group_size, section->required_integer("group_size", 1, kMaxField));
  return header;
}

Result<WeightFiles> lay_out_orin(const OrinHeader& header, std::span<const WriteStep> steps) {
  WeightFile file = {std::string(kOrinFileName), header_bytes(header), {}, 0, steps.size()};
  SUBBYTE_TRY(file.tensors, orin_tensors(header, kOrinFileName));
  std::map<std::string_view, const TensorDeclaration*> declared;
  for (const WriteStep& step : steps) {
    for (const TensorDeclaration& tensor : step.tensors) declared[tensor.name] = &tensor;
  }
  for (const TensorEntry& entry : file.tensors) {
    const auto found = declared.extract(entry.name);
    SUBBYTE_CHECK(check_tensor(entry, found.empty() ? nullptr : found.mapped()));
  }
  if (!declared.empty()) {
    return Error{"export.surplus", fmt::format("{}: ak48 has no place for this tensor",
                                               quote_name(declared.begin()->first))};
  }
  return WeightFiles{{std::move(file)}};
}

}  // namespace subbyte
