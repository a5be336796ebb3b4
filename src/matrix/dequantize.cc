#include "matrix/dequantize.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/float16.h"
#include "formats/rotation.h"
#include "matrix/group_numbers.h"

namespace subbyte {
namespace {

template <typename Number>
Number load(const std::byte* bytes, int64_t index) {
  Number number;
  std::memcpy(&number, bytes + index * static_cast<int64_t>(sizeof number), sizeof number);
  return number;
}

constexpr int64_t kCodesAtOnce = 256;

/// Codes that begin at a byte, in eights; what is left over is the caller's.
template <int kWidth>
void unpack_eights(const std::byte* bytes, std::span<uint16_t> codes) {
  constexpr uint64_t kMask = (uint64_t{1} << kWidth) - 1;
  for (std::size_t i = 0; i + 8 <= codes.size(); i += 8, bytes += kWidth) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, kWidth);
    for (int j = 0; j < 8; ++j) {
      codes[i + static_cast<std::size_t>(j)] = static_cast<uint16_t>(word >> (j * kWidth) & kMask);
    }
  }
}

/// code_at() of columns from `first` on.
void load_codes(const MatrixView& matrix, int64_t row, int64_t first, std::span<uint16_t> codes) {
  constexpr void (*kUnpack[])(const std::byte*, std::span<uint16_t>) = {
      unpack_eights<1>, unpack_eights<2>, unpack_eights<3>, unpack_eights<4>,
      unpack_eights<5>, unpack_eights<6>, unpack_eights<7>, unpack_eights<8>};
  const FormatInfo& element = info(matrix.format.element);
  std::size_t done = 0;
  if (element.vector_size == 1 && first % 8 == 0) {
    const std::byte* const bytes =
        matrix.codes.data() + row * matrix.row_bytes() + first / 8 * element.bits;
    kUnpack[element.bits - 1](bytes, codes);
    done = codes.size() / 8 * 8;
  }
  for (; done < codes.size(); ++done) {
    codes[done] = static_cast<uint16_t>(code_at(matrix, row, first + static_cast<int64_t>(done)));
  }
}

}  // namespace

Dequantizer::Dequantizer(const MatrixView& matrix) : matrix_(matrix) {
  if (is_dense(matrix.format)) return;
  for (int64_t code = 0; code < matrix.num_codes(); ++code) {
    values_.push_back(matrix.value_of(static_cast<uint32_t>(code)));
  }
}

void Dequantizer::dense_row(int64_t row, double* out) const {
  const std::byte* bytes = matrix_.codes.data() + row * matrix_.row_bytes();
  const double factor = matrix_.tensor_scale;
  for (int64_t k = 0; k < matrix_.cols; ++k) {
    switch (matrix_.format.element) {
      case Format::kF16:
        put(out, k, to_float(load<Float16>(bytes, k)) * factor);
        break;
      case Format::kBF16:
        put(out, k, to_float(load<BFloat16>(bytes, k)) * factor);
        break;
      default:
        put(out, k, load<float>(bytes, k) * factor);
        break;
    }
  }
}

void Dequantizer::row(int64_t row, double* out) const {
  if (values_.empty()) return dense_row(row, out);
  const int64_t size = matrix_.group_size();
  const GroupNumbers numbers(matrix_);
  std::array<uint16_t, kCodesAtOnce> codes;
  for (int64_t g = 0; g < matrix_.groups(); ++g) {
    const double factor = numbers.scale(row, g);
    const double zero = numbers.zero(row, g);
    const double offset = numbers.offset(row, g);
    const int64_t end = std::min(matrix_.cols, (g + 1) * size);
    for (int64_t first = g * size; first < end; first += kCodesAtOnce) {
      const int64_t count = std::min(kCodesAtOnce, end - first);
      load_codes(matrix_, row, first, std::span(codes).first(static_cast<std::size_t>(count)));
      for (int64_t i = 0; i < count; ++i) {
        // In the order of weight_at().
        const double value = (values_[codes[static_cast<std::size_t>(i)]] - zero) * factor + offset;
        put(out, first + i, value * matrix_.tensor_scale);
      }
    }
  }
  if (matrix_.format.rotation != 0) rotate(out, matrix_.cols, matrix_.format.rotation);
}

}  // namespace subbyte
