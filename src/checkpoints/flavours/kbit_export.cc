// Writes kbit. The tensors are drawn in kbit.cc, whose inverse this is.

#include <cmath>
#include <set>

#include "checkpoints/config/exported_config.h"
#include "checkpoints/export_parts.h"
#include "checkpoints/flavours/kbit_parts.h"
#include "matrix/codebook.h"

namespace subbyte {
namespace {

bool is_kbit(const WeightFormat& format) {
  return may_have_codebook(format.element) && !needs_codebook(format.element) &&
         format.rotation == 0 && (format.scale == Format::kE4M4 || format.scale == Format::kF16) &&
         format.zero == Zero::kNone && format.group_size == kbit::kBlock;
}

/// There is always a factor: describe() does not know whether it is 1.
Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  SUBBYTE_CHECK(require_input_order(shape, module));
  if (!is_kbit(shape.format)) {
    return export_error("export.format", module,
                        fmt::format("kbit is nfl2, nfl3, nfl4 or nfl5 with scales in e4m4 or f16 "
                                    "for 32 inputs, not {}",
                                    to_string(shape.format)));
  }
  SUBBYTE_TRY(const int64_t groups, count_groups(shape.format, shape.cols, module));
  const auto bits = static_cast<uint64_t>(info(shape.format.element).bits);
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto blocks = static_cast<uint64_t>(groups);
  const DType scales = shape.format.scale == Format::kE4M4 ? DType::kU8 : DType::kF16;
  return std::vector<ExportedTensor>{{kbit::kCodes, DType::kU8, {rows, blocks * 4 * bits}, {}},
                                     {kbit::kAbsmax, scales, {rows, blocks}, {}},
                                     {kbit::kCodebook, DType::kF32, {uint64_t{1} << bits}, {}},
                                     {kbit::kFactor, DType::kF32, {1}, {}}};
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          Executor&) {
  SUBBYTE_TRY(auto tensors, describe(shape_of(matrix), module));
  allocate(tensors);
  const auto factor = static_cast<float>(matrix.tensor_scale);
  if (factor != matrix.tensor_scale || !(factor > 0) || !std::isfinite(factor)) {
    return export_error("export.tensor_scale", module,
                        fmt::format("expected a factor above 0 that is a number of f32, found {}",
                                    matrix.tensor_scale));
  }
  const std::vector<float> values = default_codebook(matrix.format.element);
  const std::span<const float> codebook = matrix.codebook.empty() ? values : matrix.codebook;
  std::ranges::copy(matrix.codes, tensors[0].bytes.begin());
  std::ranges::copy(matrix.scales, tensors[1].bytes.begin());
  std::ranges::copy(std::as_bytes(codebook), tensors[2].bytes.begin());
  std::ranges::copy(std::as_bytes(std::span(&factor, 1)), tensors[3].bytes.begin());
  return tensors;
}

TargetFormat target(const ExportShape& from) {
  return {from.format, TensorFactor::kMultiplies, false};
}

ExportedConfig config(const ExportedModel& model) {
  std::set<int> widths;
  for (const ExportedModule& module : model.modules) {
    widths.insert(info(module.shape.format.element).bits);
  }
  json::Value bits = *widths.begin();
  if (widths.size() > 1) bits = widths;
  return {{{"quant_method", "kbit"},
           {"bits", bits},
           {"block_size", kbit::kBlock},
           {"modules_to_not_convert", model.kept}}};
}

}  // namespace

extern const Exporter kbit_exporter;
const Exporter kbit_exporter = {.name = "kbit",
                                .has_factor = true,
                                .describe = describe,
                                .target = target,
                                .config = config,
                                .write = write};

}  // namespace subbyte
