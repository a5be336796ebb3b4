// Writes vector quantization. The tensors are drawn in vq.cc, whose inverse this is.

#include <algorithm>
#include <cmath>
#include <set>

#include "base/float16.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/export_parts.h"
#include "checkpoints/flavours/vq_parts.h"
#include "formats/rotation.h"
#include "matrix/codebook.h"

namespace subbyte {
namespace {

bool is_vq(const WeightFormat& format) {
  return needs_codebook(format.element) &&
         (format.scale == Format::kE4M4 || format.scale == Format::kF16) &&
         format.zero == Zero::kNone && format.group_size == vq::kBlock;
}

/// The config has one number for all matrices.
Status check_rotation(const ExportShape& shape, std::string_view module) {
  const int64_t rotation = shape.format.rotation;
  if (rotation == 0 || rotation == rotation_of(shape.cols, kLargestRotation)) return {};
  return export_error("export.format", module,
                      fmt::format("expected a rotation of {} of {} inputs, or none, found {}",
                                  rotation_of(shape.cols, kLargestRotation), shape.cols, rotation));
}

/// There is always a factor: describe() does not know whether it is 1.
Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  SUBBYTE_CHECK(require_input_order(shape, module));
  if (!is_vq(shape.format)) {
    return export_error("export.format", module,
                        fmt::format("vq is vq2 or vq4 with scales in e4m4 or f16 for 32 inputs, "
                                    "not {}",
                                    to_string(shape.format)));
  }
  SUBBYTE_CHECK(check_rotation(shape, module));
  SUBBYTE_TRY(const int64_t groups, count_groups(shape.format, shape.cols, module));
  const auto size = static_cast<uint64_t>(info(shape.format.element).vector_size);
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto blocks = static_cast<uint64_t>(groups);
  const DType scales = shape.format.scale == Format::kE4M4 ? DType::kU8 : DType::kF16;
  return std::vector<ExportedTensor>{
      {vq::kCodes, DType::kU8, {rows, blocks * vq::kBlock / size}, {}},
      {vq::kScales, scales, {rows, blocks}, {}},
      {vq::kCodebook, DType::kF16, {kVectors, size}, {}},
      {vq::kFactor, DType::kF32, {1}, {}}};
}

/// The codebook as f16, which must hold it.
Status store_codebook(std::span<std::byte> to, const MatrixView& matrix, std::string_view module) {
  const std::string fault = codebook_fault(matrix.codebook, matrix.format.element);
  if (!fault.empty()) return export_error("export.codebook", module, "expected " + fault);
  for (std::size_t i = 0; i < matrix.codebook.size(); ++i) {
    const float value = matrix.codebook[i];
    const Float16 half = to_float16(value);
    if (to_float(half) != value) {
      return export_error("export.codebook", module,
                          fmt::format("expected numbers of f16, found {}", value));
    }
    __builtin_memcpy(to.data() + 2 * i, &half, 2);
  }
  return {};
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
  std::ranges::copy(matrix.codes, tensors[0].bytes.begin());
  std::ranges::copy(matrix.scales, tensors[1].bytes.begin());
  SUBBYTE_CHECK(store_codebook(tensors[2].bytes, matrix, module));
  std::ranges::copy(std::as_bytes(std::span(&factor, 1)), tensors[3].bytes.begin());
  return tensors;
}

TargetFormat target(const ExportShape& from) {
  return {from.format, TensorFactor::kMultiplies, false};
}

ExportedConfig config(const ExportedModel& model) {
  std::set<int> widths;
  int64_t rotation = 0;
  for (const ExportedModule& module : model.modules) {
    widths.insert(info(module.shape.format.element).bits);
    if (module.shape.format.rotation != 0) rotation = kLargestRotation;
  }
  json::Value bits = *widths.begin();
  if (widths.size() > 1) bits = widths;
  return {{{"quant_method", "vq"},
           {"bits", bits},
           {"block_size", vq::kBlock},
           {"rotation", rotation},
           {"modules_to_not_convert", model.kept}}};
}

}  // namespace

extern const Exporter vq_exporter;
const Exporter vq_exporter = {.name = "vq",
                              .has_factor = true,
                              .describe = describe,
                              .target = target,
                              .config = config,
                              .write = write};

}  // namespace subbyte
