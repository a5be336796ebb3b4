#include "models/latent_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/float16.h"
#include "checkpoints/import_parts.h"
#include "matrix/float_rows.h"

namespace subbyte {
namespace {

constexpr float kLargestF16 = 65504;

void put(std::byte* to, Format element, int64_t idx, float number) {
  const auto store = [&](auto bits) {
    std::memcpy(to + static_cast<std::size_t>(idx) * sizeof bits, &bits, sizeof bits);
  };
  if (element == Format::kF32) {
    store(number);
  } else if (element == Format::kF16) {
    store(to_float16(number));
  } else {
    store(to_bfloat16(number));
  }
}

Matrix dense_matrix(Format element, int64_t rows, int64_t cols) {
  Matrix matrix;
  matrix.view.format = {element};
  matrix.view.rows = rows;
  matrix.view.cols = cols;
  const auto bytes = static_cast<std::size_t>(rows * matrix.view.row_bytes());
  const std::shared_ptr<std::byte[]> memory = allocate_bytes(bytes);
  matrix.view.codes = {memory.get(), bytes};
  matrix.owners.push_back(memory);
  return matrix;
}

std::byte* bytes_of(const Matrix& matrix) {
  return const_cast<std::byte*>(matrix.view.codes.data());
}

/// False: a number is too large for `element`.
bool fill(LatentMatrices& to, const MatrixView& joined, const LatentHeads& heads, Format element,
          Executor& pool) {
  const FloatRows rows(joined);
  const int64_t rank = joined.cols;
  const int64_t rows_of_head = heads.keys + heads.values;
  std::byte* const keys = bytes_of(to.keys);
  std::byte* const values = bytes_of(to.values);
  const bool is_limited = element == Format::kF16 && joined.format.element != Format::kF16;
  std::atomic<bool> fits = true;
  pool.parallel_for(heads.count, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(static_cast<std::size_t>(rank));
    for (int64_t head = begin; head < end; ++head) {
      for (int64_t i = 0; i < rows_of_head; ++i) {
        rows.row(head * rows_of_head + i, row.data());
        for (int64_t k = 0; k < rank; ++k) {
          if (is_limited && std::abs(row[k]) > kLargestF16) fits = false;
          if (i < heads.keys) {
            put(keys, element, (head * rank + k) * heads.keys + i, row[k]);
          } else {
            put(values, element, (head * heads.values + i - heads.keys) * rank + k, row[k]);
          }
        }
      }
    }
  });
  return fits;
}

/// The dtype of numbers that both sides have, else f32.
DType dtype_of(const MatrixView& keys, const MatrixView& values) {
  if (keys.format != values.format) return DType::kF32;
  if (keys.format == WeightFormat{Format::kF16}) return DType::kF16;
  return keys.format == WeightFormat{Format::kBF16} ? DType::kBF16 : DType::kF32;
}

/// The inverse of fill(), beside the tensor that has the keys.
FileTensor joined_side(const MatrixView& keys, const MatrixView& values, const FileTensor& beside,
                       Executor& pool) {
  const int64_t rank = values.cols;
  const int64_t heads = keys.rows / rank;
  const int64_t of_values = values.rows / heads;
  const int64_t rows_of_head = keys.cols + of_values;
  FileTensor joined = beside;
  joined.dtype = dtype_of(keys, values);
  joined.shape = {static_cast<uint64_t>(heads * rows_of_head), static_cast<uint64_t>(rank)};
  const Format element = joined.dtype == DType::kF32   ? Format::kF32
                         : joined.dtype == DType::kF16 ? Format::kF16
                                                       : Format::kBF16;
  const Matrix made = dense_matrix(element, heads * rows_of_head, rank);
  const FloatRows rows_of_keys(keys);
  const FloatRows rows_of_values(values);
  std::byte* const to = bytes_of(made);
  pool.parallel_for(heads, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(static_cast<std::size_t>(std::max(rank, keys.cols)));
    for (int64_t head = begin; head < end; ++head) {
      const int64_t first = head * rows_of_head;
      for (int64_t k = 0; k < rank; ++k) {
        rows_of_keys.row(head * rank + k, row.data());
        for (int64_t i = 0; i < keys.cols; ++i) put(to, element, (first + i) * rank + k, row[i]);
      }
      for (int64_t i = 0; i < of_values; ++i) {
        rows_of_values.row(head * of_values + i, row.data());
        const int64_t at = (first + keys.cols + i) * rank;
        for (int64_t k = 0; k < rank; ++k) put(to, element, at + k, row[k]);
      }
    }
  });
  joined.file =
      std::make_shared<const MappedFile>(MappedFile::of(made.view.codes, beside.file->path()));
  joined.bytes = joined.file->bytes();
  return joined;
}

}  // namespace

