// What families make of keys that are absent, and of values that they do not take: by the plan and
// the tensors that follow from a config.json. The values are those of the classes of transformers
// 5.24.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "models/model.h"
#include "models/model_config.h"
#include "models/tensor_spec.h"
#include "support/model_configs.h"
#include "support/refused_values.h"

namespace subbyte {
namespace {

using testing::changed;
using testing::code;
using testing::expect_refused;
using testing::RefusedValue;

constexpr int64_t kHidden = 512;
constexpr int64_t kHeads = 8;

/// What no family has a default for.
std::string config_of(const char* family) {
  return std::string(R"({"model_type": ")") + family +
         R"(", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
             "num_attention_heads": 8, "vocab_size": 50304})";
}

struct Absent {
  const char* family;
  int64_t kv_heads = kHeads;
  int64_t head_dim = kHidden / kHeads;
  int64_t max_positions = 2048;
  float eps = 1e-6f;
  bool tied = false;
  int32_t eos = 2;
  std::vector<int64_t> windows = {0, 0, 0, 0};
  float scale = 0.125f;  // 1 / sqrt(head_dim)
  float score_cap = 0;
  float embedding_factor = 1;
  float logit_cap = 0;
  Gate gate = Gate::kSilu;
  double theta = 10'000;
  double sliding_theta = 10'000;  // of layers that slide
};

class FamilyConfigs : public ::testing::TestWithParam<Absent> {};

TEST_P(FamilyConfigs, absent_keys_are_what_the_class_of_the_family_says) {
  const Absent& absent = GetParam();
  const auto config = changed(config_of(absent.family).c_str(), "{}");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->num_kv_heads, absent.kv_heads);
  EXPECT_EQ(config->head_dim, absent.head_dim);
  EXPECT_EQ(config->max_positions, absent.max_positions);
  EXPECT_EQ(config->rms_norm_eps, absent.eps);
  EXPECT_EQ(config->rope, Rope(absent.head_dim, absent.theta));
  EXPECT_EQ(config->tie_word_embeddings, absent.tied);
  EXPECT_EQ(config->eos_tokens, std::vector<int32_t>{absent.eos});
  for (const TensorSpec& tensor : tensors_of(*config)) EXPECT_FALSE(tensor.has_bias) << tensor.name;
  const auto plan = plan_of(*config);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  std::vector<int64_t> windows;
  for (const AttendOp* const attend : ops_of<AttendOp>(*plan)) {
    windows.push_back(attend->shape.window);
    EXPECT_EQ(attend->shape.scale, absent.scale);
    EXPECT_EQ(attend->shape.cap, absent.score_cap);
  }
  EXPECT_EQ(windows, absent.windows);
  // In the order of the layers, each once.
  std::vector<double> expected;
  for (const int64_t window : windows) {
    const double theta = window > 0 ? absent.sliding_theta : absent.theta;
    if (std::ranges::find(expected, theta) == expected.end()) expected.push_back(theta);
  }
  const auto angles = ops_of<AnglesOp>(*plan);
  ASSERT_EQ(angles.size(), expected.size());
  for (std::size_t i = 0; i < angles.size(); ++i) {
    EXPECT_EQ(*angles[i]->rope, Rope(absent.head_dim, expected[i]));
  }
  EXPECT_EQ(ops_of<EmbedOp>(*plan).front()->factor, absent.embedding_factor);
  for (const AddNormOp* const add : ops_of<AddNormOp>(*plan)) EXPECT_EQ(add->factor, 1);
  for (const GatedLinearOp* const gated : ops_of<GatedLinearOp>(*plan)) {
    EXPECT_EQ(gated->gate, absent.gate);
  }
  EXPECT_EQ(ops_of<LogitsOp>(*plan).front()->factor, 1);
  EXPECT_EQ(ops_of<LogitsOp>(*plan).front()->cap, absent.logit_cap);
}

