#include "cpu_backend/gates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "support/isa_test.h"

namespace subbyte {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr SwiGLU kGptOss = {1.702f, 7, 1};

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

class Gates : public subbyte::testing::IsaTest {
 protected:
  void silu_gate(std::span<float> gate, std::span<const float> up) {
    subbyte::silu_gate(kernels_, gate, up, std::ssize(gate), {0, 0, std::ssize(gate), 0, 1});
  }
  void clamped_swiglu(std::span<float> out, std::span<const float> gate_up,
                      const SwiGLU& swiglu = kGptOss) {
    gate_in_turns(kernels_, Gate::kSilu, swiglu, out, gate_up, std::ssize(out),
                  {0, 0, 2 * std::ssize(out), 0, 1});
  }
  /// In a full vector and in a rest of one.
  float silu(float gate, float up) {
    std::vector<float> values(17, gate);
    silu_gate(values, std::vector<float>(17, up));
    EXPECT_TRUE(std::isnan(values[0]) || values[0] == values[16]);
    return values[0];
  }
  float swiglu(float gate, float up, float alpha = 1.702f, float limit = 7) {
    std::vector<float> out = {-1};
    clamped_swiglu(out, std::vector<float>{gate, up}, {alpha, limit, 1});
    return out[0];
  }

  /// Columns in which the rows below are divided.
  static constexpr int64_t kWidth = 6'671;
  static constexpr int64_t kEnds[] = {0, 5, 32, 33, 96, 4'000, kWidth};

  const cpu::Kernels& kernels_ = execution(1).kernels();
};

TEST_P(Gates, silu_is_the_formula) {
  for (double x = -90; x <= 90; x += 0.37) {
    const auto gate = static_cast<float>(x);
    const double expected = gate * sigmoid(gate) * 1.5;
    // Below -88 exp overflows, and 1e-36 becomes 0.
    EXPECT_NEAR(silu(gate, 1.5f), expected, std::abs(expected) * 1e-6 + 1e-36) << x;
  }
  EXPECT_EQ(silu(0, 3), 0);
}

TEST_P(Gates, silu_has_its_limits) {
  EXPECT_EQ(silu(1e30f, 1), 1e30f);
  EXPECT_EQ(silu(-1e30f, 1), 0);
  EXPECT_EQ(silu(-200, 5), 0);
}

TEST_P(Gates, silu_nan_stays_nan_and_alone) {
  std::vector<float> gate = {1, kNan, 1, 1};
  silu_gate(gate, std::vector<float>{1, 1, kNan, 1});
  EXPECT_FALSE(std::isnan(gate[0]));
  EXPECT_TRUE(std::isnan(gate[1]));
  EXPECT_TRUE(std::isnan(gate[2]));
  EXPECT_FALSE(std::isnan(gate[3]));
}

TEST_P(Gates, swiglu_takes_even_elements_as_gate) {
  const std::vector<float> gate_up = {1, 10, 2, 20, -3, -0.5f};
  std::vector<float> out(3);
  clamped_swiglu(out, gate_up, {1.702f, 100, 1});
  EXPECT_NEAR(out[0], 1 * sigmoid(1.702) * 11, 1e-5);
  EXPECT_NEAR(out[1], 2 * sigmoid(3.404) * 21, 1e-4);
  EXPECT_NEAR(out[2], -3 * sigmoid(-5.106) * 0.5, 1e-7);
}

TEST_P(Gates, swiglu_clamps_the_gate_above_and_up_on_both_sides) {
  const double at_limit = 7 * sigmoid(1.702 * 7);
  EXPECT_NEAR(swiglu(8, 1), at_limit * 2, 1e-5);
  EXPECT_EQ(swiglu(8, 1), swiglu(7, 1));
  EXPECT_EQ(swiglu(1e30f, 1), swiglu(7, 1));
  EXPECT_NE(swiglu(-8, 1), swiglu(-7, 1));  // not below
  EXPECT_NEAR(swiglu(-8, 1), -8 * sigmoid(-1.702 * 8) * 2, 1e-9);
  EXPECT_EQ(swiglu(1, 9), swiglu(1, 7));
  EXPECT_EQ(swiglu(1, -9), swiglu(1, -7));
  EXPECT_NEAR(swiglu(1, -9), sigmoid(1.702) * -6, 1e-6);
  EXPECT_EQ(swiglu(3, 2, 1, 0.5f), swiglu(0.5f, 0.5f, 1, 0.5f));
}

TEST_P(Gates, swiglu_up_of_minus_one_gives_zero) {
  EXPECT_EQ(swiglu(3, -1), 0);
}

TEST_P(Gates, swiglu_nan_stays_nan_and_alone) {
  // A clamp written the other way round would turn NaN into the limit.
  EXPECT_TRUE(std::isnan(swiglu(kNan, 1)));
  EXPECT_TRUE(std::isnan(swiglu(1, kNan)));
  std::vector<float> out(2);
  clamped_swiglu(out, std::vector<float>{kNan, 0, 1, 0});
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_NEAR(out[1], sigmoid(1.702), 1e-6);
}

TEST_P(Gates, silu_any_length_and_any_columns_give_the_same) {
  Random random(1);
  std::vector<float> gate(3 * kWidth), up(gate.size());
  for (float& x : gate) x = static_cast<float>(3 * random.normal());
  for (float& x : up) x = static_cast<float>(random.normal());
  std::vector<float> all = gate;
  silu_gate(all, up);
  std::vector<float> parts = gate;
  for (std::size_t i = 1; i < std::size(kEnds); ++i) {
    subbyte::silu_gate(kernels_, parts, up, kWidth, {0, kEnds[i - 1], kEnds[i], 0, 1});
    subbyte::silu_gate(kernels_, parts, up, kWidth, {0, kEnds[i - 1], kEnds[i], 1, 2});
  }
  EXPECT_EQ(parts, all);
  for (std::size_t n = 0; n < 50; ++n) {
    std::vector<float> found(gate.begin(), gate.begin() + static_cast<std::ptrdiff_t>(n) + 3);
    silu_gate(std::span(found).first(n), std::span(up).first(n));
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i], i < n ? all[i] : gate[i]) << n << ", " << i;
    }
  }
}

