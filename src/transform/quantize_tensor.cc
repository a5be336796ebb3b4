#include "transform/quantize_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "checkpoints/import_parts.h"

namespace subbyte {
namespace {

constexpr int64_t kChunkElements = int64_t{8} << 20;  // converted at once, then written
constexpr int64_t kGrainElements = int64_t{1} << 15;
constexpr uint16_t kInfinity = 0x7C00;

/// The numbers may lie at any address.
template <typename Number>
void load_floats(const std::byte* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Number number;
    std::memcpy(&number, from + i * static_cast<int64_t>(sizeof number), sizeof number);
    to[i] = to_float(number);
  }
}

void load_floats(DType dtype, const std::byte* from, float* to, int64_t count) {
  switch (dtype) {
    case DType::kF16:
      return load_floats<Float16>(from, to, count);
    case DType::kBF16:
      return load_floats<BFloat16>(from, to, count);
    default:
      return load_floats<float>(from, to, count);
  }
}

/// Index of the first number that is not finite as F16, or -1.
int64_t round_to_float16(const float* from, std::byte* to, int64_t count) {
  int64_t bad = -1;
  for (int64_t i = 0; i < count; ++i) {
    const Float16 half = to_float16(from[i]);
    if (bad < 0 && (half.bits & kInfinity) == kInfinity) bad = i;
    std::memcpy(to + 2 * i, &half, 2);
  }
  return bad;
}

Error overflow(const FileTensor& tensor, int64_t index) {
  const int64_t width = bits(tensor.dtype) / 8;
  float value = 0;
  load_floats(tensor.dtype, tensor.bytes.data() + index * width, &value, 1);
  const char* code = std::isfinite(value) ? "quantize.f16_overflow" : "quantize.not_finite";
  return tensor_error(code, tensor,
                      fmt::format("element {} is {}, which F16 does not hold", index, value));
}

}  // namespace

RowReader row_reader(const FileTensor& tensor, int64_t first_row) {
  const auto cols = static_cast<int64_t>(tensor.shape.back());
  const DType dtype = tensor.dtype;
  const int64_t row_bytes = cols * bits(dtype) / 8;
  const std::byte* data = tensor.bytes.data() + first_row * row_bytes;
  return [=](int64_t row, float* out) { load_floats(dtype, data + row * row_bytes, out, cols); };
}

SignalAndNoise quantization_error(const MatrixView& matrix, const RowReader& read_row,
                                  Executor& pool) {
  std::vector<SignalAndNoise> rows(matrix.rows);
  const int64_t groups = matrix.groups();
  pool.parallel_for(matrix.rows, 16, [&](int64_t begin, int64_t end, int) {
    std::vector<float> weights(matrix.cols);
    for (int64_t n = begin; n < end; ++n) {
      read_row(n, weights.data());
      const std::byte* codes = matrix.codes.data() + n * matrix.row_bytes();
      for (int64_t k = 0; k < matrix.cols; ++k) {
        const int64_t group = n * groups + k / matrix.group_size();
        Float16 scale;
        std::memcpy(&scale, matrix.scales.data() + group * 2, 2);
        const int code = std::to_integer<int>(codes[k / 2] >> (4 * (k % 2))) & 0xF;
        const int zero = std::to_integer<int>(matrix.zeros[group]);
        const double weight = weights[k];
        const double error = weight - (code - zero) * static_cast<double>(to_float(scale));
        rows[n].signal += weight * weight;
        rows[n].noise += error * error;
      }
    }
  });
  SignalAndNoise sum;
  for (const SignalAndNoise& row : rows) sum += row;
  return sum;
}

Status write_as_float16(const FileTensor& tensor, Executor& pool, const AppendBytes& append) {
  const int64_t width = bits(tensor.dtype) / 8;
  const auto count = static_cast<int64_t>(tensor.bytes.size()) / width;
  SUBBYTE_CHECK(tensor.file->verify_unchanged());
  std::vector<std::byte> halves(2 * std::min(count, kChunkElements));
  for (int64_t first = 0; first < count; first += kChunkElements) {
    const int64_t size = std::min(kChunkElements, count - first);
    const std::byte* from = tensor.bytes.data() + first * width;
    std::vector<int64_t> bad(pool.size(), size);
    pool.parallel_for(size, kGrainElements, [&](int64_t begin, int64_t end, int task) {
      std::vector<float> floats(std::min(kGrainElements, end - begin));
      for (int64_t i = begin; i < end; i += kGrainElements) {
        const int64_t part = std::min(kGrainElements, end - i);
        load_floats(tensor.dtype, from + i * width, floats.data(), part);
        const int64_t found = round_to_float16(floats.data(), halves.data() + 2 * i, part);
        if (found >= 0) bad[task] = std::min(bad[task], i + found);
      }
    });
    const int64_t first_bad = std::ranges::min(bad);
    if (first_bad < size) return overflow(tensor, first + first_bad);
    SUBBYTE_CHECK(append(std::span(halves).first(2 * size)));
    tensor.file->release(tensor.bytes.subspan(first * width, size * width));
  }
  return {};
}

}  // namespace subbyte
