// compressed-tensors, format "nvfp4-pack-quantized": see nvfp4_parts.h.

#include "checkpoints/flavours/ct_parts.h"
#include "checkpoints/flavours/nvfp4_parts.h"
#include "quantize/quantizers.h"

namespace subbyte {
namespace {

constexpr nvfp4::Names kNames = {"nvfp4_pack_quantized", ".weight_packed", ".weight_global_scale",
                                 true, ".input_global_scale"};

bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* codes = find_tensor(tensors, module, kNames.codes);
  if (codes == nullptr || codes->dtype != DType::kU8) return false;
  const FileTensor* scale = find_tensor(tensors, module, ".weight_scale");
  return find_tensor(tensors, module, kNames.factor) != nullptr ||
         (scale != nullptr && scale->dtype == DType::kF8E4M3);
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_CHECK(require_scheme(context, module, CompressedScheme::Format::kNvfp4));
  return nvfp4::describe_blocks(context, module, kNames);
}

ExportedConfig config(const ExportedModel& model) {
  return compressed_config(model, "nvfp4-pack-quantized");
}

constexpr QuantizeFormat kQuantized[] = {{.name = "nvfp4",
                                          .bits = k4Bits,
                                          .group_sizes = kGroupsOf16,
                                          .default_group = 16,
                                          .format = nvfp4_format,
                                          .quantize = to_nvfp4_divided}};

}  // namespace

const Importer nvfp4_pack_quantized_importer = {
    kNames.name, kNames.codes, matches, describe, nvfp4::import_blocks<kNames>, check_scales};
const Exporter nvfp4_pack_quantized_exporter = {
    .name = kNames.name,
    .other_name = "nvfp4",
    .quantized = kQuantized,
    .has_factor = true,
    .says_kv_cache = says_compressed_kv_cache,
    .describe = nvfp4::describe_tensors<kNames>,
    .target = nvfp4::blocks_target<kNames>,
    .config = config,
    .write = nvfp4::write_blocks<kNames>,
    .readers = SUBBYTE_READERS("nvfp4_pack_quantized", "tools transformers-auto")};

}  // namespace subbyte