TEST_P(Gates, swiglu_any_length_and_any_columns_give_the_formula) {
  Random random(2);
  std::vector<float> gate_up(2 * 3 * kWidth);
  for (float& x : gate_up) x = static_cast<float>(5 * random.normal());
  std::vector<float> all(gate_up.size() / 2);
  clamped_swiglu(all, gate_up);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double g = std::fmin(gate_up[2 * i], 7);
    const double u = std::fmin(std::fmax(gate_up[2 * i + 1], -7), 7) + 1;
    const double expected = g * sigmoid(1.702f * g) * u;
    // alpha g is up to 7 * 1.702 with a rounding, which exp turns into 12 u; e^x, sum, quotient,
    // u + 1 and product bring 3 + 4.
    EXPECT_NEAR(all[i], expected, std::abs(expected) * 40 * 0x1p-24 + 1e-30) << i;
  }
  std::vector<float> parts(all.size());
  for (std::size_t i = 1; i < std::size(kEnds); ++i) {
    for (const auto& [first_m, num_m] : {std::pair{0, 2}, std::pair{2, 1}}) {
      const DonePart part = {0, 2 * kEnds[i - 1], 2 * kEnds[i], first_m, num_m};
      gate_in_turns(kernels_, Gate::kSilu, kGptOss, parts, gate_up, kWidth, part);
    }
  }
  EXPECT_EQ(parts, all);
  for (std::size_t n = 0; n < 50; ++n) {
    std::vector<float> found(n + 3, 9);
    clamped_swiglu(std::span(found).first(n), std::span(gate_up).first(2 * n));
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], i < n ? all[i] : 9);
  }
}

