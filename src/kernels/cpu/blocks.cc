#include "kernels/cpu/blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/float16.h"
#include "kernels/cpu/block_kernels.h"
#include "matrix/dequantize.h"
#include "matrix/group_numbers.h"

namespace subbyte::cpu {
namespace {

constexpr int64_t kPartGroups = 128;
constexpr int64_t kPartInputs = 1024;

int buffer_index(Format number) {
  if (number == Format::kF32) return static_cast<int>(Element::kF32);
  return static_cast<int>(number == Format::kF16 ? Element::kF16 : Element::kBF16);
}

int64_t number_bytes(Format number) {
  return info(number).bits / 8;
}

/// Row `row` of the scales' rows, of which those after the last row of x are padding.
void quantize_row(const BlockQuantization& b, int64_t row, const void* x, uint8_t* codes,
                  uint8_t* scales, const BlockKernels& kernels) {
  const auto quantize = kernels.quantize[static_cast<int>(b.format)][buffer_index(b.input)];
  const int64_t groups = row < b.rows ? b.cols / b.group() : 0;
  const int64_t group_bytes = b.group() * info(b.element()).bits / 8;
  const auto* from = static_cast<const uint8_t*>(x) + row * b.cols * number_bytes(b.input);
  uint8_t* const to = codes + row * b.row_bytes();
  for (int64_t g = 0; g < groups; g += kPartGroups) {
    std::array<uint8_t, kPartGroups> part;
    const int64_t count = std::min(kPartGroups, groups - g);
    quantize({.x = from + g * b.group() * number_bytes(b.input),
              .codes = to + g * group_bytes,
              .scales = part.data(),
              .groups = count,
              .rule = static_cast<int>(b.rule),
              .tensor_scale = b.tensor_scale});
    for (int64_t i = 0; i < count; ++i) scales[scale_byte(b, row, g + i)] = part[i];
  }
  if (row < b.rows) std::fill(to + groups * group_bytes, to + b.row_bytes(), uint8_t{0});
  for (int64_t g = groups; g < b.scale_cols(); ++g) scales[scale_byte(b, row, g)] = 0;
}

float load_number(Format format, std::span<const std::byte> bytes, int64_t i) {
  const int64_t width = number_bytes(format);
  uint32_t code = 0;
  std::memcpy(&code, bytes.data() + i * width, width);
  if (format == Format::kF32) return std::bit_cast<float>(code);
  if (format == Format::kF16) return to_float(Float16{static_cast<uint16_t>(code)});
  if (format == Format::kBF16) return to_float(BFloat16{static_cast<uint16_t>(code)});
  return static_cast<float>(info(format).decode(code));
}

/// A row at a time, in parts that fit on the stack.
class RowDequantizer {
 public:
  RowDequantizer(const MatrixView& matrix, Format number, void* out, const BlockKernels& kernels)
      : matrix_(matrix),
        kernels_(kernels),
        number_(number),
        out_(static_cast<uint8_t*>(out)),
        tensor_scale_(static_cast<float>(matrix.tensor_scale)) {
    if (is_dense(matrix.format)) return;
    numbers_.emplace(matrix);
    are_vectors_ = info(matrix.format.element).vector_size > 1;
    if (!matrix.codebook.empty()) return;
    for (uint32_t code = 0; code < uint32_t{1} << info(matrix.format.element).bits; ++code) {
      values_[code] = static_cast<float>(matrix.value_of(code));
    }
  }

  void row(int64_t row) const {
    const int64_t size = is_dense(matrix_.format) ? matrix_.cols : matrix_.group_size();
    DequantizeTask task;
    std::array<float, kPartInputs> part;
    for (int64_t k = 0; k < matrix_.cols; k = task.end) {
      const int64_t part_end = std::min(k + kPartInputs, matrix_.cols);
      for (int64_t begin = k; begin < part_end; begin = task.end) {
        task.begin = begin;
        task.end = std::min(part_end, (begin / size + 1) * size);
        task.out = part.data() + (begin - k);
        group(row, begin / size, task);
      }
      put(row, k, part.data(), task.end - k);
    }
  }

