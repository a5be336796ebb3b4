#include "models/gpu_plan.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/gpu_ranks.h"
#include "base/thread_pool.h"
#include "checkpoints/config/model_files.h"
#include "subbyte/format.h"
#include "support/paths.h"

namespace subbyte {
namespace {

const std::filesystem::path kGoldens = std::filesystem::path(SUBBYTE_TEST_DATA) / "goldens";

/// A model of Qwen3's form in 4 bits and a scale and a zero point for 128, with a head of 16 bits.
struct Shape {
  double layers, hidden, heads, kv_heads, inner, vocabulary;
  double experts = 0, used = 0;
};

ModelSizes sizes_of(const Shape& s, double head_bits = 16) {
  const double attention = s.hidden * (s.heads + 2 * s.kv_heads) * 128 + s.heads * 128 * s.hidden;
  const double block = 3 * s.hidden * s.inner;
  const double bits = 4 + (16 + 4) / 128.0;
  ModelSizes sizes;
  sizes.table_bytes = 2 * s.vocabulary * s.hidden;
  sizes.whole_bytes = sizes.table_bytes;
  sizes.divided_bytes = s.layers * attention * bits / 8 + s.vocabulary * s.hidden * head_bits / 8;
  sizes.linear_flops = 2 * s.layers * attention;
  if (s.experts > 0) {
    sizes.expert_bytes = s.layers * s.experts * block * bits / 8;
    sizes.expert_flops = 2 * s.layers * s.used * block;
  } else {
    sizes.divided_bytes += s.layers * block * bits / 8;
    sizes.linear_flops += 2 * s.layers * block;
  }
  sizes.experts = s.experts;
  sizes.used_experts = s.used;
  sizes.widest = static_cast<int64_t>(2 * s.inner);
  sizes.layers = static_cast<int64_t>(s.layers);
  sizes.hidden_size = static_cast<int64_t>(s.hidden);
  sizes.vocab_size = static_cast<int64_t>(s.vocabulary);
  sizes.heads = static_cast<int64_t>(s.heads);
  sizes.head_dim = 128;
  sizes.cache.groups = {{.layers = static_cast<int64_t>(s.layers),
                         .kv_heads = static_cast<int64_t>(s.kv_heads),
                         .head_dim = 128}};
  return sizes;
}

constexpr Shape k06b = {28, 1024, 16, 8, 3072, 151936};
constexpr Shape k8b = {36, 4096, 32, 8, 12288, 151936};
constexpr Shape k32b = {64, 5120, 64, 8, 25600, 151936};
constexpr Shape k30bA3b = {48, 2048, 32, 4, 768, 151936, 128, 8};

GpuPlan plan_on_one(const ModelSizes& sizes, const char* card, int64_t clients, int64_t context) {
  return gpu_plans(sizes, {find_card(card), 1, context, clients, Element::kF16}).front();
}

/// A row of docs/benchmarks/README.md, and how far the plan may be off it.
struct Row {
  const char* card;
  Shape shape;
  double head_bits;
  int64_t clients, context;
  double measured;     // tokens per second
  double least, most;  // of the plan, times that
};

constexpr Row kRows[] = {
    {"H100", k8b, 16, 1, 128, 395, 0.95, 1.05},    {"H100", k8b, 16, 1, 16384, 281, 0.95, 1.08},
    {"H100", k8b, 16, 8, 160, 2697, 0.95, 1.10},   {"H100", k8b, 16, 16, 160, 4245, 0.95, 1.25},
    {"H100", k8b, 16, 64, 160, 11440, 0.95, 1.15}, {"H100", k8b, 16, 256, 160, 21235, 0.9, 1.10},
    {"H100", k06b, 16, 1, 128, 1252, 0.95, 1.05},  {"H100", k06b, 16, 1, 16384, 664, 0.95, 1.20},
    {"H100", k06b, 16, 8, 160, 8303, 0.95, 1.15},  {"H100", k06b, 16, 64, 160, 31430, 1.0, 1.6},
    {"H100", k06b, 16, 256, 160, 61431, 1.0, 1.6}, {"H200", k8b, 16, 1, 0, 498, 0.95, 1.05},
    {"H200", k30bA3b, 8, 1, 0, 561, 1.0, 1.25},
};

TEST(GpuPlans, follow_what_one_gpu_measured) {
  for (const Row& row : kRows) {
    const GpuPlan plan =
        plan_on_one(sizes_of(row.shape, row.head_bits), row.card, row.clients, row.context);
    const double ratio = plan.tokens_per_second / row.measured;
    EXPECT_TRUE(row.least <= ratio && ratio <= row.most)
        << row.card << ", " << row.shape.layers << " layers, " << row.clients << " after "
        << row.context << ": " << ratio;
  }
}

TEST(GpuPlans, divide_weights_caches_and_time) {
  const ModelSizes sizes = sizes_of(k32b);
  const auto plans = gpu_plans(sizes, {find_card("h200"), 8, 32768, 200, Element::kF16});
  ASSERT_EQ(plans.size(), 4);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    EXPECT_EQ(plans[i].gpus, 1 << i);
    EXPECT_EQ(plans[i].replicas * plans[i].gpus, 8);
    const double whole = sizes.whole_bytes + sizes.divided_bytes / plans[i].gpus;
    EXPECT_DOUBLE_EQ(plans[i].weight_bytes, whole);
    EXPECT_EQ(plans[i].exchange_seconds > 0, i > 0);
    EXPECT_LE(plans[i].weight_bytes + plans[i].cache_bytes + plans[i].workspace_bytes, 149e9);
  }
  // A client's cache is 64 layers x 8 heads x 128 x 2 x 2 bytes x 32,768: 8.6 GB, of which 14 fit
  // beside 19.3 GB of weights and 1.3 of a step. On eight GPUs it is 1.07 GB beside
  // 3.8 and 1.5.
  EXPECT_EQ(plans[0].at_once, 8 * 14);
  EXPECT_EQ(plans[3].at_once, 133);
  // 128 sums of 5,120 numbers.
  const auto one = gpu_plans(sizes, {find_card("H200"), 2, 512, 1, Element::kF16}).back();
  EXPECT_NEAR(one.exchange_seconds, 128 * 1.6e-6, 2e-5);
}

TEST(GpuPlans, leave_each_gpu_a_head) {
  Shape odd = k8b;
  odd.heads = 4;
  const auto plans = gpu_plans(sizes_of(odd), {find_card("H100"), 6, 512, 1, Element::kF16});
  ASSERT_EQ(plans.size(), 3);
  EXPECT_EQ(plans.back().gpus, 3);
}

TEST(GpuPlans, have_no_replica_on_more_gpus_than_one_takes) {
  const auto plans = gpu_plans(sizes_of(k32b), {find_card("H200"), 32, 512, 1, Element::kF16});
  ASSERT_EQ(plans.size(), 4);
  EXPECT_EQ(plans.back().gpus, kMaxGpuRanks);
  EXPECT_EQ(plans.back().replicas, 4);
}

TEST(GpuPlans, of_what_has_no_room_have_no_speed) {
  Shape large = k32b;
  large.layers *= 8;
  const GpuPlan plan = plan_on_one(sizes_of(large), "H100", 1, 512);
  EXPECT_EQ(plan.at_once, 0);
  EXPECT_EQ(plan.tokens_per_second, 0);
}

/// A 32b after 512 tokens (docs/benchmarks/README.md).
TEST(GpuPlans, follow_what_one_two_and_four_gpus_measured) {
  const ModelSizes sizes = sizes_of(k32b);
  for (const auto& [gpus, measured] : {std::pair(1, 159.3), {2, 249.3}, {4, 330.0}}) {
    const GpuPlan plan = gpu_plans(sizes, {find_card("H200"), gpus, 576, 1, Element::kF16}).back();
    EXPECT_NEAR(plan.tokens_per_second / measured, 1, 0.04) << gpus;
  }
}

TEST(GpuPlans, sums_are_those_measured_and_grow_with_gpus) {
  // Beside the norm in the same kernel half a microsecond less than alone.
  EXPECT_DOUBLE_EQ(sum_seconds(100, 2), 1.6e-6);
  EXPECT_NEAR(sum_seconds(8 << 10, 2), 2.13e-6 - 0.46e-6, 0.05e-6);
  EXPECT_NEAR(sum_seconds(512 << 10, 2), 5.95e-6 - 0.46e-6, 0.3e-6);
  EXPECT_NEAR(sum_seconds(4 << 20, 2), 18.9e-6, 0.5e-6);
  EXPECT_NEAR(sum_seconds(32 << 20, 2), 138e-6, 3e-6);
  EXPECT_GT(sum_seconds(4 << 20, 8), sum_seconds(4 << 20, 2));
  EXPECT_GT(sum_seconds(128 << 20, 2), 450e-6);
}

/// Of the stages each reads its part of the weights, one after the other.
TEST(GpuPlans, stages_divide_weights_and_caches_and_not_the_time_of_one) {
  ModelSizes sizes = sizes_of(k32b);
  const GpuPlan one = gpu_plans(sizes, {find_card("H200"), 1, 512, 1, Element::kF16}).front();
  for (int i = 0; i < 2; ++i) {
    PlannedStage stage = {(sizes.whole_bytes + sizes.divided_bytes) / 2, sizes.cache};
    stage.cache.groups.front().layers /= 2;
    sizes.stages.push_back(stage);
  }
  const auto plans = gpu_plans(sizes, {find_card("H200"), 4, 512, 1, Element::kF16});
  ASSERT_EQ(plans.size(), 1);
  EXPECT_EQ(plans.front().gpus, 2);
  EXPECT_EQ(plans.front().replicas, 2);
  EXPECT_DOUBLE_EQ(plans.front().weight_bytes, one.weight_bytes / 2);
  EXPECT_NEAR(plans.front().cache_bytes, one.cache_bytes / 2, one.cache_bytes / 100);
  EXPECT_NEAR(plans.front().step_seconds, one.step_seconds + plans.front().exchange_seconds,
              one.step_seconds / 50);
  // Many clients are in a step of each stage.
  const GpuPlan many = gpu_plans(sizes, {find_card("H200"), 2, 512, 64, Element::kF16}).front();
  const GpuPlan all = plan_on_one(sizes_of(k32b), "H200", 64, 512);
  EXPECT_GT(many.tokens_per_second, 1.2 * all.tokens_per_second);
  EXPECT_LT(many.tokens_per_second, 2 * all.tokens_per_second);
  EXPECT_TRUE(gpu_plans(sizes, {find_card("H200"), 1, 512, 1, Element::kF16}).empty());
}

/// Bytes as on a machine that takes one for each number.
Result<int64_t> numbers_of(const MatrixShape& shape) {
  return shape.experts * shape.rows * shape.cols;
}

TEST(GpuPlans, layers_that_fit_leave_room_for_their_caches) {
  ThreadPool pool(1);
  const ModelFiles files(kGoldens / "qwen3-bf16");
  const auto sizes = sizes_of(files, pool, numbers_of);
  const auto plan = plan_of(files, pool, numbers_of);
  ASSERT_TRUE(sizes.ok() && plan.ok());
  CardFigures card = *find_card("H200");
  GpuPlanRequest request = {&card, 1, 512, 1, Element::kF16};
  EXPECT_EQ(layers_that_fit(*sizes, *plan, request), sizes->layers);
  card.memory_bytes = 1e3;
  EXPECT_EQ(layers_that_fit(*sizes, *plan, request), 0);
  ModelSizes two = *sizes;
  ASSERT_TRUE(add_stages(two, *plan, 2).ok());
  EXPECT_EQ(two.stages.size(), 2);
  double sum = 0;
  for (const PlannedStage& stage : two.stages) sum += stage.weight_bytes;
  EXPECT_GE(sum, sizes->whole_bytes + sizes->divided_bytes);  // a table may be the head, too
  EXPECT_FALSE(add_stages(two, *plan, 100).ok());
}

TEST(GpuPlans, sizes_are_those_of_the_files) {
  ThreadPool pool(1);
  for (const char* golden : {"qwen3-awq", "qwen3-bf16", "gpt-oss-mxfp4"}) {
    const ModelFiles files(kGoldens / golden);
    const auto sizes = sizes_of(files, pool, [](const MatrixShape& shape) -> Result<int64_t> {
      const double bits = bits_per_weight(shape.format, shape.cols);
      return static_cast<int64_t>(static_cast<double>(*numbers_of(shape)) * bits / 8);
    });
    ASSERT_TRUE(sizes.ok()) << sizes.error().message;
    double bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kGoldens / golden)) {
      const bool is_model = entry.path().filename().string().starts_with("model");
      if (is_model && entry.path().extension() == ".safetensors")
        bytes += static_cast<double>(entry.file_size());
    }
    const double sum = sizes->whole_bytes + sizes->divided_bytes + sizes->expert_bytes;
    // The file has its header and norms, too.
    EXPECT_LT(sum, bytes) << golden;
    EXPECT_GT(sum, 0.8 * bytes) << golden;
    EXPECT_EQ(sizes->experts > 0, std::string(golden) == "gpt-oss-mxfp4");
  }
}

TEST(GpuPlans, cards_are_found_by_name) {
  EXPECT_EQ(find_card("H200"), &measured_cards()[1]);
  EXPECT_EQ(find_card("h100"), &measured_cards()[0]);
  EXPECT_EQ(find_card("H20"), nullptr);
  EXPECT_EQ(find_card(""), nullptr);
}

}  // namespace
}  // namespace subbyte
