// compressed-tensors, format "nvfp4-pack-quantized": see nvfp4_parts.h.

#include "checkpoints/flavours/ct_parts.h"
#include "checkpoints/flavours/nvfp4_parts.h"

namespace subbyte {
namespace {

using nvfp4::kCompressedTensors;

bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* codes = find_tensor(tensors, module, kCompressedTensors.codes);
  if (codes == nullptr || codes->dtype != DType::kU8) return false;
  const FileTensor* scale = find_tensor(tensors, module, ".weight_scale");
  return find_tensor(tensors, module, kCompressedTensors.factor) != nullptr ||
         (scale != nullptr && scale->dtype == DType::kF8E4M3);
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  SUBBYTE_CHECK(require_scheme(context, module, CompressedScheme::Format::kNvfp4));
  return nvfp4::describe_blocks(context, module, kCompressedTensors);
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  return nvfp4::import_blocks(context, info, kCompressedTensors);
}

}  // namespace

extern const Importer nvfp4_pack_quantized_importer;
const Importer nvfp4_pack_quantized_importer = {
    kCompressedTensors.importer, kCompressedTensors.codes, matches, describe, import, check_scales};

}  // namespace subbyte
