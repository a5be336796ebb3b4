#include "checkpoints/flavours/nvfp4_parts.h"

#include <cmath>

namespace subbyte::nvfp4 {
namespace {

constexpr uint64_t kGroup = 16;
constexpr WeightFormat kFormat = {Format::kE2M1, Format::kE4M3, Zero::kNone, kGroup};

}  // namespace

Status check_factor(const FileTensor& tensor, bool divides) {
  SUBBYTE_CHECK(require_dtype(tensor, DType::kF32));
  if (!tensor.shape.empty()) SUBBYTE_CHECK(require_shape(tensor, {1}));
  float factor = 0;
  __builtin_memcpy(&factor, tensor.bytes.data(), 4);
  if (std::isfinite(factor) && factor >= 0 && (factor > 0 || !divides)) return {};
  return tensor_error("import.scale_not_finite", tensor,
                      fmt::format("expected a positive number, found {}", factor));
}

Result<ModuleInfo> describe_blocks(const ImportContext& context, std::string_view module,
                                   const Names& names) {
  const TensorSource& tensors = context.tensors;
  SUBBYTE_TRY(const FileTensor* codes, require_tensor(tensors, module, names.codes));
  SUBBYTE_TRY(const FileTensor* scales, require_tensor(tensors, module, ".weight_scale"));
  SUBBYTE_TRY(const FileTensor* factor, require_tensor(tensors, module, names.factor));
  SUBBYTE_CHECK(require_dtype(*codes, DType::kU8));
  SUBBYTE_CHECK(require_rank(*codes, 2));
  const uint64_t rows = codes->shape[0];
  const uint64_t row_bytes = codes->shape[1];
  if (row_bytes % (kGroup / 2) != 0) {
    return tensor_error("import.shape", *codes,
                        fmt::format("{} inputs are not a multiple of {}", 2 * row_bytes, kGroup));
  }
  SUBBYTE_CHECK(require_dtype(*scales, DType::kF8E4M3));
  SUBBYTE_CHECK(require_rank(*scales, 2));
  const auto cols = static_cast<int64_t>(row_bytes * 2);
  int64_t group = kGroup;
  if (names.group_size != nullptr) {
    SUBBYTE_TRY(group, names.group_size(context, module, *scales, cols));
  }
  SUBBYTE_CHECK(require_shape(*scales, {rows, row_bytes * 2 / static_cast<uint64_t>(group)}));
  SUBBYTE_CHECK(check_factor(*factor, names.factor_divides));
  ModuleInfo result;
  result.format = kFormat;
  result.format.group_size = group;
  result.rows = static_cast<int64_t>(rows);
  result.cols = cols;
  result.tensors = {codes, scales, factor};
  result.scales = scales;
  if (const FileTensor* unused = find_tensor(tensors, module, names.activations)) {
    result.tensors.push_back(unused);
  }
  return result;
}

Result<std::vector<Matrix>> import_blocks(const ImportContext& context, const ModuleInfo& info,
                                          const Names& names) {
  const FileTensor& codes = *info.tensors[0];
  const FileTensor& scales = *info.tensors[1];
  SUBBYTE_CHECK(check_scales(context, info));
  float factor = 0;
  __builtin_memcpy(&factor, info.tensors[2]->bytes.data(), 4);
  Matrix matrix = matrix_of(info);
  matrix.view.codes = codes.bytes;
  matrix.view.scales = scales.bytes;
  matrix.view.tensor_scale = names.factor_divides ? 1.0 / factor : factor;
  matrix.owners = {codes.file, scales.file};
  return std::vector<Matrix>{std::move(matrix)};
}

Result<std::vector<ExportedTensor>> describe_tensors(const ExportShape& shape,
                                                     std::string_view module, const Names& names) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  SUBBYTE_TRY(const Blocks blocks, require_blocks(shape, module, "NVFP4", kFormat));
  return std::vector<ExportedTensor>{
      {names.codes, DType::kU8, {blocks.rows, blocks.groups * kGroup / 2}, {}},
      {".weight_scale", DType::kF8E4M3, {blocks.rows, blocks.groups}, {}},
      {names.factor, DType::kF32, names.factor_divides ? Shape{1} : Shape{}, {}}};
}

Result<std::vector<ExportedTensor>> write_blocks(const MatrixView& matrix, std::string_view module,
                                                 const Names& names) {
  SUBBYTE_TRY(auto tensors, describe_tensors(shape_of(matrix), module, names));
  const auto factor =
      static_cast<float>(names.factor_divides ? 1 / matrix.tensor_scale : matrix.tensor_scale);
  const bool lost = factor == 0 && matrix.tensor_scale != 0;
  if (!std::isfinite(factor) || factor < 0 || lost) {
    return export_error("export.tensor_scale", module,
                        fmt::format("a factor of {} is beyond what F32 holds as {}",
                                    matrix.tensor_scale, names.factor));
  }
  allocate(tensors);
  std::ranges::copy(matrix.codes, tensors[0].bytes.begin());
  std::ranges::copy(matrix.scales, tensors[1].bytes.begin());
  __builtin_memcpy(tensors[2].bytes.data(), &factor, 4);
  return tensors;
}

TargetFormat blocks_target(const ExportShape& from, const Names& names) {
  const bool fp4 = from.format.element == Format::kE2M1;
  return {fp4 ? kFormat : from.format,
          names.factor_divides ? TensorFactor::kDivides : TensorFactor::kMultiplies, false};
}

}  // namespace subbyte::nvfp4
