#pragma once
// Weight matrices with random contents in guarded memory, for tests of products.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "matrix/matrix.h"
#include "support/guarded_bytes.h"

namespace subbyte::testing {

/// kExact: scales are powers of two near one, dense weights and E4M3 small integers, so that
/// products with small integers have no rounding at all. kReal: what models hold.
enum class Contents : uint8_t { kExact, kReal };

/// A matrix whose bytes may be changed. Its view does not move.
struct RandomMatrix {
  std::unique_ptr<GuardedBytes> codes;
  std::unique_ptr<GuardedBytes> scales;
  std::unique_ptr<GuardedBytes> zeros;
  std::vector<float> codebook;  // of vectors
  MatrixView view;
};

/// The integer that the zero points of an element lie around; 0 for the others.
inline int center_of(Format element) {
  switch (element) {
    case Format::kU2:
      return 2;
    case Format::kU3:
      return 4;
    case Format::kU4:
      return 8;
    case Format::kU5:
      return 16;
    case Format::kU6:
      return 32;
    case Format::kU7:
      return 64;
    case Format::kU8:
      return 128;
    default:
      return 0;
  }
}

namespace detail {

/// The first of two levels; in exact matrices `value` if the format has it.
inline uint32_t small_integer(Random& random, Format format, Contents contents, double value) {
  const FormatInfo& integer = info(format);
  if (contents == Contents::kReal) return static_cast<uint32_t>(random.below(1 << integer.bits));
  return integer.encode(value, Rounding::kNearestEven);
}

inline uint32_t random_scale(Random& random, Format scale, Contents contents) {
  if (scale == Format::kE8M0) {
    return contents == Contents::kExact ? 126 + static_cast<uint32_t>(random.below(3))
                                        : 110 + static_cast<uint32_t>(random.below(20));
  }
  const bool has_sign = info(scale).min < 0;
  if (has_two_levels(scale)) {
    const int sign = has_sign && random.below(4) == 0 ? -1 : 1;
    return small_integer(random, scale, contents, sign << random.below(3));
  }
  const double value =
      contents == Contents::kExact
          ? std::ldexp(1.0, static_cast<int>(random.below(3)) - 1)
          : 0.01 * std::exp(random.normal()) * (has_sign && random.below(8) == 0 ? -1 : 1);
  return info(scale).encode(value, Rounding::kNearestEven);
}

/// Every zero point that the format's codes can have, 2^bits included: GPTQ v1 means it. Offsets
/// are halves from -4 to 4, or what those of scales around 0.01 can be.
inline uint32_t random_zero(Random& random, const WeightFormat& format, Contents contents) {
  if (!is_offset(format.zero)) {
    return static_cast<uint32_t>(random.below((uint64_t{1} << info(format.element).bits) + 1));
  }
  if (has_two_levels(format.zero)) {
    return small_integer(random, offset_format(format.zero), contents,
                         static_cast<double>(random.below(5)));
  }
  const double value = contents == Contents::kExact
                           ? 0.5 * (static_cast<double>(random.below(17)) - 8)
                           : 0.05 * random.normal();
  return info(offset_format(format.zero)).encode(value, Rounding::kNearestEven);
}

/// A number for each group of a row, then factors of f16 where there are two levels.
template <typename Number>
void fill_groups(Random& random, const MatrixView& view, Contents contents, bool two_levels,
                 std::span<std::byte> bytes, const Number& number) {
  const int64_t factors = two_levels ? (view.cols + 255) / 256 : 0;
  const int64_t width = (std::ssize(bytes) / view.rows - 2 * factors) / view.groups();
  std::byte* to = bytes.data();
  for (int64_t row = 0; row < view.rows; ++row) {
    for (int64_t g = 0; g < view.groups(); ++g, to += width) {
      const uint32_t code = number();
      std::memcpy(to, &code, static_cast<std::size_t>(width));
    }
    for (int64_t i = 0; i < factors; ++i, to += 2) {
      const uint32_t code = random_scale(random, Format::kF16, contents);
      std::memcpy(to, &code, 2);
    }
  }
}

inline void fill_codes(Random& random, const WeightFormat& format, Contents contents,
                       std::span<std::byte> bytes) {
  if (!is_dense(format) && format.element != Format::kE4M3) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
    return;
  }
  if (format.element == Format::kE4M3 && contents == Contents::kReal) {
    for (std::byte& byte : bytes) {  // any code but NaN
      const auto code = static_cast<int>(random.below(254));
      byte = static_cast<std::byte>(code < 127 ? code : code + 1);
    }
    return;
  }
  const FormatInfo& element = info(format.element);
  const std::size_t width = element.bits / 8;
  for (std::size_t i = 0; i < bytes.size(); i += width) {
    const double value = contents == Contents::kExact ? static_cast<double>(random.below(33)) - 16
                                                      : 0.02 * random.normal();
    const uint32_t code = element.encode(value, Rounding::kNearestEven);
    std::memcpy(bytes.data() + i, &code, width);
  }
}

/// Numbers of f16: integers from -4 to 4, or what vectors of weights are.
inline std::vector<float> random_codebook(Random& random, int64_t size, Contents contents) {
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& value : values) {
    const double number = contents == Contents::kExact ? static_cast<double>(random.below(9)) - 4
                                                       : 0.4 * random.normal();
    const FormatInfo& half = info(Format::kF16);
    value = static_cast<float>(half.decode(half.encode(number, Rounding::kNearestEven)));
  }
  return values;
}

