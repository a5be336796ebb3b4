#include "kernels/cuda/cost_model.h"

#include <gtest/gtest.h>

namespace subbyte::cuda {
namespace {

constexpr Device kH200 = {90, 132, 227 * 1024, 1.755e9, 4.5e12};
constexpr Device kA100 = {80, 108, 163 * 1024, 1.41e9, 1.9e12};

TEST(CudaCostModel, is_the_measured_table_on_the_measured_chip) {
  const CostModel& measured = reference_gpu().cost;
  Device device = kH200;
  // Another clock and another memory, such as the H100's, are still the same chip.
  for (const double clock_hz : {1.755e9, 1.98e9}) {
    for (const double bytes_per_second : {4.5e12, 3.1e12}) {
      device.clock_hz = clock_hz;
      device.bytes_per_second = bytes_per_second;
      const CostModel cost = cost_model(device);
      EXPECT_EQ(cost.gemv.input_rate, measured.gemv.input_rate);
      EXPECT_EQ(cost.large_m.l2_rate, measured.large_m.l2_rate);
      for (int i = 0; i < 5; ++i) EXPECT_EQ(cost.large_m.k_tile[i], measured.large_m.k_tile[i]);
    }
  }
}

TEST(CudaCostModel, follows_the_rule_on_a_gpu_that_was_not_measured) {
  const CostModel& measured = reference_gpu().cost;
  const CostModel cost = cost_model(kA100);
  const double clocks = 1.41 / 1.755;
  for (int i = 0; i < 3; ++i) {
    EXPECT_DOUBLE_EQ(cost.large_m.k_tile[i], measured.large_m.k_tile[i] / clocks);
    EXPECT_EQ(cost.small_m.pair_instructions[i], measured.small_m.pair_instructions[i]);
  }
  EXPECT_DOUBLE_EQ(cost.large_m.exchange_per_token, measured.large_m.exchange_per_token / clocks);
  EXPECT_DOUBLE_EQ(cost.large_m.l2_rate, measured.large_m.l2_rate * clocks * 108 / 132);
  EXPECT_DOUBLE_EQ(cost.gemv.input_rate, measured.gemv.input_rate * clocks);
  EXPECT_EQ(cost.gemv.fixed, measured.gemv.fixed);
  EXPECT_EQ(cost.small_m.memory_latency, measured.small_m.memory_latency);
  EXPECT_EQ(cost.large_m.launch, measured.large_m.launch);
}

/// The rule does not jump: a GPU like the measured one costs the same.
TEST(CudaCostModel, of_a_gpu_like_the_measured_one_is_the_measured_table) {
  Device device = kH200;
  device.compute_capability = 89;
  const CostModel cost = cost_model(device);
  for (int i = 0; i < 5; ++i) {
    EXPECT_DOUBLE_EQ(cost.large_m.k_tile[i], reference_gpu().cost.large_m.k_tile[i]);
  }
  EXPECT_DOUBLE_EQ(cost.large_m.l2_rate, reference_gpu().cost.large_m.l2_rate);
  EXPECT_DOUBLE_EQ(cost.gemv.input_rate, reference_gpu().cost.gemv.input_rate);
}

}  // namespace
}  // namespace subbyte::cuda