INSTANTIATE_TEST_SUITE_P(
    Families, FamilyConfigs,
    ::testing::Values(
        Absent{.family = "mistral", .max_positions = 131'072, .windows = {4096, 4096, 4096, 4096}},
        Absent{.family = "phi3", .max_positions = 4096, .eps = 1e-5f, .eos = 32'000},
        Absent{.family = "gemma2",
               .kv_heads = 4,
               .head_dim = 256,
               .max_positions = 8192,
               .tied = true,
               .eos = 1,
               .windows = {4096, 0, 4096, 0},
               .scale = 0.0625f,
               .score_cap = 50,
               .embedding_factor = std::sqrt(512.0f),
               .logit_cap = 30,
               .gate = Gate::kGelu},
        Absent{.family = "granite", .scale = 1},
        Absent{.family = "gemma3_text",
               .kv_heads = 4,
               .head_dim = 256,
               .max_positions = 131'072,
               .tied = true,
               .eos = 1,
               .windows = {4096, 4096, 4096, 4096},
               .scale = 0.0625f,
               .embedding_factor = std::sqrt(512.0f),
               .gate = Gate::kGelu,
               .theta = 1'000'000},
        Absent{.family = "olmo2", .eps = 1e-5f, .eos = 50'279},
        Absent{.family = "olmo3",
               .eps = 1e-5f,
               .eos = 50'279,
               .windows = {4096, 4096, 4096, 0},
               .theta = 500'000,
               .sliding_theta = 500'000}),
    [](const auto& one) { return std::string(one.param.family); });

TEST(FamilyValues, are_refused_by_the_name_of_the_key) {
  constexpr RefusedValue kAll[] = {
      {"mistral", "sliding_window", "0", "json.range"},
      {"mistral", "sliding_window", "\"4096\"", "json.type"},
      {"mistral", "layer_types", R"(["full_attention", "full_attention", "full_attention",
                                     "full_attention"])",
       "config.layer_types"},
      {"mistral", "hidden_act", "\"gelu\"", "config.hidden_act"},
      {"mistral", "num_key_value_heads", "3", "config.heads"},
      {"phi3", "partial_rotary_factor", "1.5", "json.range"},
      {"phi3", "partial_rotary_factor", "0.01", "config.rope"},
      {"phi3", "sliding_window", "-1", "json.range"},
      // Asked for where a section wants it.
      {"phi3", "original_max_position_embeddings",
       R"(0, "rope_scaling": {"type": "longrope", "short_factor": [], "long_factor": []})",
       "json.range"},
      {"phi3", "hidden_act", "\"relu\"", "config.hidden_act"},
      {"gemma2", "attn_logit_softcapping", "0", "json.range"},
      {"gemma2", "attn_logit_softcapping", "\"50\"", "json.type"},
      {"gemma2", "final_logit_softcapping", "-30", "json.range"},
      {"gemma2", "query_pre_attn_scalar", "0", "json.range"},
      {"gemma2", "hidden_activation", "\"silu\"", "config.hidden_act"},
      {"gemma2", "use_bidirectional_attention", "true", "config.not_computed"},
      {"gemma2", "layer_types", R"(["sliding_attention"])", "config.layer_types"},
      {"gemma3_text", "sliding_window_pattern", "0", "json.range"},
      {"gemma3_text", "rope_local_base_freq", "0", "json.range"},
      {"gemma3_text", "num_attention_heads", "0", "json.range"},
      {"olmo3", "layer_types", R"(["sliding_attention"])", "config.layer_types"},
      {"granite", "embedding_multiplier", "0", "json.range"},
      {"granite", "residual_multiplier", "\"0.22\"", "json.type"},
      {"granite", "attention_multiplier", "-1", "json.range"},
      {"granite", "logits_scaling", "0", "json.range"},
      {"granite", "mlp_bias", "1", "json.type"},
      {"olmo2", "attention_bias", "\"no\"", "json.type"},
      {"olmo2", "rms_norm_eps", "0", "json.range"},
      {"olmo2", "hidden_act", "\"gelu\"", "config.hidden_act"},
      {"olmo2", "partial_rotary_factor", "0.5", "config.not_computed"},
  };
  expect_refused(kAll, config_of);
}

TEST(FamilyValues, null_takes_caps_and_windows_away) {
  json::Value whole = json_of(config_of("gemma2").c_str());
  for (const char* const key :
       {"attn_logit_softcapping", "final_logit_softcapping", "sliding_window"}) {
    whole[key] = nullptr;
  }
  const auto config = testing::parse_text(whole.text());
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto plan = plan_of(*config);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(ops_of<LogitsOp>(*plan).front()->cap, 0);
  for (const AttendOp* const attend : ops_of<AttendOp>(*plan)) {
    EXPECT_EQ(attend->shape.cap, 0);
    EXPECT_EQ(attend->shape.window, 0);
  }
}

/// Older configs of Qwen2-VL and Qwen2.5-VL have no text_config.
TEST(WrappedFamilies, may_have_all_keys_in_one_object) {
  for (const std::string wrapper : {"qwen2_vl", "qwen2_5_vl"}) {
    json::Value flat = json_of(config_of(wrapper.c_str()).c_str());
    flat["vision_config"] = json_of(R"({"hidden_size": 8})");
    flat["rope_scaling"] = json_of(R"({"type": "mrope", "mrope_section": [16, 8, 8]})");
    json::Value text = json_of(config_of((wrapper + "_text").c_str()).c_str());
    text["rope_parameters"] = json_of(R"({"rope_type": "default", "rope_theta": 1000000})");
    json::Value apart = {{"model_type", wrapper}, {"text_config", text}};
    const auto of_flat = testing::parse_text(flat.text());
    const auto of_apart = testing::parse_text(apart.text());
    ASSERT_TRUE(of_flat.ok()) << of_flat.error().message;
    ASSERT_TRUE(of_apart.ok()) << of_apart.error().message;
    EXPECT_TRUE(*of_flat == *of_apart);
    EXPECT_EQ(of_flat->rope, Rope(kHidden / kHeads, 1'000'000));
    EXPECT_EQ(of_flat->model_type, wrapper + "_text");
    // As transformers 5 saves it again.
    flat.erase("rope_scaling");
    flat["rope_parameters"] = json_of(R"({"type": "mrope", "mrope_section": [16, 8, 8],
                                          "rope_theta": 1000000, "rope_type": "default"})");
    const auto saved = testing::parse_text(flat.text());
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_TRUE(*saved == *of_flat);
  }
  EXPECT_EQ(code(config_of("qwen3_vl").c_str(), "{}"), "json.missing");
}

/// Of other families that would be left out.
TEST(LayerTypes, have_no_ropes_of_their_own_elsewhere) {
  for (const char* const family : {"gemma2", "olmo2", "mistral", "granite"}) {
    EXPECT_EQ(code(config_of(family).c_str(), R"({"rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 2000},
                "full_attention": {"rope_type": "default", "rope_theta": 50000}}})"),
              "json.missing")
        << family;
  }
}

