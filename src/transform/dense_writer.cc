#include "transform/dense_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "base/quote.h"
#include "checkpoints/import_parts.h"
#include "formats/format.h"
#include "matrix/dequantize.h"

namespace subbyte {
namespace {

constexpr int64_t kChunkBytes = int64_t{16} << 20;  // made at once, then written
constexpr int64_t kFlatCols = int64_t{1} << 15;

template <typename Number>
double store(std::byte* to, Number number) {
  std::memcpy(to, &number, sizeof number);
  return to_float(number);
}

/// Stores `value` rounded to nearest even; what is stored. Rounding to a float in between is
/// harmless only when that is exact.
double store(std::byte* to, double value, Format format) {
  const auto single = static_cast<float>(value);
  if (format == Format::kF32) return store(to, single);
  if (static_cast<double>(single) == value || std::isnan(value)) {
    return format == Format::kF16 ? store(to, to_float16(single)) : store(to, to_bfloat16(single));
  }
  const auto bits = static_cast<uint16_t>(info(format).encode(value, Rounding::kNearestEven));
  return format == Format::kF16 ? store(to, Float16{bits}) : store(to, BFloat16{bits});
}

/// One row: how far it is from what was stored, and the first input that is refused.
struct RowResult {
  Difference difference;
  int64_t inexact = -1;
  bool overflow = false;
};

RowResult store_row(const std::vector<double>& weights, Format format, DenseRounding rounding,
                    std::byte* to, int64_t stride) {
  RowResult result;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    const double stored = store(to + static_cast<int64_t>(k) * stride, weights[k], format);
    const int64_t unequal = result.difference.unequal;
    result.difference.add(weights[k], stored);
    const bool is_refused = rounding == DenseRounding::kFinite && !std::isfinite(stored);
    if ((result.difference.unequal == unequal && !is_refused) || result.overflow) continue;
    result.overflow = is_refused || std::isinf(stored);
    if (result.inexact < 0 || result.overflow) result.inexact = static_cast<int64_t>(k);
  }
  return result;
}

/// "TENSOR: output 3, input 5" for messages.
using Place = std::function<std::string(int64_t row, int64_t input)>;

Error refusal(const MatrixView& matrix, const Place& place, Format format, DenseRounding rounding,
              int64_t row, const RowResult& result) {
  std::vector<double> weights(matrix.cols);
  Dequantizer(matrix).row(row, weights.data());
  const char* code = !result.overflow                         ? "convert.inexact"
                     : rounding != DenseRounding::kFinite     ? "convert.overflow"
                     : std::isfinite(weights[result.inexact]) ? "quantize.f16_overflow"
                                                              : "quantize.not_finite";
  return {code, fmt::format("{} is {}, {} {}", place(row, result.inexact), weights[result.inexact],
                            result.overflow ? "beyond" : "no number of", info(format).name)};
}

Result<Difference> write_rows(const MatrixView& matrix, const Place& place, DType dtype,
                              bool transposed, DenseRounding rounding, Executor& pool,
                              const std::function<Status(std::span<const std::byte>)>& put) {
  const Format format = float_format(dtype);
  const int64_t width = bits(dtype) / 8;
  const Dequantizer dequantizer(matrix);
  const int64_t at_once =
      transposed ? matrix.rows
                 : std::clamp(kChunkBytes / (matrix.cols * width), int64_t{1}, matrix.rows);
  const auto chunk = allocate_bytes(at_once * matrix.cols * width);
  Difference sum;
  for (int64_t first = 0; first < matrix.rows; first += at_once) {
    const int64_t count = std::min(at_once, matrix.rows - first);
    std::vector<RowResult> results(count);
    pool.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<double> weights(matrix.cols);
      for (int64_t i = begin; i < end; ++i) {
        dequantizer.row(first + i, weights.data());
        std::byte* to = chunk.get() + (transposed ? i : i * matrix.cols) * width;
        results[i] = store_row(weights, format, rounding, to, transposed ? count * width : width);
      }
    });
    for (int64_t i = 0; i < count; ++i) {
      const RowResult& result = results[i];
      if (result.overflow || (result.inexact >= 0 && rounding == DenseRounding::kNone)) {
        return refusal(matrix, place, format, rounding, first + i, result);
      }
      sum += result.difference;
    }
    const int64_t size = count * matrix.cols * width;
    SUBBYTE_CHECK(put({chunk.get(), static_cast<std::size_t>(size)}));
  }
  return sum;
}

}  // namespace

Result<Difference> write_dense(const MatrixView& matrix, std::string_view name, DType dtype,
                               bool transposed, DenseRounding rounding, Executor& pool,
                               const std::function<Status(std::span<const std::byte>)>& put) {
  const auto place = [name](int64_t row, int64_t input) {
    return fmt::format("{}: output {}, input {}", quote_name(name), row, input);
  };
  return write_rows(matrix, place, dtype, transposed, rounding, pool, put);
}

std::vector<MatrixView> flat_views(const FileTensor& tensor) {
  const Format format = float_format(tensor.dtype);
  const auto width = static_cast<std::size_t>(bits(tensor.dtype) / 8);
  const auto count = static_cast<int64_t>(tensor.bytes.size() / width);
  std::vector<MatrixView> views;
  const auto add = [&](int64_t first, int64_t rows, int64_t cols) {
    if (rows == 0 || cols == 0) return;
    MatrixView& view = views.emplace_back();
    view.format.element = format;
    view.rows = rows;
    view.cols = cols;
    view.codes = tensor.bytes.subspan(first * width, rows * cols * width);
  };
  const int64_t rows = count / kFlatCols;
  add(0, rows, kFlatCols);
  add(rows * kFlatCols, 1, count % kFlatCols);
  return views;
}

Result<Difference> write_dense(const FileTensor& in_file, DType dtype, DenseRounding rounding,
                               Executor& pool, const PutBytes& put) {
  const FileTensor tensor = in_order(in_file);
  Difference sum;
  for (const MatrixView& view : flat_views(tensor)) {
    const auto place = [&](int64_t row, int64_t input) {
      const int64_t first = (view.codes.data() - tensor.bytes.data()) * 8 / bits(tensor.dtype);
      const int64_t element = first + row * view.cols + input;
      return tensor_error("", tensor, fmt::format("element {}", element)).message;
    };
    SUBBYTE_TRY(const Difference part,
                write_rows(view, place, dtype, false, rounding, pool,
                           [&](std::span<const std::byte> bytes) { return put(0, bytes); }));
    tensor.file->release(view.codes);
    if (part.unequal > 0 || rounding == DenseRounding::kFinite) sum += part;
  }
  return sum;
}

}  // namespace subbyte
