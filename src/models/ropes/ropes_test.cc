#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/ropes/rope_kind.h"
#include "support/json_of.h"

namespace subbyte {
namespace {

// gpt-oss: head_dim 64, theta 150000, YaRN factor 32 of 4096 positions, beta 32 and 1.
constexpr int64_t kDim = 64;
constexpr double kTheta = 150'000;

using Read = Result<ScaledRope>(const RopeInput&);

Rope read(Read* read_rope, const json::Value& section, int64_t dim, double theta) {
  const auto object = json::Object::of(section, "config.json: rope_parameters");
  const json::Value beside = json::Value::object();
  const auto config = json::Object::of(beside, "config.json");
  const auto read = read_rope({*config, *object, dim, theta, 131'072});
  EXPECT_TRUE(read.ok()) << read.error().message;
  return read.ok() ? read->rope : Rope();
}

Rope read(Read* read_rope, const char* section, int64_t dim, double theta) {
  return read(read_rope, json_of(section), dim, theta);
}

Rope gpt_oss(const char* changes) {
  json::Value section = {{"factor", 32}, {"original_max_position_embeddings", 4096}};
  section.update(json_of(changes));
  return read(read_yarn_rope, section, kDim, kTheta);
}

double relative(double found, double expected) {
  return std::abs(found / expected - 1);
}

TEST(Ropes, linear_scaling_divides_all_frequencies) {
  const Rope plain(64, 10'000);
  const Rope scaled = read(read_linear_rope, R"({"factor": 4})", 64, 10'000);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(scaled.inv_freq()[i] * 4, plain.inv_freq()[i]);
  EXPECT_EQ(scaled.attention_factor(), 1);
}

/// Those of Llama 3.1 8B as transformers 5.24 computes them, in float32.
TEST(Ropes, ramp_over_turns_is_that_of_the_reference) {
  const Rope rope = read(read_turns_rope, R"({"factor": 8, "original_max_position_embeddings": 8192,
                                          "high_freq_factor": 4, "low_freq_factor": 1})",
                         128, 500'000);
  // Left alone up to 28; divided by 8 from 36 on; in between what turns 4 to 1 times.
  const std::pair<int, double> expected[] = {{0, 1.0},
                                             {1, 0.8146172165870667},
                                             {20, 0.016560440883040428},
                                             {28, 0.0032114461064338684},
                                             {29, 0.0021665706299245358},
                                             {30, 0.0013718936825171113},
                                             {32, 0.0005248460220173001},
                                             {34, 0.0001785077911335975},
                                             {35, 9.556212171446532e-05},
                                             {36, 7.784655463183299e-05},
                                             {40, 3.428102354519069e-05},
                                             {63, 3.068925877869333e-07}};
  // The reference subtracts in float32 what is up to 8 times as large as the result.
  for (const auto& [i, frequency] : expected) {
    EXPECT_LT(relative(rope.inv_freq()[i], frequency), 16 * 0x1p-24) << i;
  }
  EXPECT_EQ(rope.attention_factor(), 1);
}

/// Of Llama 4 Scout, with nothing between those that are divided and those that are not.
TEST(Ropes, a_ramp_over_turns_may_be_a_step) {
  const Rope plain(128, 500'000);
  const Rope rope = read(read_turns_rope,
                         R"({"factor": 16, "original_max_position_embeddings": 8192,
                             "high_freq_factor": 1, "low_freq_factor": 1})",
                         128, 500'000);
  // 8192 positions are a turn of 2 pi / 8192 = 0.000767: 35 is the first below it.
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(rope.inv_freq()[i], plain.inv_freq()[i] / (i < 35 ? 1 : 16)) << i;
  }
}

/// Frequencies by the reference's formula from ends of the ramp that it states as numbers.
void expect_ramp(const Rope& rope, double low, double high, double tolerance) {
  for (int i = 0; i < 32; ++i) {
    const double plain = std::exp(-std::log(kTheta) * i / 32);
    const double r = std::fmin(std::fmax((i - low) / (high - low), 0), 1);
    const double expected = (1 - r) * plain + r * plain / 32;
    EXPECT_LT(relative(rope.inv_freq()[i], expected), tolerance) << "dimension " << i;
  }
}

TEST(Ropes, yarn_of_gpt_oss_has_the_borders_of_the_reference) {
  const Rope rope = gpt_oss(R"({"truncate": false})");
  // The ends of the ramp are given to three decimals; an end off by 0.001 moves a frequency in the
  // ramp by up to 2e-3 of itself.
  expect_ramp(rope, 8.093, 17.398, 2e-3);
  const double log_theta = std::log(kTheta);
  const double low = 32 * std::log(4096 / (32 * 2 * std::numbers::pi)) / log_theta;
  const double high = 32 * std::log(4096 / (2 * std::numbers::pi)) / log_theta;
  EXPECT_NEAR(low, 8.093, 5e-4);
  EXPECT_NEAR(high, 17.398, 5e-4);
  expect_ramp(rope, low, high, 1e-12);
}

TEST(Ropes, yarn_rounds_the_borders_outwards_when_told) {
  expect_ramp(gpt_oss("{}"), 8, 18, 1e-12);
}

TEST(Ropes, yarn_leaves_the_fast_and_divides_the_slow_dimensions) {
  const Rope plain(kDim, kTheta);
  const Rope yarn = gpt_oss(R"({"truncate": false})");
  for (int i = 0; i <= 8; ++i) EXPECT_EQ(yarn.inv_freq()[i], plain.inv_freq()[i]);
  for (int i = 18; i < 32; ++i) EXPECT_EQ(yarn.inv_freq()[i], plain.inv_freq()[i] / 32);
  for (int i = 9; i < 18; ++i) {
    EXPECT_LT(yarn.inv_freq()[i], plain.inv_freq()[i]);
    EXPECT_GT(yarn.inv_freq()[i], plain.inv_freq()[i] / 32);
  }
}

TEST(Ropes, yarn_with_equal_borders_is_a_step) {
  const Rope plain(kDim, kTheta);
  // Both ends at 17.398.
  const Rope yarn = gpt_oss(R"({"truncate": false, "beta_fast": 1})");
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(yarn.inv_freq()[i], plain.inv_freq()[i] / (i < 18 ? 1 : 32)) << i;
  }
}

TEST(Ropes, yarn_of_a_huge_context_changes_no_frequency) {
  // The ramp lies beyond the last dimension.
  const Rope plain(kDim, kTheta);
  const Rope yarn = gpt_oss(R"({"original_max_position_embeddings": 60000000})");
  EXPECT_TRUE(std::ranges::equal(yarn.inv_freq(), plain.inv_freq()));
}

/// What read_long_rope says of a section beside `config`, for a head of 8 numbers.
Result<ScaledRope> long_rope(const char* section, const char* config, int64_t max_positions) {
  const json::Value inside = json_of(section);
  const json::Value beside = json_of(config);
  return read_long_rope({*json::Object::of(beside, "config.json"),
                         *json::Object::of(inside, "config.json: rope_scaling"), 8, 10'000,
                         max_positions});
}

constexpr const char* kFactors = R"({"short_factor": [1, 2, 4, 8], "long_factor": [1, 3, 9, 27]})";

/// The frequencies of a plain rope are 1, 0.1, 0.01 and 0.001.
TEST(Ropes, long_divides_each_frequency_by_a_factor_of_its_own) {
  const auto rope = long_rope(kFactors, R"({"original_max_position_embeddings": 4096})", 131'072);
  ASSERT_TRUE(rope.ok()) << rope.error().message;
  const double few[] = {1, 0.05, 0.0025, 0.000125};
  const double many[] = {1, 0.1 / 3, 0.01 / 9, 0.001 / 27};
  for (int i = 0; i < 4; ++i) {
    EXPECT_LT(relative(rope->rope.inv_freq()[i], few[i]), 1e-14) << i;
    EXPECT_LT(relative(rope->rope.long_inv_freq()[i], many[i]), 1e-14) << i;
  }
  EXPECT_EQ(rope->rope.long_after(), 4096);
  EXPECT_EQ(rope->positions, 0);  // max_position_embeddings says them
}

/// sqrt(1 + ln(factor) / ln(original)): 32 times 4096 is 1 + 5/12.
TEST(Ropes, long_has_the_attention_factor_of_the_paper) {
  const auto factor_of = [](const char* section, const char* config, int64_t max_positions) {
    json::Value whole = json_of(kFactors);
    whole.update(json_of(section));
    const auto rope = long_rope(json::to_text(whole).c_str(), config, max_positions);
    EXPECT_TRUE(rope.ok()) << section;
    if (!rope.ok()) return 0.0;
    return rope->rope.attention_factor();
  };
  constexpr const char* kBeside = R"({"original_max_position_embeddings": 4096})";
  const double usual = std::sqrt(17.0 / 12);
  EXPECT_LT(relative(factor_of("{}", kBeside, 131'072), usual), 1e-15);
  EXPECT_LT(relative(factor_of("{}", "{}", 131'072), usual), 1e-15);  // 4096 where nothing says it
  EXPECT_LT(
      relative(factor_of(R"({"original_max_position_embeddings": 4096})", "{}", 131'072), usual),
      1e-15);
  EXPECT_LT(relative(factor_of(R"({"factor": 32})", kBeside, 4096), usual), 1e-15);
  EXPECT_EQ(factor_of("{}", kBeside, 4096), 1);
  EXPECT_EQ(factor_of(R"({"attention_factor": 1.25})", kBeside, 131'072), 1.25);
}

TEST(Ropes, long_refuses_factors_that_are_not_one_for_each_frequency) {
  for (const char* const section :
       {R"({"short_factor": [1, 1, 1], "long_factor": [1, 1, 1, 1]})",
        R"({"short_factor": [1, 1, 1, 1], "long_factor": [1, 1, 1, 1, 1]})",
        R"({"short_factor": [1, 1, 1, 1]})", R"({"short_factor": 1, "long_factor": 1})",
        R"({"short_factor": [1, 1, 1, 0], "long_factor": [1, 1, 1, 1]})",
        R"({"short_factor": [1, 1, 1, "1"], "long_factor": [1, 1, 1, 1]})"}) {
    const auto rope = long_rope(section, "{}", 131'072);
    ASSERT_FALSE(rope.ok()) << section;
    EXPECT_EQ(rope.error().code, "config.rope");
    EXPECT_NE(rope.error().message.find("4 numbers above 0"), std::string::npos)
        << rope.error().message;
  }
  EXPECT_EQ(long_rope(R"({"short_factor": [1, 1, 1, 1], "long_factor": [1, 1, 1, 1],
                          "original_max_position_embeddings": 4096})",
                      R"({"original_max_position_embeddings": 8192})", 131'072)
                .error()
                .code,
            "config.rope");
}

TEST(Ropes, attention_factor_follows_from_the_factor_unless_given) {
  EXPECT_NEAR(gpt_oss("{}").attention_factor(), 1.34657, 5e-6);
  EXPECT_EQ(gpt_oss(R"({"attention_factor": 0.5})").attention_factor(), 0.5);
  EXPECT_EQ(gpt_oss(R"({"factor": 1})").attention_factor(), 1);
  EXPECT_NEAR(gpt_oss(R"({"mscale": 0.707, "mscale_all_dim": 1})").attention_factor(),
              (0.0707 * std::log(32.0) + 1) / 1.34657, 5e-6);
}

}  // namespace
}  // namespace subbyte