LatentShape latent_keys_shape(const TensorSpec& spec) {
  return {spec.latent.count * spec.cols, spec.latent.keys};
}

LatentShape latent_values_shape(const TensorSpec& spec) {
  return {spec.latent.count * spec.latent.values, spec.cols};
}

WeightFormat latent_format(const WeightFormat& format, bool on_host) {
  if (is_dense(format)) return {format.element};
  return {on_host ? Format::kF32 : Format::kF16};
}

Matrix latent_side(const Matrix& side, bool on_host, Executor& pool) {
  const MatrixView& view = side.view;
  if (is_dense(view.format)) return side;
  const FloatRows rows(view);
  for (const Format type : {latent_format(view.format, on_host).element, Format::kBF16}) {
    Matrix made = dense_matrix(type, view.rows, view.cols);
    std::byte* const to = bytes_of(made);
    std::atomic<bool> fits = true;
    pool.parallel_for(view.rows, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<float> row(static_cast<std::size_t>(view.cols));
      for (int64_t i = begin; i < end; ++i) {
        rows.row(i, row.data());
        for (int64_t k = 0; k < view.cols; ++k) {
          if (type == Format::kF16 && std::abs(row[k]) > kLargestF16) fits = false;
          put(to, type, i * view.cols + k, row[k]);
        }
      }
    });
    if (fits || type == Format::kBF16) return made;
  }
  return {};
}

Result<TensorSource> with_joined_latents(const ImportContext& context) {
  const std::string ending = fmt::format(".{}.weight", kKeysApart);
  const auto is_side = [&](const auto& entry) { return entry.first.ends_with(ending); };
  if (std::ranges::none_of(context.tensors.tensors(), is_side)) return context.tensors;
  TensorMap tensors = context.tensors.tensors();
  for (const auto& [name, tensor] : context.tensors.tensors()) {
    if (!name.ends_with(ending)) continue;
    const std::string place = name.substr(0, name.size() - ending.size() + 1);
    SUBBYTE_TRY(const Matrix keys, import_matrix(context, place + std::string(kKeysApart)));
    SUBBYTE_TRY(const Matrix values, import_matrix(context, place + std::string(kValuesApart)));
    const int64_t heads = keys.view.rows / std::max<int64_t>(1, values.view.cols);
    if (heads < 1 || heads * values.view.cols != keys.view.rows || values.view.rows % heads != 0) {
      return tensor_error("gguf.tensor", tensor, "expected as many heads as v_b_proj has");
    }
    FileTensor joined = joined_side(keys.view, values.view, tensor, context.pool);
    joined.name = place + "kv_b_proj.weight";
    tensors.erase(name);
    tensors.erase(fmt::format("{}{}.weight", place, kValuesApart));
    const std::string joined_name = joined.name;
    tensors.emplace(joined_name, std::move(joined));
  }
  TensorSource::Rates rates;
  for (const auto& [name, tensor] : tensors) {
    const auto numbers = context.tensors.rates(name);
    if (!numbers.empty()) rates[name].assign(numbers.begin(), numbers.end());
  }
  return context.tensors.with(std::move(tensors), std::move(rates));
}

LatentMatrices latent_matrices(const MatrixView& joined, const LatentHeads& heads, bool on_host,
                               Executor& pool) {
  const Format element = latent_format(joined.format, on_host).element;
  for (const Format type : {element, Format::kBF16}) {
    LatentMatrices made = {dense_matrix(type, heads.count * joined.cols, heads.keys),
                           dense_matrix(type, heads.count * heads.values, joined.cols)};
    if (fill(made, joined, heads, type, pool) || type == Format::kBF16) return made;
  }
  return {};
}

}  // namespace subbyte
