#include "transform/matrix_rows.h"

#include <cstring>

#include "base/float16.h"

namespace subbyte {
namespace {

/// The numbers may lie at any address, `step` of them apart.
template <typename Number>
void load_floats(const std::byte* from, int64_t step, float* to, int64_t count) {
  constexpr int64_t kRun = 16;  // that compilers make vectors of
  int64_t i = 0;
  for (; step == 1 && i + kRun <= count; i += kRun) {
    Number numbers[kRun];
    std::memcpy(numbers, from + i * static_cast<int64_t>(sizeof(Number)), sizeof numbers);
    for (int64_t lane = 0; lane < kRun; ++lane) to[i + lane] = to_float(numbers[lane]);
  }
  for (; i < count; ++i) {
    Number number;
    std::memcpy(&number, from + i * step * static_cast<int64_t>(sizeof number), sizeof number);
    to[i] = to_float(number);
  }
}

void load_floats(DType dtype, const std::byte* from, int64_t step, float* to, int64_t count) {
  switch (dtype) {
    case DType::kF16:
      return load_floats<Float16>(from, step, to, count);
    case DType::kBF16:
      return load_floats<BFloat16>(from, step, to, count);
    default:
      return load_floats<float>(from, step, to, count);
  }
}

}  // namespace

RowReader row_reader(const MatrixRows& matrix) {
  const DType dtype = matrix.tensor->dtype;
  const int64_t width = bits(dtype) / 8;
  const std::byte* data = matrix.tensor->bytes.data() + matrix.first * width;
  return [=, cols = matrix.cols, row_step = matrix.row_step, col_step = matrix.col_step,
          order = matrix.tensor->rows, parts = matrix.tensor->cols](int64_t place, float* out) {
    const int64_t row = order == nullptr ? place : (*order)[static_cast<std::size_t>(place)];
    const std::byte* const from = data + row * row_step * width;
    if (parts == nullptr) return load_floats(dtype, from, col_step, out, cols);
    const int64_t part = cols / std::ssize(*parts);
    for (const uint32_t i : *parts) {
      load_floats(dtype, from + i * part * width, 1, out, part);
      out += part;
    }
  };
}

}  // namespace subbyte
