#include "transform/quantize_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

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

/// What became of some numbers, and the index of the first that is not finite as F16, or -1.
struct RoundedPart {
  SignalAndNoise error;
  int64_t bad = -1;
};

RoundedPart round_to_float16(const float* from, std::byte* to, int64_t count) {
  RoundedPart part;
  for (int64_t i = 0; i < count; ++i) {
    const Float16 half = to_float16(from[i]);
    const bool is_finite = (half.bits & kInfinity) != kInfinity;
    if (is_finite) part.error.add(from[i], static_cast<double>(from[i]) - to_float(half));
    if (part.bad < 0 && !is_finite) part.bad = i;
    std::memcpy(to + 2 * i, &half, 2);
  }
  return part;
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
        rows[n].add(weight, weight - (code - zero) * static_cast<double>(to_float(scale)));
      }
    }
  });
  SignalAndNoise sum;
  for (const SignalAndNoise& row : rows) sum += row;
  return sum;
}

double SignalAndNoise::db() const {
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

Result<SignalAndNoise> write_as_float16(const FileTensor& tensor, Executor& pool,
                                        const AppendBytes& append) {
  const int64_t width = bits(tensor.dtype) / 8;
  const auto count = static_cast<int64_t>(tensor.bytes.size()) / width;
  SUBBYTE_CHECK(tensor.file->verify_unchanged());
  std::vector<std::byte> halves(2 * std::min(count, kChunkElements));
  SignalAndNoise sum;
  for (int64_t first = 0; first < count; first += kChunkElements) {
    const int64_t size = std::min(kChunkElements, count - first);
    const std::byte* from = tensor.bytes.data() + first * width;
    std::vector<RoundedPart> parts((size + kGrainElements - 1) / kGrainElements);
    pool.parallel_for(std::ssize(parts), 1, [&](int64_t begin, int64_t end, int) {
      std::vector<float> floats(std::min(kGrainElements, size));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i * kGrainElements;
        const int64_t part = std::min(kGrainElements, size - at);
        load_floats(tensor.dtype, from + at * width, floats.data(), part);
        parts[i] = round_to_float16(floats.data(), halves.data() + 2 * at, part);
      }
    });
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const int64_t at = first + static_cast<int64_t>(i) * kGrainElements;
      if (parts[i].bad >= 0) return overflow(tensor, at + parts[i].bad);
      sum += parts[i].error;
    }
    SUBBYTE_CHECK(append(std::span(halves).first(2 * size)));
    tensor.file->release(tensor.bytes.subspan(first * width, size * width));
  }
  return sum;
}

}  // namespace subbyte