/// The number of `format` that belongs to a weight, times its factor where there are two levels.
inline double number_at(const MatrixView& weights, std::span<const std::byte> numbers,
                        Format format, int64_t n, int64_t k) {
  const auto load = [&](int64_t at, std::size_t width) {
    uint32_t code = 0;
    std::memcpy(&code, numbers.data() + at, width);
    return code;
  };
  const int64_t group = k / weights.group_size();
  if (!has_two_levels(format)) {
    const int width = info(format).bits / 8;
    return info(format).decode(load((n * weights.groups() + group) * width, width));
  }
  const int64_t row = n * (weights.groups() + 2 * ((weights.cols + 255) / 256));
  const uint32_t factor = load(row + weights.groups() + k / 256 * 2, 2);
  return info(format).decode(load(row + group, 1)) * info(Format::kF16).decode(factor);
}

}  // namespace detail

inline RandomMatrix random_matrix(const WeightFormat& format, int64_t rows, int64_t cols,
                                  Contents contents, uint64_t seed) {
  Random random(seed);
  RandomMatrix matrix;
  MatrixView& view = matrix.view;
  view.format = format;
  view.rows = rows;
  view.cols = cols;
  matrix.codes = std::make_unique<GuardedBytes>(rows * view.row_bytes());
  detail::fill_codes(random, format, contents, matrix.codes->span());
  view.codes = matrix.codes->span();
  if (is_dense(format)) return matrix;
  if (info(format.element).vector_size > 1) {
    matrix.codebook = detail::random_codebook(random, view.num_codes(), contents);
    view.codebook = matrix.codebook;
  }

  matrix.scales = std::make_unique<GuardedBytes>(rows * view.scale_row_bytes());
  detail::fill_groups(random, view, contents, has_two_levels(format.scale), matrix.scales->span(),
                      [&] { return detail::random_scale(random, format.scale, contents); });
  view.scales = matrix.scales->span();
  if (format.zero == Zero::kNone) return matrix;

  matrix.zeros = std::make_unique<GuardedBytes>(rows * view.zero_row_bytes());
  detail::fill_groups(random, view, contents, has_two_levels(format.zero), matrix.zeros->span(),
                      [&] { return detail::random_zero(random, format, contents); });
  view.zeros = matrix.zeros->span();
  return matrix;
}

/// m rows of k inputs: integers from -4 to 4, or standard normal numbers.
inline std::vector<float> random_inputs(int64_t m, int64_t k, Contents contents, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(m * k);
  for (float& value : x) {
    value = contents == Contents::kExact ? static_cast<float>(random.below(9)) - 4
                                         : static_cast<float>(random.normal());
  }
  return x;
}

/// y = W x in double precision, and A = sum |scale| (|element - c| + |zero - c|) |x|, or with
/// offsets sum (|scale| (|element - c| + c) + |offset|) |x|, which the error bounds of the kernels
/// multiply, or sum |scale| |x|, if codes are added as they are. [m][rows] all.
struct Oracle {
  std::vector<double> y;
  std::vector<double> magnitude;
  std::vector<double> scaled_inputs;  // nothing for dense weights
};

/// The scale of a weight, without the tensor's.
inline double scale_at(const MatrixView& weights, int64_t n, int64_t k) {
  return detail::number_at(weights, weights.scales, weights.format.scale, n, k);
}

inline Oracle multiply_in_double(const MatrixView& weights, const std::vector<float>& x,
                                 int64_t m) {
  Oracle oracle;
  oracle.y.assign(m * weights.rows, 0);
  oracle.magnitude.assign(m * weights.rows, 0);
  oracle.scaled_inputs.assign(is_dense(weights.format) ? 0 : m * weights.rows, 0);
  const int center = center_of(weights.format.element);
  std::vector<double> w(weights.cols);
  std::vector<double> size(weights.cols);
  std::vector<double> scales(weights.cols);
  for (int64_t n = 0; n < weights.rows; ++n) {
    for (int64_t k = 0; k < weights.cols; ++k) {
      w[k] = weight_at(weights, n, k);
      size[k] = std::fabs(w[k]);
      if (is_dense(weights.format)) continue;
      scales[k] = std::fabs(scale_at(weights, n, k));
      if (weights.format.zero == Zero::kNone) continue;
      const double element = info(weights.format.element).decode(code_at(weights, n, k));
      if (is_offset(weights.format.zero)) {
        const double offset =
            detail::number_at(weights, weights.zeros, offset_format(weights.format.zero), n, k);
        size[k] = scales[k] * (std::fabs(element - center) + center) + std::fabs(offset);
        continue;
      }
      const int64_t group = n * weights.groups() + k / weights.group_size();
      uint32_t zero = 0;
      const int zero_width = zero_bytes(weights.format.zero);
      std::memcpy(&zero, weights.zeros.data() + group * zero_width, zero_width);
      size[k] =
          scales[k] * (std::fabs(element - center) + std::fabs(static_cast<double>(zero) - center));
    }
    for (int64_t i = 0; i < m; ++i) {
      double sum = 0;
      double magnitude = 0;
      double scaled_inputs = 0;
      for (int64_t k = 0; k < weights.cols; ++k) {
        const int64_t input = weights.input_order.empty() ? k : weights.input_order[k];
        sum += w[k] * x[i * weights.cols + input];
        magnitude += size[k] * std::fabs(x[i * weights.cols + input]);
        scaled_inputs += scales[k] * std::fabs(x[i * weights.cols + input]);
      }
      oracle.y[i * weights.rows + n] = sum;
      oracle.magnitude[i * weights.rows + n] = magnitude;
      if (!is_dense(weights.format)) oracle.scaled_inputs[i * weights.rows + n] = scaled_inputs;
    }
  }
  return oracle;
}

}  // namespace subbyte::testing
