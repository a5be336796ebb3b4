// Tensors of GGUF files whose bytes are no matrix of safetensors: blocks of ggml
// (foreign_layouts/ggml_types.h), or rows in another order.
//
//   X.weight [N, K]    a matrix, with FileTensor::ggml_type or FileTensor::rows
//   X.scale [1]        the factor of NVFP4

#include <cmath>

#include "base/quote.h"
#include "checkpoints/flavour.h"
#include "checkpoints/import_parts.h"
#include "foreign_layouts/ggml_blocks.h"

namespace subbyte {
namespace {

constexpr std::string_view kFactor = ".scale";

bool matches(const TensorSource& tensors, std::string_view module) {
  const FileTensor* const tensor = find_tensor(tensors, module, ".weight");
  return tensor != nullptr && (tensor->ggml_type >= 0 || tensor->rows != nullptr);
}

/// nullptr where the dtype says it.
const GgmlType* type_of(const FileTensor& tensor) {
  return tensor.ggml_type < 0 ? nullptr : find_ggml_type(static_cast<uint32_t>(tensor.ggml_type));
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  const FileTensor& tensor = *find_tensor(context.tensors, module, ".weight");
  SUBBYTE_CHECK(require_rank(tensor, 2));
  const GgmlType* const type = type_of(tensor);
  ModuleInfo info;
  info.format = {float_format(tensor.dtype), Format::kNone, Zero::kNone, 0};
  if (type != nullptr && type->format) info.format = *type->format;
  if (info.format.element == Format::kNone) {
    return tensor_error("import.dtype", tensor,
                        fmt::format("expected weights, found {}", type_name(tensor)));
  }
  info.tensors = {&tensor};
  info.rows = static_cast<int64_t>(tensor.shape[0]);
  info.cols = static_cast<int64_t>(tensor.shape[1]);
  if (const FileTensor* const factor = find_tensor(context.tensors, module, kFactor)) {
    SUBBYTE_CHECK(require_dtype(*factor, DType::kF32));
    SUBBYTE_CHECK(require_shape(*factor, {1}));
    info.tensors.push_back(factor);
  }
  return info;
}

std::size_t row_bytes(const FileTensor& tensor) {
  const GgmlType* const type = type_of(tensor);
  const auto cols = static_cast<std::size_t>(tensor.shape[1]);
  if (type != nullptr) return cols / type->block * type->bytes;
  return cols * static_cast<std::size_t>(bits(tensor.dtype)) / 8;
}

/// The bytes of the rows, in the order of the matrix.
std::shared_ptr<std::byte[]> ordered(const FileTensor& tensor) {
  const std::size_t rows = tensor.rows->size();
  const std::size_t size = row_bytes(tensor);
  auto copy = allocate_bytes(rows * size);
  for (std::size_t i = 0; i < rows; ++i) {
    __builtin_memcpy(copy.get() + i * size, tensor.bytes.data() + (*tensor.rows)[i] * size, size);
  }
  return copy;
}

Status check_blocks(const ImportContext& /*context*/, const ModuleInfo& info) {
  const FileTensor& tensor = *info.tensors.front();
  const GgmlType* const type = type_of(tensor);
  if (type == nullptr) return {};
  const int64_t bad = bad_ggml_block(*type, tensor.bytes);
  tensor.file->release(tensor.bytes);
  if (bad < 0) return {};
  return tensor_error("import.scale_not_finite", tensor,
                      fmt::format("block {} has a scale that no weights have", bad));
}

Result<std::vector<Matrix>> import(const ImportContext& context, const ModuleInfo& info) {
  const FileTensor& tensor = *info.tensors.front();
  SUBBYTE_CHECK(check_blocks(context, info));
  std::span<const std::byte> bytes = tensor.bytes;
  std::shared_ptr<const void> owner = tensor.file;
  if (tensor.rows != nullptr) {
    const auto copy = ordered(tensor);
    bytes = {copy.get(), tensor.rows->size() * row_bytes(tensor)};
    owner = copy;
  }
  std::vector<Matrix> matrices(1);
  Matrix& matrix = matrices.front();
  if (const GgmlType* const type = type_of(tensor)) {
    SUBBYTE_TRY(matrix, ggml_matrix(*type, info.rows, info.cols, bytes, context.pool, owner));
  } else {
    matrix = matrix_of(info);
    matrix.view.codes = bytes;
    matrix.owners = {owner};
  }
  tensor.file->release(tensor.bytes);
  if (info.tensors.size() == 1) return matrices;
  const float factor = load_f32(*info.tensors.back(), 0);
  if (!std::isfinite(factor)) {
    return tensor_error("import.scale_not_finite", *info.tensors.back(), "it is not a number");
  }
  matrix.view.tensor_scale = factor;
  return matrices;
}

constexpr Importer kImporter = {"gguf", ".weight", matches, describe, import, check_blocks};

}  // namespace

extern const Flavour gguf_flavour;
const Flavour gguf_flavour = {.name = "gguf", .importers = {{&kImporter}}};

}  // namespace subbyte
