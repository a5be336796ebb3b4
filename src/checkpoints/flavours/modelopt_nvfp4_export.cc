// NVFP4 of ModelOpt: see nvfp4_parts.h.

#include "checkpoints/config/exported_config.h"
#include "checkpoints/flavours/nvfp4_parts.h"

namespace subbyte {
namespace {

using nvfp4::kModelopt;

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  return nvfp4::describe_tensors(shape, module, kModelopt);
}

TargetFormat target(const ExportShape& from) {
  return nvfp4::blocks_target(from, kModelopt);
}

bool says_kv_cache(const KvCacheScheme& scheme, QuantizationConfig::Method from) {
  return scheme.form != KvCacheScheme::Form::kOther ||
         from == QuantizationConfig::Method::kModelopt;
}

/// "FP8" or what ModelOpt said itself, which may be in the words of compressed-tensors.
void say_kv_cache(json::Value& section, const KvCacheScheme& scheme) {
  section["kv_cache_quant_algo"] = nullptr;
  if (scheme.form == KvCacheScheme::Form::kFp8) section["kv_cache_quant_algo"] = "FP8";
  if (scheme.form != KvCacheScheme::Form::kOther) return;
  auto value = json::parse(scheme.text, "kv_cache_scheme");
  if (!value.ok()) return;
  const char* key = value->is_string() ? "kv_cache_quant_algo" : "kv_cache_scheme";
  section[key] = *std::move(value);
}

/// Activations stay floats, so it is W4A16.
ExportedConfig config(const ExportedModel& model) {
  const json::Value producer = {{"name", "modelopt"}, {"version", "subbyte"}};
  json::Value quantization = {{"quant_algo", "W4A16_NVFP4"}};
  say_kv_cache(quantization, model.kv_cache);
  quantization["group_size"] = 16;
  quantization["exclude_modules"] = model.kept;
  json::Value section = {{"quant_method", "modelopt"}};
  section.update(quantization);
  section["ignore"] = model.kept;
  section["producer"] = producer;
  return {
      section, "hf_quant_config.json", {{"producer", producer}, {"quantization", quantization}}};
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  return nvfp4::write_blocks(matrix, module, kModelopt);
}

}  // namespace

extern const Exporter modelopt_nvfp4_exporter;
const Exporter modelopt_nvfp4_exporter = {.name = kModelopt.importer,
                                          .has_factor = true,
                                          .instead_for_alternating = "nvfp4_pack_quantized",
                                          .says_kv_cache = says_kv_cache,
                                          .describe = describe,
                                          .target = target,
                                          .config = config,
                                          .write = write};

}  // namespace subbyte
