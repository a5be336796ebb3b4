#include "matrix/recast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "support/random_matrix.h"

namespace subbyte {
namespace {

using testing::Contents;
using testing::random_matrix;
using testing::RandomMatrix;

constexpr int64_t kRows = 6;
constexpr int64_t kCols = 128;

/// A view of a random matrix as a matrix; the random one keeps the bytes.
Matrix matrix_of(const RandomMatrix& random) {
  Matrix matrix;
  matrix.view = random.view;
  return matrix;
}

/// The weight of each input, which recasting must not change by a bit.
std::vector<uint64_t> weights_of(const MatrixView& view) {
  std::vector<uint64_t> bits(view.rows * view.cols);
  for (int64_t n = 0; n < view.rows; ++n) {
    for (int64_t k = 0; k < view.cols; ++k) {
      const int64_t input = view.input_order.empty() ? k : view.input_order[k];
      bits[n * view.cols + input] = std::bit_cast<uint64_t>(weight_at(view, n, k));
    }
  }
  return bits;
}

void expect_same_weights(const Matrix& before, const Result<Matrix>& after) {
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_EQ(weights_of(before.view), weights_of(after->view));
}

std::string_view code_of(const Result<Matrix>& result) {
  return result.ok() ? "ok" : result.error().code;
}

void set_scale(RandomMatrix& random, int64_t index, double value) {
  const FormatInfo& scale = info(random.view.format.scale);
  const uint32_t code = scale.encode(value, Rounding::kNearestEven);
  ASSERT_EQ(scale.decode(code), value);
  std::memcpy(random.scales->data() + index * (scale.bits / 8), &code, scale.bits / 8);
}

void set_all_scales(RandomMatrix& random, double value) {
  for (int64_t i = 0; i < random.view.rows * random.view.groups(); ++i) set_scale(random, i, value);
}

TEST(Recast, symmetric_integers_get_zero_points_and_lose_them_again) {
  const auto random =
      random_matrix({Format::kI4, Format::kF16, Zero::kNone, 32}, kRows, kCols, Contents::kReal, 1);
  const Matrix matrix = matrix_of(random);
  const auto with = with_zero_rule(matrix, Zero::kU8);
  expect_same_weights(matrix, with);
  EXPECT_EQ(with->view.format.element, Format::kU4);
  EXPECT_TRUE(is_symmetric(with->view));
  const auto without = with_zero_rule(*with, Zero::kNone);
  expect_same_weights(matrix, without);
  EXPECT_EQ(without->view.format.element, Format::kI4);
}

TEST(Recast, names_the_zero_point_that_is_not_in_the_middle) {
  auto random =
      random_matrix({Format::kU4, Format::kF16, Zero::kU8, 32}, kRows, kCols, Contents::kReal, 2);
  std::ranges::fill(random.zeros->span(), std::byte{8});
  EXPECT_TRUE(is_symmetric(random.view));
  random.zeros->data()[9] = std::byte{7};
  EXPECT_FALSE(is_symmetric(random.view));
  const auto refused = with_zero_rule(matrix_of(random), Zero::kNone);
  EXPECT_EQ(code_of(refused), "recast.zero_point");
  EXPECT_EQ(refused.error().message, "zero point 7 of output 2, group 1 is not 8");
}

TEST(Recast, groups_become_smaller_and_larger_again) {
  for (const int64_t from : {64, 0}) {
    const auto random = random_matrix({Format::kU4, Format::kF16, Zero::kU8, from}, kRows, kCols,
                                      Contents::kReal, 3);
    const Matrix matrix = matrix_of(random);
    const auto small = with_group_size(matrix, 16);
    expect_same_weights(matrix, small);
    EXPECT_EQ(small->view.format.group_size, 16);
    EXPECT_EQ(small->view.scales.size(), kRows * kCols / 16 * 2u);
    const auto large = with_group_size(*small, from);
    expect_same_weights(matrix, large);
    EXPECT_TRUE(std::ranges::equal(large->view.scales, matrix.view.scales));
    EXPECT_TRUE(std::ranges::equal(large->view.zeros, matrix.view.zeros));
  }
}

TEST(Recast, a_short_last_group_is_divided_as_the_others_are) {
  constexpr int64_t kShort = 160;  // groups of 64, 64 and 32
  const auto random =
      random_matrix({Format::kU4, Format::kF16, Zero::kU8, 64}, kRows, kShort, Contents::kReal, 12);
  Matrix matrix = matrix_of(random);
  const auto small = with_group_size(matrix, 32);
  expect_same_weights(matrix, small);
  EXPECT_EQ(small->view.groups(), 5);
  EXPECT_EQ(code_of(with_group_size(matrix, 128)), "recast.group_size");
  EXPECT_EQ(code_of(with_group_size(matrix, 0)), "recast.group_size");
  std::vector<uint32_t> order;  // groups 1, 0 and the short one
  for (const uint32_t first : {64, 0, 128}) {
    const uint32_t count = first == 128 ? 32 : 64;
    for (uint32_t k = 0; k < count; ++k) order.push_back(first + k);
  }
  matrix.view.input_order = order;
  const auto ordered = with_inputs_in_order(matrix);
  expect_same_weights(matrix, ordered);
  EXPECT_EQ(ordered->view.groups(), 3);
}

TEST(Recast, groups_that_differ_do_not_become_one) {
  auto random =
      random_matrix({Format::kU4, Format::kF16, Zero::kU8, 32}, kRows, kCols, Contents::kReal, 4);
  set_all_scales(random, 0.5);
  std::ranges::fill(random.zeros->span(), std::byte{8});
  EXPECT_EQ(code_of(with_group_size(matrix_of(random), 64)), "ok");
  random.zeros->data()[7] = std::byte{7};  // output 1, group 3
  const auto zero = with_group_size(matrix_of(random), 64);
  EXPECT_EQ(code_of(zero), "recast.group_size");
  EXPECT_NE(zero.error().message.find("of output 1, group 3"), std::string::npos);
  random.zeros->data()[7] = std::byte{8};
  set_scale(random, 2, 0.25);
  EXPECT_EQ(code_of(with_group_size(matrix_of(random), 128)), "recast.group_size");
  EXPECT_EQ(code_of(with_group_size(matrix_of(random), 48)), "recast.group_size");
  EXPECT_EQ(code_of(with_group_size(matrix_of(random), -8)), "recast.group_size");
}

TEST(Recast, scales_change_their_type_when_every_one_is_a_number_of_the_new_one) {
  auto random =
      random_matrix({Format::kU4, Format::kF32, Zero::kU8, 32}, kRows, kCols, Contents::kReal, 5);
  set_all_scales(random, 1.0 + 0x1p-10);
  const Matrix matrix = matrix_of(random);
  const auto half = with_scales(matrix, Format::kF16, TensorFactor::kNone);
  expect_same_weights(matrix, half);
  EXPECT_EQ(half->view.format.scale, Format::kF16);
  EXPECT_EQ(code_of(with_scales(matrix, Format::kBF16, TensorFactor::kNone)), "recast.scale");
  set_scale(random, 23, 1.0 + 0x1p-11);  // the last
  const auto refused = with_scales(matrix, Format::kF16, TensorFactor::kNone);
  EXPECT_EQ(code_of(refused), "recast.scale");
  EXPECT_EQ(refused.error().message,
            "scale 1.00048828 of output 5, group 3 has no exact form in f16");
}

TEST(Recast, rounds_scales_to_nearest_even_only_when_told) {
  auto random =
      random_matrix({Format::kU4, Format::kF32, Zero::kU8, 0}, 1, kCols, Contents::kReal, 6);
  set_all_scales(random, 1.0 + 3 * 0x1p-11);  // half way: to 1 + 2^-9
  const auto rounded =
      with_scales(matrix_of(random), Format::kF16, TensorFactor::kNone, Rounded::kScales);
  ASSERT_TRUE(rounded.ok());
  uint16_t bits = 0;
  std::memcpy(&bits, rounded->view.scales.data(), 2);
  EXPECT_EQ(bits, 0x3C02);
  for (const double beyond : {65536.0, 0x1p-40, -65536.0}) {  // infinity or 0 is no rounding
    set_all_scales(random, beyond);
    EXPECT_EQ(code_of(with_scales(matrix_of(random), Format::kF16, TensorFactor::kNone,
                                  Rounded::kScales)),
              "recast.scale")
        << beyond;
  }
}

TEST(Recast, powers_of_two_become_e4m3_and_a_factor) {
  auto random = random_matrix({Format::kE2M1, Format::kE8M0, Zero::kNone, 32}, kRows, kCols,
                              Contents::kReal, 7);
  // 18 binades from 2^-30 on: all that E4M3 has.
  for (int64_t i = 0; i < 24; ++i) random.scales->data()[i] = std::byte(97 + i % 18);
  const Matrix matrix = matrix_of(random);
  for (const TensorFactor factor : {TensorFactor::kMultiplies, TensorFactor::kDivides}) {
    const TargetFormat nvfp4 = {{Format::kE2M1, Format::kE4M3, Zero::kNone, 16}, factor, false};
    const auto changed = recast(matrix, nvfp4);
    expect_same_weights(matrix, changed);
    EXPECT_EQ(changed->view.tensor_scale, 0x1p-21);  // 2^-13 is 2^8 of E4M3
    const TargetFormat mxfp4 = {matrix.view.format, TensorFactor::kNone, false};
    const auto back = recast(*changed, mxfp4);
    expect_same_weights(matrix, back);
    EXPECT_EQ(back->view.tensor_scale, 1);
    EXPECT_TRUE(std::ranges::equal(back->view.scales, matrix.view.scales));
  }
  random.scales->data()[5] = std::byte{96};
  EXPECT_EQ(code_of(with_scales(matrix, Format::kE4M3, TensorFactor::kMultiplies)), "recast.scale");
}

TEST(Recast, matrices_may_share_the_factor_of_the_largest) {
  const WeightFormat mxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  const WeightFormat nvfp4 = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};
  RandomMatrix small = random_matrix(mxfp4, kRows, kCols, Contents::kReal, 1);
  set_all_scales(small, 0x1p-9);
  EXPECT_EQ(largest_scale(small.view), 0x1p-9);
  TargetFormat target = {nvfp4, TensorFactor::kMultiplies, false};
  const auto alone = recast(matrix_of(small), target);
  expect_same_weights(matrix_of(small), alone);
  EXPECT_EQ(alone->view.tensor_scale, 0x1p-17);  // its scales are 2^8 then
  target.largest_scale = 0x1p-3;
  const auto shared = recast(matrix_of(small), target);
  expect_same_weights(matrix_of(small), shared);
  EXPECT_EQ(shared->view.tensor_scale, 0x1p-11);
  target.largest_scale = 0x1p-12;  // less than its own
  EXPECT_EQ(recast(matrix_of(small), target)->view.tensor_scale, 0x1p-17);
}

TEST(Recast, common_formats_hold_both) {
  const auto common = [](const WeightFormat& a, const WeightFormat& b) {
    const auto both = common_format(a, b, kCols);
    EXPECT_EQ(both, common_format(b, a, kCols));
    return both;
  };
  const WeightFormat u4 = {Format::kU4, Format::kF16, Zero::kU8, 32};
  EXPECT_EQ(common(u4, u4), u4);
  EXPECT_EQ(common(u4, {Format::kI4, Format::kF16, Zero::kNone, 64}), u4);
  EXPECT_EQ(common(u4, {Format::kU4, Format::kBF16, Zero::kU8, 0}),
            (WeightFormat{Format::kU4, Format::kF32, Zero::kU8, 32}));
  EXPECT_EQ(common(u4, {Format::kU4, Format::kF16, Zero::kU8, 48})->group_size, 16);
  EXPECT_EQ(common(u4, {Format::kU8, Format::kF16, Zero::kU16, 32}), std::nullopt);
  EXPECT_EQ(common(u4, {Format::kU4, Format::kF16, Zero::kF16, 32}), std::nullopt);
  EXPECT_EQ(common({Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
                   {Format::kE2M1, Format::kE4M3, Zero::kNone, 32}),
            std::nullopt);
  // And matrices are recast to them exactly.
  RandomMatrix coarse = random_matrix({Format::kI4, Format::kBF16, Zero::kNone, 64}, kRows, kCols,
                                      Contents::kReal, 3);
  const auto both = common(coarse.view.format, u4);
  ASSERT_TRUE(both);
  expect_same_weights(matrix_of(coarse), recast(matrix_of(coarse), {*both}));
}

TEST(Recast, a_factor_goes_where_a_float_holds_it) {
  auto random = random_matrix({Format::kE2M1, Format::kE4M3, Zero::kNone, 16}, kRows, kCols,
                              Contents::kReal, 8);
  Matrix matrix = matrix_of(random);
  const auto code = [&](double factor, TensorFactor as, Rounded rounded = Rounded::kNever) {
    matrix.view.tensor_scale = factor;
    return code_of(with_scales(matrix, Format::kE4M3, as, rounded));
  };
  EXPECT_EQ(code(0.25, TensorFactor::kMultiplies), "ok");
  EXPECT_EQ(code(0.25, TensorFactor::kDivides), "ok");
  EXPECT_EQ(code(1 / 3.0, TensorFactor::kMultiplies), "recast.factor");
  EXPECT_EQ(with_scales(matrix, Format::kE4M3, TensorFactor::kMultiplies).error().message,
            "the factor of the tensor, 0.333333333 (1 / 3), is no f32; the nearest one is off by "
            "2.98023224e-08 of it");
  EXPECT_EQ(code(1 / 3.0, TensorFactor::kDivides), "ok");
  EXPECT_EQ(code(3, TensorFactor::kMultiplies), "ok");
  EXPECT_EQ(code(3, TensorFactor::kDivides), "recast.factor");
  EXPECT_EQ(code(3, TensorFactor::kDivides, Rounded::kScales), "ok");
  EXPECT_EQ(code(1e-60, TensorFactor::kMultiplies, Rounded::kScales), "recast.factor");
  EXPECT_EQ(code(0, TensorFactor::kMultiplies), "ok");
  EXPECT_EQ(code(0, TensorFactor::kDivides, Rounded::kScales), "recast.factor");
  EXPECT_EQ(code(1, TensorFactor::kNone), "ok");
  EXPECT_EQ(code(0.3, TensorFactor::kNone), "recast.scale");
}

/// Inputs of a matrix with groups of 32: columns of its groups in runs of `run` inputs.
std::vector<uint32_t> interleaved(int64_t run) {
  const int64_t groups = kCols / 32;
  std::vector<std::vector<uint32_t>> inputs(groups);
  for (int64_t k = 0; k < kCols; ++k) inputs[k / run % groups].push_back(static_cast<uint32_t>(k));
  std::vector<uint32_t> order;
  for (const auto& group : inputs) order.insert(order.end(), group.begin(), group.end());
  return order;
}

TEST(Recast, act_order_is_undone_where_groups_lie_in_runs) {
  for (const WeightFormat& format : {WeightFormat{Format::kU4, Format::kF16, Zero::kU8, 32},
                                     WeightFormat{Format::kU3, Format::kF16, Zero::kU8, 32},
                                     WeightFormat{Format::kU8, Format::kF16, Zero::kU16, 32}}) {
    const auto random = random_matrix(format, kRows, kCols, Contents::kReal, 9);
    Matrix matrix = matrix_of(random);
    for (const int64_t run : {8, 16}) {
      const auto order = interleaved(run);
      matrix.view.input_order = order;
      const auto ordered = with_inputs_in_order(matrix);
      expect_same_weights(matrix, ordered);
      EXPECT_EQ(ordered->view.format.group_size, run);
      EXPECT_TRUE(ordered->view.input_order.empty());
    }
    const auto order = interleaved(4);
    matrix.view.input_order = order;
    const auto refused = with_inputs_in_order(matrix);
    EXPECT_EQ(code_of(refused), "recast.act_order");
    EXPECT_NE(refused.error().message.find("groups of 32 are runs of 4"), std::string::npos);
  }
}

TEST(Recast, act_order_of_whole_groups_or_of_one_keeps_their_size) {
  const auto groups =
      random_matrix({Format::kU4, Format::kF16, Zero::kU8, 32}, kRows, kCols, Contents::kReal, 10);
  Matrix matrix = matrix_of(groups);
  std::vector<uint32_t> order;  // groups 3, 1, 0, 2
  for (const uint32_t group : {3, 1, 0, 2}) {
    for (uint32_t k = 0; k < 32; ++k) order.push_back(32 * group + k);
  }
  matrix.view.input_order = order;
  const auto swapped = with_inputs_in_order(matrix);
  expect_same_weights(matrix, swapped);
  EXPECT_EQ(swapped->view.format.group_size, 32);
  const auto row =
      random_matrix({Format::kU4, Format::kF16, Zero::kU8, 0}, kRows, kCols, Contents::kReal, 11);
  matrix = matrix_of(row);
  std::ranges::reverse(order);
  matrix.view.input_order = order;
  const auto reversed = with_inputs_in_order(matrix);
  expect_same_weights(matrix, reversed);
  EXPECT_EQ(reversed->view.format.group_size, 0);
}

TEST(Recast, offsets_stay_offsets) {
  const WeightFormat format = {Format::kI4, Format::kF16, Zero::kF16, 32};
  const auto random = random_matrix(format, kRows, kCols, Contents::kReal, 13);
  const Matrix matrix = matrix_of(random);
  EXPECT_FALSE(is_symmetric(matrix.view));
  const Result<Matrix> smaller = with_group_size(matrix, 16);
  expect_same_weights(matrix, smaller);
  expect_same_weights(matrix, with_group_size(*smaller, 32));
  expect_same_weights(matrix, with_zero_rule(matrix, Zero::kF16));
  expect_same_weights(matrix, with_scales(matrix, Format::kF32, TensorFactor::kNone));
  for (const Zero zero : {Zero::kNone, Zero::kU8, Zero::kU16, Zero::kBF16}) {
    EXPECT_EQ(code_of(with_zero_rule(matrix, zero)), "recast.zero_point");
  }
  const auto with_integers =
      random_matrix({Format::kU4, Format::kF16, Zero::kU8, 32}, kRows, kCols, Contents::kReal, 14);
  EXPECT_EQ(code_of(with_zero_rule(matrix_of(with_integers), Zero::kF16)), "recast.zero_point");
  const auto none = random_matrix({Format::kI4, Format::kF16, Zero::kNone, 32}, kRows, kCols,
                                  Contents::kReal, 15);
  EXPECT_EQ(code_of(with_zero_rule(matrix_of(none), Zero::kF16)), "recast.zero_point");
}

TEST(Recast, no_factor_goes_into_offsets) {
  const WeightFormat format = {Format::kI4, Format::kF16, Zero::kF16, 32};
  const auto random = random_matrix(format, kRows, kCols, Contents::kReal, 16);
  Matrix matrix = matrix_of(random);
  matrix.view.tensor_scale = 0.5;
  expect_same_weights(matrix, with_scales(matrix, Format::kF16, TensorFactor::kMultiplies));
  EXPECT_EQ(code_of(with_scales(matrix, Format::kF16, TensorFactor::kNone)), "recast.factor");
  EXPECT_EQ(
      code_of(with_scales(matrix, Format::kBF16, TensorFactor::kMultiplies, Rounded::kScales)),
      "recast.factor");
}

TEST(Recast, does_not_change_what_codes_mean) {
  const auto random = random_matrix({Format::kNF4, Format::kF32, Zero::kNone, 64}, kRows, kCols,
                                    Contents::kReal, 12);
  const TargetFormat target = {{Format::kE2M1, Format::kF32, Zero::kNone, 64}};
  EXPECT_EQ(code_of(recast(matrix_of(random), target)), "recast.element");
}

}  // namespace
}  // namespace subbyte
