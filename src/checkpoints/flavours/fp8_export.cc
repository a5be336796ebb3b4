// Writes FP8: see fp8_parts.h.
//
//   fp8               factors of blocks of 128 x 128, as transformers, vLLM and SGLang read them
//   float_quantized   compressed-tensors: the same, or factors of rows
//
// A canonical matrix has a scale for each row: those of a block must be equal.

#include "base/checked.h"
#include "checkpoints/export_parts.h"
#include "checkpoints/flavours/ct_parts.h"
#include "checkpoints/flavours/fp8_parts.h"

namespace subbyte {
namespace {

constexpr int64_t kBlock = 128;

bool holds(const WeightFormat& format, bool rows_too) {
  const bool scale = format.scale == Format::kF32 || format.scale == Format::kBF16 ||
                     (format.scale == Format::kE8M0 && !rows_too);
  const bool group = format.group_size == kBlock || (rows_too && format.group_size == 0);
  return format.element == Format::kE4M3 && format.zero == Zero::kNone && scale && group;
}

DType dtype_of(Format scale) {
  if (scale == Format::kE8M0) return DType::kF8E8M0;
  return scale == Format::kBF16 ? DType::kBF16 : DType::kF32;
}

int64_t block_rows(const WeightFormat& format) {
  return format.group_size == 0 ? 1 : kBlock;
}

Result<std::vector<ExportedTensor>> describe(const ExportShape& shape, std::string_view module,
                                             bool rows_too) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  SUBBYTE_CHECK(require_input_order(shape, module));
  const WeightFormat& format = shape.format;
  if (!holds(format, rows_too)) {
    return export_error(
        "export.format", module,
        fmt::format("FP8 here is e4m3 with scales f32 or bf16{} for blocks of 128 "
                    "x 128{}, not {}",
                    rows_too ? "" : " or e8m0", rows_too ? " or rows" : "", to_string(format)));
  }
  if (shape.rows <= 0 || shape.cols <= 0) {
    return export_error("export.shape", module, "expected some outputs and inputs, found none");
  }
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto cols = static_cast<uint64_t>(shape.cols);
  const Shape factors = {ceil_div(rows, static_cast<uint64_t>(block_rows(format))),
                         format.group_size == 0 ? 1 : ceil_div(cols, uint64_t{kBlock})};
  return std::vector<ExportedTensor>{
      {".weight", DType::kF8E4M3, {rows, cols}, {}},
      {rows_too ? ".weight_scale" : ".weight_scale_inv", dtype_of(format.scale), factors, {}}};
}

/// The scales of the first row of each block, with which the others must agree.
Status write_factors(const MatrixView& matrix, std::string_view module,
                     std::span<std::byte> factors) {
  const auto row_bytes =
      static_cast<std::size_t>(matrix.groups() * info(matrix.format.scale).bits / 8);
  const int64_t rows = block_rows(matrix.format);
  for (int64_t n = 0; n < matrix.rows; ++n) {
    const auto scales = matrix.scales.subspan(static_cast<std::size_t>(n) * row_bytes, row_bytes);
    const auto block = factors.subspan(static_cast<std::size_t>(n / rows) * row_bytes, row_bytes);
    if (n % rows == 0) {
      std::ranges::copy(scales, block.begin());
    } else if (!std::ranges::equal(scales, block)) {
      return export_error("export.blocks", module,
                          fmt::format("scales of output {} are not those of output {}, with which "
                                      "it would share a block",
                                      n, n / rows * rows));
    }
  }
  return {};
}

Result<std::vector<ExportedTensor>> write(const MatrixView& matrix, std::string_view module,
                                          bool rows_too) {
  SUBBYTE_TRY(auto tensors, describe(shape_of(matrix), module, rows_too));
  SUBBYTE_CHECK(require_tensor_scale_1(matrix, module));
  allocate(tensors);
  std::ranges::copy(matrix.codes, tensors[0].bytes.begin());
  SUBBYTE_CHECK(write_factors(matrix, module, tensors[1].bytes));
  return tensors;
}

/// Scales of a row become those of each of its blocks where there are only blocks.
template <bool rows_too>
TargetFormat target(const ExportShape& from) {
  TargetFormat result = {from.format, TensorFactor::kNone, false};
  if (from.format.element != Format::kE4M3) return result;
  if (rows_too && from.format.scale == Format::kE8M0) result.format.scale = Format::kF32;
  if (!rows_too) result.format.group_size = kBlock;
  return result;
}

ExportedConfig config(const ExportedModel& model) {
  json::Value section = {{"quant_method", "fp8"},
                         {"activation_scheme", "dynamic"},
                         {"fmt", "e4m3"},
                         {"weight_block_size", {kBlock, kBlock}},
                         {"modules_to_not_convert", model.kept}};
  const bool powers = model.modules.front().shape.format.scale == Format::kE8M0;
  if (powers) section["scale_fmt"] = "ue8m0";
  return {section};
}

ExportedConfig float_quantized_config(const ExportedModel& model) {
  return compressed_config(model, "float-quantized");
}

template <bool rows_too>
constexpr Exporter make_exporter(std::string_view name) {
  return {.name = name,
          .says_kv_cache = rows_too ? says_compressed_kv_cache : nullptr,
          .describe = [](const ExportShape& shape,
                         std::string_view module) { return describe(shape, module, rows_too); },
          .target = target<rows_too>,
          .config = rows_too ? float_quantized_config : config,
          .write = [](const MatrixView& matrix, std::string_view module,
                      Executor&) { return write(matrix, module, rows_too); }};
}

}  // namespace

extern const Exporter fp8_exporter;
extern const Exporter float_quantized_exporter;
const Exporter fp8_exporter = make_exporter<false>("fp8");
const Exporter float_quantized_exporter = make_exporter<true>("float_quantized");

}  // namespace subbyte