 private:
  void group(int64_t row, int64_t g, DequantizeTask& task) const {
    const WeightFormat& format = matrix_.format;
    if (is_dense(format)) {
      for (int64_t k = task.begin; k < task.end; ++k) {
        task.out[k - task.begin] =
            load_number(format.element, matrix_.codes, row * matrix_.cols + k) * tensor_scale_;
      }
      return;
    }
    task.codes = reinterpret_cast<const uint8_t*>(matrix_.codes.data()) + row * matrix_.row_bytes();
    task.bits = info(format.element).bits;
    task.values = matrix_.codebook.empty() ? values_.data() : matrix_.codebook.data();
    task.scale = static_cast<float>(numbers_->scale(row, g));
    task.tensor_scale = tensor_scale_;
    task.zero = static_cast<float>(numbers_->zero(row, g));
    task.offset = static_cast<float>(numbers_->offset(row, g));
    are_vectors_ ? kernels_.dequantize_vectors(task) : kernels_.dequantize(task);
  }

  void put(int64_t row, int64_t begin, const float* part, int64_t count) const {
    const auto store = kernels_.store[buffer_index(number_)];
    uint8_t* const to = out_ + row * matrix_.cols * number_bytes(number_);
    if (matrix_.input_order.empty()) return store(to + begin * number_bytes(number_), part, count);
    for (int64_t i = 0; i < count; ++i) {
      store(to + matrix_.input_order[begin + i] * number_bytes(number_), part + i, 1);
    }
  }

  const MatrixView& matrix_;
  const BlockKernels& kernels_;
  Format number_;
  uint8_t* out_;
  float tensor_scale_;
  std::optional<GroupNumbers> numbers_;  // not of dense matrices
  bool are_vectors_ = false;
  std::array<float, 256> values_ = {};  // where the matrix brings none
};

/// The float that rounds to any shorter format as `x` does: x itself, or of its two neighbours the
/// odd one, which is on no boundary of a shorter format.
float round_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const double rest = x - nearest;
  const auto bits = std::bit_cast<uint32_t>(nearest);
  if (rest == 0 || !std::isfinite(nearest) || (bits & 1) != 0) return nearest;
  if (nearest == 0) return std::bit_cast<float>(bits | 1);
  return std::bit_cast<float>((rest > 0) == (nearest > 0) ? bits + 1 : bits - 1);
}

/// Rounded once, from double precision.
void dequantize_rotated(const MatrixView& matrix, Format number, void* out,
                        const BlockKernels& kernels, Executor& executor) {
  const Dequantizer dequantizer(matrix);
  const int64_t row_bytes = matrix.cols * number_bytes(number);
  const auto store = kernels.store[buffer_index(number)];
  executor.parallel_for(matrix.rows, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<double> weights(static_cast<std::size_t>(matrix.cols));
    std::vector<float> floats(weights.size());
    for (int64_t row = begin; row < end; ++row) {
      dequantizer.row(row, weights.data());
      for (std::size_t i = 0; i < weights.size(); ++i) {
        floats[i] =
            number == Format::kF32 ? static_cast<float>(weights[i]) : round_to_odd(weights[i]);
      }
      store(static_cast<uint8_t*>(out) + row * row_bytes, floats.data(), matrix.cols);
    }
  });
}

}  // namespace

Status quantize_blocks(const BlockQuantization& blocks, const void* x, void* codes, void* scales,
                       const Kernels& kernels, Executor& executor) {
  SUBBYTE_CHECK(check_block_quantization(blocks));
  executor.parallel_for(blocks.scale_rows(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      quantize_row(blocks, row, x, static_cast<uint8_t*>(codes), static_cast<uint8_t*>(scales),
                   *kernels.vectors->blocks);
    }
  });
  return {};
}

Status dequantize(const MatrixView& matrix, Format number, void* out, const Kernels& kernels,
                  Executor& executor) {
  if (number != Format::kF32 && number != Format::kF16 && number != Format::kBF16) {
    return Error{"blocks.input",
                 "dequantize: expected a buffer of f32, f16 or bf16, found " +
                     std::string(number == Format::kNone ? "none" : info(number).name)};
  }
  if (matrix.format.rotation != 0) {
    dequantize_rotated(matrix, number, out, *kernels.vectors->blocks, executor);
    return {};
  }
  const RowDequantizer dequantizer(matrix, number, out, *kernels.vectors->blocks);
  executor.parallel_for(matrix.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) dequantizer.row(row);
  });
  return {};
}

void dequantize_stored(const MatrixView& matrix, float* out, const Kernels& kernels) {
  MatrixView stored = matrix;
  stored.input_order = {};
  const RowDequantizer dequantizer(stored, Format::kF32, out, *kernels.vectors->blocks);
  for (int64_t row = 0; row < stored.rows; ++row) dequantizer.row(row);
}

}  // namespace subbyte::cpu
