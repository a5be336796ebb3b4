// compressed-tensors, format "mxfp4-pack-quantized": ct_mxfp4.cc shows it.

#include "checkpoints/export_parts.h"
#include "checkpoints/flavours/ct_parts.h"

namespace subbyte {
namespace {

constexpr uint64_t kGroup = 32;
constexpr WeightFormat kFormat = {Format::kE2M1, Format::kE8M0, Zero::kNone, kGroup};

Result<std::vector<ExportedTensor>> describe_tensors(const ExportShape& shape,
                                                     std::string_view module) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  SUBBYTE_CHECK(require_input_order(shape, module));
  if (shape.format != kFormat) {
    return export_error(
        "export.format", module,
        fmt::format("MXFP4 is {}, not {}", to_string(kFormat), to_string(shape.format)));
  }
  SUBBYTE_TRY(const int64_t groups, count_groups(shape.format, shape.cols, module));
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto num_groups = static_cast<uint64_t>(groups);
  return std::vector<ExportedTensor>{
      {".weight_packed", DType::kU8, {rows, num_groups * kGroup / 2}, {}},
      {".weight_scale", DType::kU8, {rows, num_groups}, {}}};
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  SUBBYTE_TRY(auto tensors, describe_tensors(shape_of(matrix), module));
  SUBBYTE_CHECK(require_tensor_scale_1(matrix, module));
  allocate(tensors);
  std::ranges::copy(matrix.codes, tensors[0].bytes.begin());
  std::ranges::copy(matrix.scales, tensors[1].bytes.begin());
  return tensors;
}

TargetFormat target(const ExportShape& from) {
  const bool fp4 = from.format.element == Format::kE2M1;
  return {fp4 ? kFormat : from.format, TensorFactor::kNone, false};
}

ExportedConfig config(const ExportedModel& model) {
  return compressed_config(model, "mxfp4-pack-quantized");
}

}  // namespace

extern const Exporter mxfp4_pack_quantized_exporter;
const Exporter mxfp4_pack_quantized_exporter = {.name = "mxfp4_pack_quantized",
                                                .says_kv_cache = says_compressed_kv_cache,
                                                .describe = describe_tensors,
                                                .target = target,
                                                .config = config,
                                                .write = write};

}  // namespace subbyte
