// Kernels of codes that are indices of a codebook, with codebooks that a matrix brings, against
// products in double precision. The codebook ends where memory faults.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "matrix/codebook.h"
#include "support/compare.h"
#include "support/guarded_bytes.h"
#include "support/matmul.h"
#include "support/matmul_bounds.h"
#include "support/random_matrix.h"

namespace subbyte::cpu {
namespace {

using testing::bounds_of;
using testing::compare_matmul;
using testing::Comparison;
using testing::Contents;
using testing::expect;
using testing::Expected;
using testing::GuardedBytes;
using testing::kernels_of_this_machine;
using testing::multiply;
using testing::multiply_in_double;
using testing::Oracle;
using testing::random_inputs;
using testing::random_matrix;
using testing::RandomMatrix;
using testing::variants_of;

constexpr int64_t kMaxM = 37;

struct Codebook {
  const char* name;
  float (*value)(int code);  // increases
};

/// None is symmetric; bf16 holds only the powers of two and the integers.
constexpr Codebook kCodebooks[] = {
    {"uneven", [](int code) { return -0.37f + 0.0731f * static_cast<float>(code * code + code); }},
    {"negative", [](int code) { return -1.0f / (3.0f + static_cast<float>(code)); }},
    {"powers", [](int code) { return std::ldexp(1.0f, code - 20); }},
    {"neighbours", [](int code) { return 1.0f + std::ldexp(static_cast<float>(code), -23); }},
};
constexpr Codebook kIntegers = {"integers", [](int code) { return static_cast<float>(code - 3); }};

/// A matrix that brings 2^bits values.
struct OwnCodebook {
  OwnCodebook(const WeightFormat& format, int64_t rows, int64_t cols, Contents contents,
              const Codebook& codebook)
      : matrix(random_matrix(format, rows, cols, contents, 61)),
        bytes(int64_t{4} << info(format.element).bits) {
    std::vector<float> values;
    for (int code = 0; code < 1 << info(format.element).bits; ++code) {
      values.push_back(codebook.value(code));
    }
    std::memcpy(bytes.data(), values.data(), bytes.span().size());
    matrix.view.codebook = {reinterpret_cast<const float*>(bytes.data()), values.size()};
  }

  RandomMatrix matrix;
  GuardedBytes bytes;
};

class OwnCodebooks : public ::testing::TestWithParam<Format> {
 protected:
  static std::vector<WeightFormat> formats() {
    std::vector<WeightFormat> list;
    for (const Format scale : {Format::kE4M4, Format::kF16}) {
      for (const int64_t group : {0, 8, 32, 96, 128}) {
        list.push_back({GetParam(), scale, Zero::kNone, group});
      }
    }
    return list;
  }
};

TEST_P(OwnCodebooks, products_stay_within_the_documented_bound) {
  for (const Codebook& codebook : kCodebooks) {
    for (const WeightFormat& format : formats()) {
      for (const int64_t cols : {8, 40, 160, 1160}) {
        const OwnCodebook own(format, 33, cols, Contents::kReal, codebook);
        const MatrixView& weights = own.matrix.view;
        ASSERT_EQ(codebook_fault(weights.codebook, GetParam()), "");
        const std::vector<float> x = random_inputs(kMaxM, cols, Contents::kReal, 62);
        const Expected expected = expect(weights, x, kMaxM);
        for (const Kernels* kernels : kernels_of_this_machine()) {
          for (const KernelVariant& variant : variants_of(*kernels, weights)) {
            for (const int64_t m : {1, 4, 37}) {
              const std::vector<float> y = multiply(*kernels, variant, weights, x, m);
              std::vector<double> bounds = bounds_of(*kernels, variant, expected, cols);
              bounds.resize(y.size());
              const Comparison result =
                  compare_matmul(y, std::span(expected.exact.y.data(), y.size()), bounds);
              ASSERT_TRUE(result) << kernels->name << ", " << variant.name << ", " << codebook.name
                                  << ", " << to_string(format) << ", " << cols << " inputs, M " << m
                                  << ": " << result.message;
            }
          }
        }
      }
    }
  }
}

/// Small integers round nowhere, so every variant must have the very same products.
TEST_P(OwnCodebooks, products_of_integers_are_exact) {
  for (const WeightFormat& format : formats()) {
    const OwnCodebook own(format, 33, 1160, Contents::kExact, kIntegers);
    const MatrixView& weights = own.matrix.view;
    const std::vector<float> x = random_inputs(kMaxM, 1160, Contents::kExact, 63);
    const Oracle oracle = multiply_in_double(weights, x, kMaxM);
    for (const Kernels* kernels : kernels_of_this_machine()) {
      for (const KernelVariant& variant : variants_of(*kernels, weights)) {
        for (const int64_t m : {1, 2, 3, 37}) {
          const std::vector<float> y = multiply(*kernels, variant, weights, x, m);
          const Comparison result = compare_matmul(y, std::span(oracle.y.data(), y.size()),
                                                   std::vector<double>(y.size(), 0.0));
          ASSERT_TRUE(result) << kernels->name << ", " << variant.name << ", " << to_string(format)
                              << ", M " << m << ": " << result.message;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kbit, OwnCodebooks,
                         ::testing::Values(Format::kNFL2, Format::kNFL3, Format::kNFL4,
                                           Format::kNFL5),
                         [](const ::testing::TestParamInfo<Format>& param) {
                           return std::string(subbyte::info(param.param).name);
                         });

}  // namespace
}  // namespace subbyte::cpu
