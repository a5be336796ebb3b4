// Tensors of GGUF files whose bytes are no matrix of safetensors: blocks of ggml
// (foreign_layouts/ggml_types.h), or rows or columns in another order. Columns whose parts cut
// blocks are put in order as floats.
//
//   X.weight [N, K]    a matrix, with FileTensor::ggml_type, FileTensor::rows or FileTensor::cols
//   X.scale [1]        the factor of NVFP4

#include <algorithm>
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
  return tensor != nullptr &&
         (tensor->ggml_type >= 0 || tensor->rows != nullptr || tensor->cols != nullptr);
}

/// nullptr where the dtype says it.
const GgmlType* type_of(const FileTensor& tensor) {
  return tensor.ggml_type < 0 ? nullptr : find_ggml_type(static_cast<uint32_t>(tensor.ggml_type));
}

/// Columns of each part of them, where they are put in order; 0: as they lie.
uint64_t part_of(const ImportContext& context, const FileTensor& tensor) {
  const bool is_ordered = context.keeps_cols || tensor.cols == nullptr;
  return is_ordered ? 0 : tensor.shape[1] / tensor.cols->size();
}

bool cuts_blocks(const GgmlType* type, uint64_t part) {
  return type != nullptr && part % static_cast<uint64_t>(type->block) != 0;
}

Result<ModuleInfo> describe(const ImportContext& context, std::string_view module) {
  const FileTensor& tensor = *find_tensor(context.tensors, module, ".weight");
  SUBBYTE_CHECK(require_rank(tensor, 2));
  const GgmlType* const type = type_of(tensor);
  ModuleInfo info;
  info.format = {float_format(tensor.dtype), Format::kNone, Zero::kNone, 0};
  if (type != nullptr && type->format) {
    const bool is_cut = cuts_blocks(type, part_of(context, tensor));
    info.format =
        is_cut ? WeightFormat{Format::kF32, Format::kNone, Zero::kNone, 0} : *type->format;
  }
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
    if (is_dense(info.format) && type != nullptr) {
      return tensor_error("import.config", *factor, "expected none where heads cut blocks");
    }
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

/// The bytes of the rows, in the order of the matrix, and the parts of their columns.
std::shared_ptr<std::byte[]> ordered(const FileTensor& tensor, bool orders_cols, Executor& pool) {
  const std::size_t rows = tensor.shape[0];
  const std::size_t size = row_bytes(tensor);
  const std::size_t parts = orders_cols ? tensor.cols->size() : 1;
  const std::size_t part = size / parts;
  auto copy = allocate_bytes(rows * size);
  pool.parallel_for(static_cast<int64_t>(rows), 1, [&](int64_t begin, int64_t end, int) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const std::size_t row = tensor.rows == nullptr ? i : (*tensor.rows)[i];
      for (std::size_t p = 0; p < parts; ++p) {
        const std::size_t from = orders_cols ? (*tensor.cols)[p] : p;
        __builtin_memcpy(copy.get() + i * size + p * part,
                         tensor.bytes.data() + row * size + from * part, part);
      }
    }
  });
  return copy;
}

/// Floats of a matrix whose parts of columns are put in order.
Matrix ordered_floats(const FileTensor& tensor, const ModuleInfo& info, const Matrix& blocks,
                      Executor& pool) {
  const auto parts = static_cast<int64_t>(tensor.cols->size());
  const int64_t part = info.cols / parts;
  const auto bytes =
      allocate_bytes(static_cast<std::size_t>(info.rows * info.cols) * sizeof(float));
  auto* const numbers = reinterpret_cast<float*>(bytes.get());
  pool.parallel_for(info.rows, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(static_cast<std::size_t>(info.cols));
    for (int64_t i = begin; i < end; ++i) {
      // Its view was checked when it was made.
      static_cast<void>(blocks.dequantize(i, std::span(row)));
      for (int64_t p = 0; p < parts; ++p) {
        std::copy_n(row.begin() + int64_t{(*tensor.cols)[static_cast<std::size_t>(p)]} * part, part,
                    numbers + i * info.cols + p * part);
      }
    }
  });
  Matrix matrix = matrix_of(info);
  matrix.view.codes = {bytes.get(),
                       static_cast<std::size_t>(info.rows * info.cols) * sizeof(float)};
  matrix.owners = {bytes};
  return matrix;
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
  std::span<const std::byte> bytes = tensor.bytes;
  std::shared_ptr<const void> owner = tensor.file;
  const GgmlType* const type = type_of(tensor);
  const uint64_t part = part_of(context, tensor);
  const bool is_cut = cuts_blocks(type, part);
  if (tensor.rows != nullptr || (part > 0 && !is_cut)) {
    const auto copy = ordered(tensor, part > 0 && !is_cut, context.pool);
    bytes = {copy.get(), tensor.shape[0] * row_bytes(tensor)};
    owner = copy;
  }
  std::vector<Matrix> matrices(1);
  Matrix& matrix = matrices.front();
  if (type != nullptr) {
    auto made = ggml_matrix(*type, info.rows, info.cols, bytes, context.pool, owner);
    if (!made.ok()) {
      SUBBYTE_CHECK(check_blocks(context, info));  // which names the block by its place in the file
      return made.error();
    }
    matrix = *std::move(made);
    if (is_cut) matrix = ordered_floats(tensor, info, matrix, context.pool);
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
