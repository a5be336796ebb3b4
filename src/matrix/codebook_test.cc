#include "matrix/codebook.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "matrix/alternate_rows.h"
#include "matrix/dequantize.h"
#include "matrix/float_rows.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

using testing::Contents;
using testing::random_matrix;

constexpr WeightFormat kFormat = {Format::kNFL3, Format::kF16, Zero::kNone, 32};
const std::vector<float> kValues = {-1, -0.25f, 0, 0.125f, 0.25f, 0.5f, 0.75f, 3};

TEST(Codebook, of_a_matrix_stands_for_that_of_its_element) {
  auto matrix = random_matrix(kFormat, 2, 64, Contents::kReal, 1);
  const MatrixView plain = matrix.view;
  matrix.view.codebook = kValues;
  const Dequantizer doubles(matrix.view);
  const FloatRows floats(matrix.view);
  std::vector<double> row(64);
  std::vector<float> float_row(64);
  for (int64_t n = 0; n < 2; ++n) {
    doubles.row(n, row.data());
    floats.row(n, float_row.data());
    for (int64_t k = 0; k < 64; ++k) {
      const uint32_t code = code_at(matrix.view, n, k);
      const double scale = weight_at(plain, n, k) / info(Format::kNFL3).decode(code);
      EXPECT_NEAR(weight_at(matrix.view, n, k), scale * kValues[code], 1e-12);
      EXPECT_EQ(row[k], weight_at(matrix.view, n, k));
      EXPECT_EQ(float_row[k], static_cast<float>(row[k]));
    }
  }
}

TEST(Codebook, default_is_what_the_codes_stand_for) {
  for (const Format element : {Format::kNFL2, Format::kNFL3, Format::kNFL4, Format::kNFL5}) {
    const std::vector<float> values = default_codebook(element);
    EXPECT_EQ(codebook_fault(values, element), "");
    for (uint32_t code = 0; code < values.size(); ++code) {
      EXPECT_EQ(values[code], info(element).decode(code));
    }
  }
  EXPECT_FALSE(may_have_codebook(Format::kNF4));
  EXPECT_FALSE(may_have_codebook(Format::kU4));
}

/// Bytes, scales and vectors by hand, and rotation by the definition in a sum of its own.
TEST(Codebook, vectors_stand_for_several_inputs) {
  for (const Format element : {Format::kVQ2, Format::kVQ4}) {
    const int64_t size = info(element).vector_size;
    for (const int64_t rotation : {0, 16, 64}) {
      const WeightFormat format = {element, Format::kF16, Zero::kNone, 32, rotation};
      auto matrix = random_matrix(format, 3, 128, Contents::kExact, 1);
      matrix.view.tensor_scale = 0.25;
      const MatrixView& view = matrix.view;
      EXPECT_EQ(view.row_bytes(), 128 / size);
      const auto stored = [&](int64_t n, int64_t k) {
        const auto byte = std::to_integer<std::size_t>(view.codes[(n * 128 + k) / size]);
        uint16_t scale = 0;
        std::memcpy(&scale, view.scales.data() + 2 * (n * 4 + k / 32), 2);
        return double{matrix.codebook[byte * size + k % size]} * info(Format::kF16).decode(scale) *
               0.25;
      };
      const Dequantizer doubles(view);
      const FloatRows floats(view);
      std::vector<double> row(128);
      std::vector<float> float_row(128);
      for (int64_t n = 0; n < 3; ++n) {
        doubles.row(n, row.data());
        floats.row(n, float_row.data());
        for (int64_t k = 0; k < 128; ++k) {
          double expected = rotation == 0 ? stored(n, k) : 0;
          for (int64_t j = 0; j < rotation; ++j) {
            const bool is_negative =
                std::popcount(static_cast<uint64_t>(j & k % rotation)) % 2 != 0;
            const double weight = stored(n, k / rotation * rotation + j);
            expected += (is_negative ? -weight : weight) / std::sqrt(rotation);
          }
          ASSERT_EQ(row[k], expected) << n << " " << k;
          ASSERT_EQ(weight_at(view, n, k), expected) << n << " " << k;
          ASSERT_EQ(float_row[k], static_cast<float>(expected)) << n << " " << k;
        }
      }
    }
  }
}

TEST(Codebook, faults_of_vectors) {
  std::vector<float> values(1024);
  EXPECT_EQ(codebook_fault(values, Format::kVQ2), "");
  EXPECT_EQ(codebook_fault(values, Format::kVQ4), "512 values for 4 bits, found 1024");
  EXPECT_EQ(codebook_fault({}, Format::kVQ2), "1024 values for 2 bits, found 0");
  values[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(codebook_fault(values, Format::kVQ2), "finite values, but value 7 is nan");
}

TEST(Codebook, faults) {
  EXPECT_EQ(codebook_fault(kValues, Format::kNFL3), "");
  EXPECT_EQ(codebook_fault(kValues, Format::kNFL2), "4 values for 2 bits, found 8");
  std::vector<float> values = kValues;
  values[3] = 0;
  EXPECT_EQ(codebook_fault(values, Format::kNFL3),
            "increasing values, but value 3 is 0.000000 after 0.000000");
  values[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(codebook_fault(values, Format::kNFL3), "finite values, but value 3 is nan");
  values[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(codebook_fault(values, Format::kNFL3), "finite values, but value 3 is inf");
}

TEST(Codebook, goes_with_rows_that_alternate) {
  auto gate = random_matrix(kFormat, 2, 64, Contents::kReal, 1);
  auto up = random_matrix(kFormat, 2, 64, Contents::kReal, 2);
  std::vector<float> values = kValues;
  gate.view.codebook = values;
  EXPECT_EQ(alternate_rows(gate.view, up.view).error().code, "layout.format");
  up.view.codebook = values;
  const auto both = alternate_rows(gate.view, up.view);
  ASSERT_TRUE(both.ok());
  const double expected = weight_at(up.view, 1, 5);
  const Matrix half = every_second_row(both->view, 1);
  values.assign(8, 7);  // neither points into what it was made of
  EXPECT_EQ(weight_at(both->view, 3, 5), expected);
  EXPECT_EQ(weight_at(half.view, 1, 5), expected);
}

}  // namespace
}  // namespace subbyte
