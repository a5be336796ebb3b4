#include "checkpoints/flavours/codebook_blocks.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "matrix/codebook.h"

namespace subbyte::codebook_blocks {
namespace {

Status check_factor(const FileTensor& tensor) {
  SUBBYTE_CHECK(require_dtype(tensor, DType::kF32));
  SUBBYTE_CHECK(require_shape(tensor, {1}));
  const float factor = load_f32(tensor, 0);
  if (std::isfinite(factor) && factor > 0) return {};
  return tensor_error("import.scale_not_finite", tensor,
                      fmt::format("expected a factor above 0, found {}", factor));
}

}  // namespace

Result<Tensors> find_tensors(const ImportContext& context, std::string_view module,
                             const Names& names) {
  SUBBYTE_TRY(const FileTensor* codes, require_tensor(context.tensors, module, names.codes));
  SUBBYTE_TRY(const FileTensor* scales, require_tensor(context.tensors, module, names.scales));
  SUBBYTE_TRY(const FileTensor* codebook, require_tensor(context.tensors, module, names.codebook));
  SUBBYTE_CHECK(require_dtype(*codes, DType::kU8));
  SUBBYTE_CHECK(require_rank(*codes, 2));
  if (scales->dtype != DType::kU8 && scales->dtype != DType::kF16) {
    return tensor_error("import.dtype", *scales,
                        fmt::format("expected dtype U8 or F16, found {}", name(scales->dtype)));
  }
  SUBBYTE_CHECK(require_rank(*scales, 2));
  SUBBYTE_CHECK(require_shape(*scales, {codes->shape[0], scales->shape[1]}));
  const FileTensor* factor = find_tensor(context.tensors, module, names.factor);
  if (factor != nullptr) SUBBYTE_CHECK(check_factor(*factor));
  return Tensors{codes, scales, codebook, factor};
}

Result<ModuleInfo> describe_codes(const ImportContext& context, const Tensors& tensors,
                                  Format element, std::span<const int> known) {
  const int bits = info(element).bits;
  const auto bytes = static_cast<uint64_t>(4 * bits);
  const uint64_t blocks = tensors.scales->shape[1];
  const uint64_t row_bytes = tensors.codes->shape[1];
  if (blocks == 0 || blocks > row_bytes || row_bytes != blocks * bytes) {
    return tensor_error(
        "import.shape", *tensors.codes,
        fmt::format("expected {} bytes for each of {} blocks, found {}", bytes, blocks, row_bytes));
  }
  if (std::ranges::find(known, bits) == known.end()) {
    return tensor_error(
        "import.config", *tensors.codes,
        fmt::format("weights of {} bits, which {} does not name", bits, context.config.where));
  }
  ModuleInfo result;
  result.rows = static_cast<int64_t>(tensors.codes->shape[0]);
  result.cols = static_cast<int64_t>(blocks * kBlock);
  result.format = {element, tensors.scales->dtype == DType::kU8 ? Format::kE4M4 : Format::kF16,
                   Zero::kNone, kBlock};
  result.tensors = {tensors.codes, tensors.scales, tensors.codebook};
  result.scales = tensors.scales;
  if (tensors.factor != nullptr) result.tensors.push_back(tensors.factor);
  return result;
}

Result<std::vector<int>> read_bits_and_block(const json::Object& section,
                                             std::span<const int> known,
                                             std::string_view expected) {
  const json::Value* bits = section.find("bits");
  const json::Value list = bits == nullptr    ? json::Value::array()
                           : bits->is_array() ? *bits
                                              : json::Value::array({*bits});
  std::vector<int> widths;
  for (const json::Value& width : list) {
    const bool is_known = width.is_number_integer() &&
                          std::ranges::any_of(known, [&](int one) { return width == one; });
    if (!is_known) return section.error("quantization.bits", "bits", std::string(expected));
    widths.push_back(width.get<int>());
  }
  if (widths.empty()) return section.error("quantization.bits", "bits", std::string(expected));
  SUBBYTE_TRY(const int64_t size, section.required_integer("block_size", 0, 1 << 24));
  if (size != kBlock) return section.error("quantization.group_size", "block_size", "32");
  return widths;
}

Result<Matrix> import_codes(const ImportContext& context, const ModuleInfo& info) {
  SUBBYTE_CHECK(check_scales(context, info));
  const FileTensor& codes = *info.tensors[0];
  Matrix matrix = matrix_of(info);
  MatrixView& view = matrix.view;
  view.codes = codes.bytes;
  matrix.owners.push_back(codes.file);
  view.scales = aligned_bytes(*info.scales, matrix.owners);
  if (info.tensors.size() > 3) view.tensor_scale = load_f32(*info.tensors[3], 0);
  return matrix;
}

bool has_blocks(const WeightFormat& format) {
  return may_have_codebook(format.element) &&
         (format.scale == Format::kE4M4 || format.scale == Format::kF16) &&
         format.zero == Zero::kNone && format.group_size == kBlock;
}

Result<std::vector<ExportedTensor>> describe_tensors(const ExportShape& shape,
                                                     std::string_view module, const Names& names,
                                                     DType dtype, Shape codebook) {
  SUBBYTE_TRY(const int64_t groups, count_groups(shape.format, shape.cols, module));
  const auto bits = static_cast<uint64_t>(info(shape.format.element).bits);
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto blocks = static_cast<uint64_t>(groups);
  const DType scales = shape.format.scale == Format::kE4M4 ? DType::kU8 : DType::kF16;
  return std::vector<ExportedTensor>{{names.codes, DType::kU8, {rows, blocks * 4 * bits}, {}},
                                     {names.scales, scales, {rows, blocks}, {}},
                                     {names.codebook, dtype, std::move(codebook), {}},
                                     {names.factor, DType::kF32, {1}, {}}};
}

Status store_codes(std::vector<ExportedTensor>& tensors, const MatrixView& matrix,
                   std::string_view module) {
  const auto factor = static_cast<float>(matrix.tensor_scale);
  if (factor != matrix.tensor_scale || !(factor > 0) || !std::isfinite(factor)) {
    return export_error("export.tensor_scale", module,
                        fmt::format("expected a factor above 0 that is a number of f32, found {}",
                                    matrix.tensor_scale));
  }
  std::ranges::copy(matrix.codes, tensors[0].bytes.begin());
  std::ranges::copy(matrix.scales, tensors[1].bytes.begin());
  std::ranges::copy(std::as_bytes(std::span(&factor, 1)), tensors[3].bytes.begin());
  return {};
}

json::Value config_of(const ExportedModel& model, const Names& names) {
  std::set<int> widths;
  for (const ExportedModule& module : model.modules) {
    widths.insert(info(module.shape.format.element).bits);
  }
  json::Value bits = *widths.begin();
  if (widths.size() > 1) bits = std::vector<int>(widths.begin(), widths.end());
  return {{"quant_method", names.flavour},
          {"bits", bits},
          {"block_size", kBlock},
          {"modules_to_not_convert", model.kept}};
}

TargetFormat codes_target(const ExportShape& from) {
  return {from.format, TensorFactor::kMultiplies, false};
}

}  // namespace subbyte::codebook_blocks
