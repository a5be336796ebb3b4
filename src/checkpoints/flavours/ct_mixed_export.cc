// compressed-tensors, format "mixed-precision": config groups that each have a format of their own,
// such as FP8 beside NVFP4. A module gets the format that holds its codes.

#include <algorithm>

#include "checkpoints/flavours/ct_parts.h"

namespace subbyte {

namespace {

const Exporter& exporter_of(const WeightFormat& format) {
  if (format.element == Format::kE4M3) return float_quantized_exporter;
  if (format.element != Format::kE2M1) return pack_quantized_exporter;
  return format.scale == Format::kE4M3 ? nvfp4_pack_quantized_exporter
                                       : mxfp4_pack_quantized_exporter;
}

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  return exporter_of(shape.format).describe(shape, module);
}

TargetFormat target(const ExportShape& from) {
  return exporter_of(from.format).target(from);
}

ExportedConfig config(const ExportedModel& model) {
  return compressed_config(model, kMixedPrecision);
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor& pool) {
  return exporter_of(matrix.format).write(matrix, module, pool);
}

}  // namespace

const Exporter mixed_precision_exporter = {.name = "mixed_precision",
                                           .is_listed = false,
                                           .tells_symmetry = true,
                                           .has_factor = true,
                                           .keeps_act_order = "pack_quantized_lanes",
                                           .says_kv_cache = says_compressed_kv_cache,
                                           .describe = describe,
                                           .target = target,
                                           .config = config,
                                           .write = write};

const Exporter* choose_compressed(std::span<const WeightFormat> formats) {
  if (formats.empty()) return &pack_quantized_exporter;
  const Exporter* const first = &exporter_of(formats.front());
  const bool is_one = std::ranges::all_of(
      formats, [&](const WeightFormat& format) { return &exporter_of(format) == first; });
  return is_one ? first : &mixed_precision_exporter;
}

}  // namespace subbyte
