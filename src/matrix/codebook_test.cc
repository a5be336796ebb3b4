#include "matrix/codebook.h"

#include <gtest/gtest.h>

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
    EXPECT_EQ(codebook_fault(values, info(element).bits), "");
    for (uint32_t code = 0; code < values.size(); ++code) {
      EXPECT_EQ(values[code], info(element).decode(code));
    }
  }
  EXPECT_FALSE(may_have_codebook(Format::kNF4));
  EXPECT_FALSE(may_have_codebook(Format::kU4));
}

TEST(Codebook, faults) {
  EXPECT_EQ(codebook_fault(kValues, 3), "");
  EXPECT_EQ(codebook_fault(kValues, 2), "4 values for 2 bits, found 8");
  std::vector<float> values = kValues;
  values[3] = 0;
  EXPECT_EQ(codebook_fault(values, 3), "increasing values, but value 3 is 0.000000 after 0.000000");
  values[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(codebook_fault(values, 3), "finite values, but value 3 is nan");
  values[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(codebook_fault(values, 3), "finite values, but value 3 is inf");
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
