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
  return nvfp4::target(from, kModelopt);
}

/// Activations stay floats, so it is W4A16.
ExportedConfig config(const ExportedModel& model) {
  const json::Value producer = {{"name", "modelopt"}, {"version", "subbyte"}};
  const json::Value quantization = {{"quant_algo", "W4A16_NVFP4"},
                                    {"kv_cache_quant_algo", nullptr},
                                    {"group_size", 16},
                                    {"exclude_modules", model.kept}};
  json::Value section = {{"quant_method", "modelopt"}};
  section.update(quantization);
  section["ignore"] = model.kept;
  section["producer"] = producer;
  return {
      section, "hf_quant_config.json", {{"producer", producer}, {"quantization", quantization}}};
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  return nvfp4::write(matrix, module, kModelopt);
}

}  // namespace

extern const Exporter modelopt_nvfp4_exporter;
const Exporter modelopt_nvfp4_exporter = {.name = kModelopt.importer,
                                          .has_factor = true,
                                          .instead_for_alternating = "nvfp4_pack_quantized",
                                          .describe = describe,
                                          .target = target,
                                          .config = config,
                                          .write = write};

}  // namespace subbyte