TEST_P(Gates, swiglu_as_it_is_has_the_bits_of_silu) {
  Random random(3);
  std::vector<float> gate_up(2 * 1'003);
  for (float& x : gate_up) x = static_cast<float>(20 * random.normal());
  std::vector<float> gate, up;
  for (std::size_t i = 0; i < gate_up.size(); i += 2) {
    gate.push_back(gate_up[i]);
    up.push_back(gate_up[i + 1]);
  }
  std::vector<float> out(gate.size());
  clamped_swiglu(out, gate_up, SwiGLU{});
  silu_gate(gate, up);
  EXPECT_EQ(out, gate);
}

TEST_P(Gates, swiglu_apart_has_the_bits_of_swiglu_in_turns) {
  Random random(4);
  std::vector<float> gate_up(2 * 3 * kWidth);
  for (float& x : gate_up) x = static_cast<float>(5 * random.normal());
  gate_up[2] = gate_up[11] = kNan;
  std::vector<float> gate, up;
  for (std::size_t i = 0; i < gate_up.size(); i += 2) {
    gate.push_back(gate_up[i]);
    up.push_back(gate_up[i + 1]);
  }
  std::vector<float> out(gate.size());
  const SwiGLU swiglu = {1.2f, 3, 0.5f};
  clamped_swiglu(out, gate_up, swiglu);
  for (std::size_t i = 1; i < std::size(kEnds); ++i) {
    for (const auto& [first_m, num_m] : {std::pair{0, 2}, std::pair{2, 1}}) {
      const DonePart part = {0, kEnds[i - 1], kEnds[i], first_m, num_m};
      gate_apart(kernels_, Gate::kSilu, swiglu, gate, up, kWidth, part);
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_TRUE(std::isnan(out[i]) ? std::isnan(gate[i]) : gate[i] == out[i]) << i;
  }
}

TEST_P(Gates, swiglu_adds_its_offset_to_the_clamped_up) {
  std::vector<float> out(1);
  clamped_swiglu(out, std::vector<float>{2, 10}, {1, 4, -1.5f});
  EXPECT_NEAR(out[0], 2 * sigmoid(2) * 2.5, 1e-6);
}

TEST_P(Gates, gelu_in_turns_has_the_bits_of_gelu) {
  Random random(5);
  std::vector<float> gate_up(2 * 1'003), gate, up;
  for (float& x : gate_up) x = static_cast<float>(3 * random.normal());
  for (std::size_t i = 0; i < gate_up.size(); i += 2) {
    gate.push_back(gate_up[i]);
    up.push_back(gate_up[i + 1]);
  }
  std::vector<float> out(gate.size());
  gate_in_turns(kernels_, Gate::kGelu, {}, out, gate_up, std::ssize(out),
                {0, 0, std::ssize(gate_up), 0, 1});
  apply_gate(kernels_, Gate::kGelu, gate, up, std::ssize(gate), {0, 0, std::ssize(gate), 0, 1});
  EXPECT_EQ(out, gate);
}

TEST(SquaredRelu, changes_its_part_alone) {
  std::vector<float> x = {3, -2, kNan, 0.5f, -1, 2, 3, 4};
  squared_relu(x, 4, {0, 1, 3, 0, 1});
  squared_relu(x, 4, {0, 0, 2, 1, 1});
  EXPECT_TRUE(std::isnan(x[2]));
  x[2] = 0;
  EXPECT_EQ(x, std::vector<float>({3, 0, 0, 0.5f, 0, 4, 3, 4}));
}

TEST_P(Gates, sigmoid_is_the_formula_with_a_gate_for_each_number_or_for_a_row) {
  constexpr int64_t kCols = 37;
  constexpr int64_t kRows = 5;
  Random random(7);
  std::vector<float> x, gate, base;
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    x.push_back(static_cast<float>(4 * random.uniform() - 2));
    gate.push_back(static_cast<float>(200 * random.uniform() - 100));
    base.push_back(static_cast<float>(random.uniform()));
  }
  for (const bool is_wide : {true, false}) {
    const std::vector<float> gates(gate.begin(), is_wide ? gate.end() : gate.begin() + kRows);
    for (const bool adds : {true, false}) {
      std::vector<float> y = x;
      sigmoid_gate(execution(2), y, y, gates, adds ? base : std::vector<float>(), kCols);
      for (int64_t i = 0; i < kRows * kCols; ++i) {
        const double factor = sigmoid(gates[is_wide ? i : i / kCols]);
        EXPECT_NEAR(y[i], factor * x[i] + (adds ? base[i] : 0), 1e-6) << i;
      }
    }
  }
}

SUBBYTE_FOR_EVERY_ISA(Gates);

}  // namespace
}  // namespace subbyte
