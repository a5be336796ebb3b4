#include "matrix/alternate_rows.h"

#include <gtest/gtest.h>

#include "support/random_matrix.h"

namespace subbyte {
namespace {

using testing::Contents;
using testing::random_matrix;

TEST(AlternateRows, every_weight_is_that_of_its_matrix) {
  for (const WeightFormat& format : {WeightFormat{Format::kU4, Format::kF16, Zero::kU8, 32},
                                     WeightFormat{Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
                                     WeightFormat{Format::kU3, Format::kBF16, Zero::kU8, 0},
                                     WeightFormat{Format::kU8, Format::kF32, Zero::kU16, 32},
                                     WeightFormat{Format::kBF16, Format::kNone, Zero::kNone, 0}}) {
    const auto gate = random_matrix(format, 3, 64, Contents::kReal, 1);
    const auto up = random_matrix(format, 3, 64, Contents::kReal, 2);
    const auto both = alternate_rows(gate.view, up.view);
    ASSERT_TRUE(both.ok()) << both.error().message;
    ASSERT_EQ(both->view.rows, 6);
    for (int64_t n = 0; n < 6; ++n) {
      for (int64_t k = 0; k < 64; ++k) {
        EXPECT_EQ(weight_at(both->view, n, k), weight_at((n % 2 == 0 ? gate : up).view, n / 2, k))
            << to_string(format) << " " << n << " " << k;
      }
    }
    for (const int first : {0, 1}) {
      const Matrix half = every_second_row(both->view, first);
      ASSERT_EQ(half.view.rows, 3);
      for (int64_t n = 0; n < 3; ++n) {
        for (int64_t k = 0; k < 64; ++k) {
          EXPECT_EQ(weight_at(half.view, n, k), weight_at(both->view, 2 * n + first, k))
              << to_string(format) << " " << n << " " << k;
        }
      }
    }
  }
}

TEST(AlternateRows, the_order_of_inputs_is_kept) {
  const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, 8};
  auto gate = random_matrix(format, 2, 8, Contents::kReal, 1);
  auto up = random_matrix(format, 2, 8, Contents::kReal, 2);
  const std::vector<uint32_t> order = {7, 6, 5, 4, 3, 2, 1, 0};
  gate.view.input_order = order;
  EXPECT_EQ(alternate_rows(gate.view, up.view).error().code, "layout.format");
  up.view.input_order = order;
  const auto both = alternate_rows(gate.view, up.view);
  ASSERT_TRUE(both.ok());
  EXPECT_TRUE(std::ranges::equal(both->view.input_order, order));
  EXPECT_TRUE(std::ranges::equal(every_second_row(both->view, 1).view.input_order, order));
}

TEST(AlternateRows, two_kinds_of_matrices_are_refused) {
  const WeightFormat format = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};
  const auto code = [](const MatrixView& a, const MatrixView& b) {
    const auto both = alternate_rows(a, b);
    return both.ok() ? std::string() : std::string(both.error().code);
  };
  const auto gate = random_matrix(format, 2, 32, Contents::kReal, 1);
  EXPECT_EQ(code(gate.view, gate.view), "");
  EXPECT_EQ(code(gate.view, random_matrix(format, 3, 32, Contents::kReal, 1).view),
            "layout.format");
  EXPECT_EQ(code(gate.view, random_matrix(format, 2, 64, Contents::kReal, 1).view),
            "layout.format");
  EXPECT_EQ(code(gate.view, random_matrix({Format::kE2M1, Format::kE8M0, Zero::kNone, 32}, 2, 32,
                                          Contents::kReal, 1)
                                .view),
            "layout.format");
  auto up = random_matrix(format, 2, 32, Contents::kReal, 1);
  up.view.tensor_scale *= 2;
  EXPECT_EQ(code(gate.view, up.view), "layout.format");
}

}  // namespace
}  // namespace subbyte
