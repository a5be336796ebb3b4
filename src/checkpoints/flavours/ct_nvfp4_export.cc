// compressed-tensors, format "nvfp4-pack-quantized": see nvfp4_parts.h.

#include "checkpoints/flavours/ct_parts.h"
#include "checkpoints/flavours/nvfp4_parts.h"

namespace subbyte {
namespace {

using nvfp4::kCompressedTensors;

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  return nvfp4::describe_tensors(shape, module, kCompressedTensors);
}

TargetFormat target(const ExportShape& from) {
  return nvfp4::blocks_target(from, kCompressedTensors);
}

ExportedConfig config(const ExportedModel& model) {
  return compressed_config(model, "nvfp4-pack-quantized");
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  return nvfp4::write_blocks(matrix, module, kCompressedTensors);
}

}  // namespace

extern const Exporter nvfp4_pack_quantized_exporter;
const Exporter nvfp4_pack_quantized_exporter = {.name = kCompressedTensors.importer,
                                                .has_factor = true,
                                                .says_kv_cache = says_compressed_kv_cache,
                                                .describe = describe,
                                                .target = target,
                                                .config = config,
                                                .write = write};

}  // namespace subbyte
