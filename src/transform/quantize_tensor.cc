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
  load_floats(tensor.dtype, tensor.bytes.data() + index * width, 1, &value, 1);
  const char* code = std::isfinite(value) ? "quantize.f16_overflow" : "quantize.not_finite";
  return tensor_error(code, tensor,
                      fmt::format("element {} is {}, which F16 does not hold", index, value));
}

}  // namespace

RowReader row_reader(const MatrixRows& matrix) {
  const DType dtype = matrix.tensor->dtype;
  const int64_t width = bits(dtype) / 8;
  const std::byte* data = matrix.tensor->bytes.data() + matrix.first * width;
  return [=, cols = matrix.cols, row_step = matrix.row_step, col_step = matrix.col_step](
             int64_t row, float* out) {
    load_floats(dtype, data + row * row_step * width, col_step, out, cols);
  };
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
        load_floats(tensor.dtype, from + at * width, 1, floats.data(), part);
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
