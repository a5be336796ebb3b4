// Counts against a pass over weight_at and the bytes, one weight after the other.

#include "verify/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "base/random.h"
#include "base/thread_pool.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

using testing::Contents;
using testing::random_matrix;
using testing::RandomMatrix;

uint32_t element_at(std::span<const std::byte> bytes, int64_t index, int width) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + index * width, width);
  return value;
}

/// What is expected, in sets of indices.
struct Naive {
  std::set<int64_t> zero_scales, negative_scales, beyond, dead_rows, not_finite;
  std::set<uint32_t> codes, zeros;
  double largest = 0;
};

/// The largest magnitude of all codes of a format.
double largest_element(Format format) {
  double largest = 0;
  for (uint32_t code = 0; code < 1u << info(format).bits; ++code) {
    largest = std::max<double>(largest, std::abs(info(format).decode(code)));
  }
  return largest;
}

Naive count_slowly(const MatrixView& view, int64_t first_row) {
  Naive naive;
  for (int64_t n = 0; n < view.rows; ++n) {
    bool dead = true;
    for (int64_t k = 0; k < view.cols; ++k) {
      const double weight = weight_at(view, n, k);
      if (weight != 0) dead = false;
      if (!std::isfinite(weight)) naive.not_finite.insert((first_row + n) * view.cols + k);
      if (!is_dense(view.format)) {
        naive.codes.insert(code_at(view, n, k));
      } else if (std::isfinite(weight)) {
        naive.largest = std::max(naive.largest, std::abs(weight));
      }
    }
    if (dead) naive.dead_rows.insert(first_row + n);
    for (int64_t g = 0; g < view.groups(); ++g) {
      const int64_t at = n * view.groups() + g;
      const int64_t index = first_row * view.groups() + at;
      const FormatInfo& format = info(view.format.scale);
      const double scale = format.decode(element_at(view.scales, at, format.bits / 8));
      const double bound =
          std::abs(scale * view.tensor_scale) * largest_element(view.format.element);
      naive.largest = std::max(naive.largest, bound);
      if (scale == 0) naive.zero_scales.insert(index);
      if (scale < 0) naive.negative_scales.insert(index);
      if (view.format.zero == Zero::kNone || is_offset(view.format.zero)) continue;
      const uint32_t zero = element_at(view.zeros, at, zero_bytes(view.format.zero));
      naive.zeros.insert(zero);
      if (zero >= 1u << info(view.format.element).bits) naive.beyond.insert(index);
    }
  }
  return naive;
}

void expect_equal(const Tally& tally, const std::set<int64_t>& expected, const char* what) {
  EXPECT_EQ(tally.count, static_cast<int64_t>(expected.size())) << what;
  EXPECT_EQ(tally.first, expected.empty() ? -1 : *expected.begin()) << what;
}

/// Two experts, the second of which is damaged by `damage`.
template <typename F>
void compare(const WeightFormat& format, int64_t rows, int64_t cols, F&& damage) {
  RandomMatrix matrices[2] = {random_matrix(format, rows, cols, Contents::kReal, 1),
                              random_matrix(format, rows, cols, Contents::kReal, 2)};
  damage(matrices[1]);
  std::vector<Matrix> experts;
  Naive expected = count_slowly(matrices[0].view, 0);
  Naive second = count_slowly(matrices[1].view, rows);
  expected.zero_scales.merge(second.zero_scales);
  expected.negative_scales.merge(second.negative_scales);
  expected.beyond.merge(second.beyond);
  expected.dead_rows.merge(second.dead_rows);
  expected.not_finite.merge(second.not_finite);
  expected.codes.merge(second.codes);
  expected.zeros.merge(second.zeros);
  for (const RandomMatrix& matrix : matrices) experts.push_back({matrix.view, {}});
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const MatrixStatistics found = collect_statistics(experts, pool);
    EXPECT_EQ(found.num_rows, 2 * rows);
    EXPECT_EQ(found.num_weights, 2 * rows * cols);
    expect_equal(found.zero_scales, expected.zero_scales, "zero scales");
    expect_equal(found.negative_scales, expected.negative_scales, "negative scales");
    expect_equal(found.zero_points_beyond, expected.beyond, "zero points");
    expect_equal(found.dead_rows, expected.dead_rows, "dead rows");
    expect_equal(found.not_finite, expected.not_finite, "not finite");
    EXPECT_EQ(found.largest, std::max(expected.largest, second.largest));
    for (uint32_t code = 0; code < 256; ++code) {
      EXPECT_EQ(found.used_codes[code / 64] >> (code % 64) & 1, expected.codes.count(code)) << code;
    }
    if (expected.zeros.empty()) continue;
    EXPECT_EQ(found.smallest_zero_point, *expected.zeros.begin());
    EXPECT_EQ(found.largest_zero_point, *expected.zeros.rbegin());
  }
}

