// NVFP4 of ModelOpt: see nvfp4_parts.h.

#include "checkpoints/config/exported_config.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/input_factors.h"
#include "checkpoints/flavours/modelopt.h"
#include "checkpoints/flavours/nvfp4_parts.h"
#include "quantize/quantizers.h"

namespace subbyte {
namespace {

Result<int64_t> group_size(const ImportContext& context, std::string_view module,
                           const FileTensor& scales, int64_t cols) {
  return modelopt_group_size(context, module, scales, cols, {16, 32});
}

constexpr nvfp4::Names kNames = {"modelopt_nvfp4", ".weight", ".weight_scale_2", false,
                                 ".input_scale",   group_size};

bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* codes = find_tensor(tensors, module, kNames.codes);
  return codes != nullptr && codes->dtype == DType::kU8 &&
         find_tensor(tensors, module, ".weight_scale") != nullptr;
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_CHECK(require_modelopt(context, module, {ModeloptWeights::kNvfp4}));
  return nvfp4::describe_blocks(context, module, kNames);
}

bool says_kv_cache(const KvCacheScheme& scheme, const Flavour* from) {
  return scheme.form != KvCacheScheme::Form::kOther || from == &modelopt_flavour;
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

constexpr QuantizeFormat kQuantized[] = {{.name = kNames.name,
                                          .bits = k4Bits,
                                          .group_sizes = kGroupsOf16,
                                          .default_group = 16,
                                          .format = nvfp4_format,
                                          .quantize = to_nvfp4_multiplied}};

using Module = WithInputFactors<describe, nvfp4::import_blocks<kNames>>;

}  // namespace

const Importer modelopt_nvfp4_importer = {kNames.name,      kNames.codes,   matches,
                                          Module::describe, Module::import, check_scales};
const Exporter modelopt_nvfp4_exporter = {
    .name = kNames.name,
    .quantized = kQuantized,
    .has_factor = true,
    .instead_for_alternating = "nvfp4_pack_quantized",
    .says_kv_cache = says_kv_cache,
    .describe = nvfp4::describe_tensors<kNames>,
    .target = nvfp4::blocks_target<kNames>,
    .config = config,
    .write = nvfp4::write_blocks<kNames>,
    .readers = SUBBYTE_READERS("modelopt_nvfp4", "tools modelopt")};

}  // namespace subbyte