/// Older configs say the ropes of Gemma 3 beside each other, newer ones by types of layers.
TEST(LayerTypes, have_ropes_of_their_own) {
  json::Value older = json_of(config_of("gemma3_text").c_str());
  older["num_hidden_layers"] = 6;
  older["rope_theta"] = 50'000;
  older["rope_local_base_freq"] = 2'000;
  older["rope_scaling"] = json_of(R"({"rope_type": "linear", "factor": 8})");
  json::Value newer = json_of(config_of("gemma3_text").c_str());
  newer["num_hidden_layers"] = 6;
  newer["rope_parameters"] = json_of(
      R"({"sliding_attention": {"rope_type": "default", "rope_theta": 2000},
          "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 50000}})");
  const auto first = testing::parse_text(older.text());
  const auto second = testing::parse_text(newer.text());
  ASSERT_TRUE(first.ok()) << first.error().message;
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_TRUE(*first == *second);
  const auto plan = plan_of(*first);
  ASSERT_TRUE(plan.ok());
  std::vector<double> slowest;
  for (const AnglesOp* const angles : ops_of<AnglesOp>(*plan)) {
    slowest.push_back(angles->rope->inv_freq().front());
  }
  EXPECT_EQ(slowest,
            (std::vector<double>{1, 0.125}));  // of the five layers that slide, of the last
}

}  // namespace
}  // namespace subbyte