class Statistics : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(Statistics, are_those_of_a_slow_count) {
  const WeightFormat format = GetParam();
  // Rows that are short, odd, or end inside a group; few enough weights that codes are missing.
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{3, 64}, {7, 32}, {33, 128}, {5, 160}}) {
    compare(format, rows, cols, [](RandomMatrix&) {});
    compare(format, rows, cols, [&](RandomMatrix& matrix) {
      if (is_dense(format)) return;
      // One row dead by its scales, one scale of zero.
      const int64_t width = info(format.scale).bits / 8;
      if (format.scale == Format::kE8M0) return;  // has no zero
      std::byte* scales = matrix.scales->data();
      std::memset(scales + matrix.view.groups() * width, 0, matrix.view.groups() * width);
      std::memset(scales, 0, width);
    });
    compare(format, rows, cols, [&](RandomMatrix& matrix) {
      // One row of equal codes; with zero points to match, it is dead. 8 is the 0 of i4.
      std::memset(matrix.codes->data() + matrix.view.row_bytes() * 2,
                  is_offset(format.zero) ? 0x88 : 0, matrix.view.row_bytes());
      if (format.zero == Zero::kNone) return;
      const int64_t row = matrix.view.groups() * zero_bytes(format.zero);
      std::memset(matrix.zeros->data() + 2 * row, 0, row);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Statistics,
    ::testing::Values(WeightFormat{Format::kU4, Format::kF16, Zero::kU8, 32},
                      WeightFormat{Format::kU4, Format::kBF16, Zero::kU8, 0},
                      WeightFormat{Format::kU3, Format::kF16, Zero::kU8, 32},
                      WeightFormat{Format::kU2, Format::kF32, Zero::kU8, 16},
                      WeightFormat{Format::kU8, Format::kF16, Zero::kU16, 32},
                      WeightFormat{Format::kI4, Format::kBF16, Zero::kNone, 32},
                      WeightFormat{Format::kI4, Format::kBF16, Zero::kBF16, 32},
                      WeightFormat{Format::kI5, Format::kF16, Zero::kNone, 8},
                      WeightFormat{Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
                      WeightFormat{Format::kE2M1, Format::kE4M3, Zero::kNone, 16},
                      WeightFormat{Format::kE4M3, Format::kBF16, Zero::kNone, 128},
                      WeightFormat{Format::kNF4, Format::kF32, Zero::kNone, 32},
                      WeightFormat{Format::kF32}, WeightFormat{Format::kF16},
                      WeightFormat{Format::kBF16}),
    [](const auto& param) {
      return std::string(subbyte::info(param.param.element).name) + "_" +
             std::to_string(param.index);
    });

TEST(Statistics, of_rows_with_an_odd_number_of_codes) {
  compare({Format::kI4, Format::kF16, Zero::kNone, 0}, 9, 37, [](RandomMatrix&) {});
  compare({Format::kU3, Format::kF16, Zero::kU8, 0}, 9, 37, [](RandomMatrix&) {});
}

TEST(Statistics, see_codes_of_nan) {
  compare({Format::kE4M3, Format::kF32, Zero::kNone, 32}, 5, 40, [](RandomMatrix& matrix) {
    matrix.codes->data()[3 * 40 + 39] = std::byte{0x7F};
    matrix.codes->data()[4 * 40 + 1] = std::byte{0xFF};
  });
}

TEST(Statistics, see_the_last_code_of_an_odd_row) {
  compare({Format::kI4, Format::kF16, Zero::kNone, 0}, 3, 5, [](RandomMatrix& matrix) {
    std::memset(matrix.codes->data(), 0x88, matrix.view.codes.size());  // 8 means 0
    matrix.codes->data()[2] = std::byte{0x83};                          // and 3 does not
  });
}

TEST(Statistics, find_what_is_not_finite) {
  for (const Format format : {Format::kF32, Format::kF16, Format::kBF16}) {
    compare({format}, 5, 24, [&](RandomMatrix& matrix) {
      const int width = info(format).bits / 8;
      const double inf = std::numeric_limits<double>::infinity();
      for (const auto& [index, value] : {std::pair(30, inf), {31, -inf}, {100, std::nan("")}}) {
        const uint32_t code = info(format).encode(value, Rounding::kNearestEven);
        std::memcpy(matrix.codes->data() + index * width, &code, width);
      }
    });
  }
}

TEST(Statistics, a_tensor_scale_of_zero_kills_all_rows) {
  compare({Format::kE2M1, Format::kE4M3, Zero::kNone, 16}, 4, 32,
          [](RandomMatrix& matrix) { matrix.view.tensor_scale = 0; });
}

TEST(CountNotFinite, works_at_any_address_and_for_any_share) {
  std::vector<std::byte> bytes(3 + 2 * 10'000, std::byte{0});
  for (const int index : {9'999, 4'097, 4'096}) {
    bytes[3 + 2 * index] = std::byte{0x80};
    bytes[3 + 2 * index + 1] = std::byte{0x7F};
  }
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    const Tally tally = count_numbers(std::span(bytes).subspan(3), Format::kBF16, pool).not_finite;
    EXPECT_EQ(tally.count, 3);
    EXPECT_EQ(tally.first, 4'096);
  }
}

}  // namespace
}  // namespace subbyte
