#include <gtest/gtest.h>

#include "checkpoints/flavours/modelopt.h"
#include "json/strict_json.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

const ModeloptState& state_of(const Result<QuantizationConfig>& config) {
  return *config->says<ModeloptState>();
}

class ModeloptConfig : public testing::Test {
 protected:
  Result<QuantizationConfig> read(const std::string& config) {
    SUBBYTE_TRY(value_, json::parse(config, "config.json"));
    SUBBYTE_TRY(const json::Object object, json::Object::of(value_, "config.json"));
    return read_quantization_config(object, dir_.path());
  }
  Result<QuantizationConfig> algorithm(const std::string& name, const std::string& rest = "") {
    return read(R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": ")" + name +
                "\"" + rest + "}}");
  }
  Result<QuantizationConfig> mixed(const std::string& layers) {
    return algorithm("MIXED_PRECISION", R"(, "quantized_layers": {)" + layers + "}");
  }

  TempDir dir_;
  json::Value value_;
};

TEST_F(ModeloptConfig, is_read_from_both_files) {
  dir_.write("hf_quant_config.json",
             R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4",
                 "group_size": 16, "kv_cache_quant_algo": "FP8",
                 "exclude_modules": ["lm_head"]}})");
  const auto side = read("{}");
  ASSERT_TRUE(side.ok()) << side.error().message;
  EXPECT_EQ(side->method_name(), "modelopt");
  EXPECT_EQ(side->kv_cache.form, KvCacheScheme::Form::kFp8);
  EXPECT_TRUE(algorithm("W4A16_NVFP4").ok());
  EXPECT_TRUE(read(R"({"quantization_config": {"quant_method": "modelopt",
                       "quantization": {"quant_algo": "NVFP4"}}})")
                  .ok());
  EXPECT_EQ(read(R"({"quantization_config": {"quant_method": "modelopt"}})").error().code,
            "json.missing");
}

/// ModelOpt 0.47 writes some of its own names in small letters, and those of TensorRT-LLM in
/// capitals.
TEST_F(ModeloptConfig, knows_algorithms_whatever_their_case) {
  struct Case {
    std::string_view name;
    ModeloptWeights weights;
  };
  for (const auto& [name, weights] : {Case{"NVFP4", ModeloptWeights::kNvfp4},
                                      {"nvfp4", ModeloptWeights::kNvfp4},
                                      {"w4a16_nvfp4", ModeloptWeights::kNvfp4},
                                      {"W4A8_NVFP4_FP8", ModeloptWeights::kNvfp4},
                                      {"NVFP4_AWQ", ModeloptWeights::kNvfp4},
                                      {"mxfp4", ModeloptWeights::kMxfp4},
                                      {"MXFP4", ModeloptWeights::kMxfp4},
                                      {"W4A8_MXFP4_FP8", ModeloptWeights::kMxfp4},
                                      {"FP8", ModeloptWeights::kFp8},
                                      {"fp8", ModeloptWeights::kFp8},
                                      {"FP8_PER_CHANNEL_PER_TOKEN", ModeloptWeights::kFp8},
                                      {"FP8_PB_WO", ModeloptWeights::kFp8},
                                      {"fp8_pb_wo", ModeloptWeights::kFp8},
                                      {"fp8_pb_real", ModeloptWeights::kFp8},
                                      {"MXFP8", ModeloptWeights::kMxfp8},
                                      {"W8A16", ModeloptWeights::kInt8},
                                      {"W8A8_SQ_PER_CHANNEL", ModeloptWeights::kInt8},
                                      {"W4A16_AWQ", ModeloptWeights::kInt4},
                                      {"int4_awq", ModeloptWeights::kInt4}}) {
    const auto config = algorithm(std::string(name));
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(state_of(config).weights, std::vector{weights}) << name;
    EXPECT_TRUE(state_of(config).group_sizes.empty()) << name;
    const bool in_blocks = name.find("PB") != name.npos || name.find("pb") != name.npos;
    EXPECT_EQ(state_of(config).fp8_in_blocks, in_blocks) << name;
  }
  for (const char* name : {"W4A8_AWQ", "NVFP4_SVD", "MXFP6", ""}) {
    EXPECT_EQ(algorithm(name).error().code, "quantization.algorithm");
  }
}

TEST_F(ModeloptConfig, keeps_the_sizes_of_groups_that_are_said) {
  const auto sizes = [&](const std::string& name, int64_t size) {
    const auto config = algorithm(name, R"(, "group_size": )" + std::to_string(size));
    return config.ok() ? state_of(config).group_sizes : std::vector<int64_t>{-1};
  };
  using Sizes = std::vector<int64_t>;
  for (const char* name : {"NVFP4", "W4A16_NVFP4", "W4A8_NVFP4_FP8"}) {
    EXPECT_EQ(sizes(name, 16), Sizes{16});
    EXPECT_EQ(sizes(name, 32), Sizes{32});
    EXPECT_EQ(sizes(name, 64), Sizes{-1});
  }
  for (const char* name : {"mxfp4", "W4A8_MXFP4_FP8", "MXFP8"}) {
    EXPECT_EQ(sizes(name, 0), Sizes{});
    EXPECT_EQ(sizes(name, 32), Sizes{32});
    EXPECT_EQ(sizes(name, 16), Sizes{-1});
  }
  EXPECT_EQ(sizes("W4A16_AWQ", 128), Sizes{128});
  EXPECT_EQ(sizes("W4A16_AWQ", 12), Sizes{-1});
  EXPECT_EQ(algorithm("NVFP4", R"(, "group_size": 64)").error().code, "quantization.group_size");
}

TEST_F(ModeloptConfig, several_algorithms_may_stand_in_one) {
  const std::string fp8 = R"("model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"})";
  const std::string fp4 = R"(, "a": {"quant_algo": "NVFP4", "group_size": 16})";
  const auto both = mixed(fp8 + fp4);
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_EQ(state_of(both).weights, (std::vector{ModeloptWeights::kNvfp4, ModeloptWeights::kFp8}));
  EXPECT_EQ(state_of(both).group_sizes, std::vector<int64_t>{16});
  EXPECT_EQ(state_of(mixed(fp8)).weights, std::vector{ModeloptWeights::kFp8});
  const auto three = mixed(fp8 + fp4 + R"(, "b": {"quant_algo": "mxfp4", "group_size": 32})");
  ASSERT_TRUE(three.ok()) << three.error().message;
  EXPECT_EQ(state_of(three).weights.size(), 3u);
  EXPECT_EQ(state_of(three).group_sizes, (std::vector<int64_t>{16, 32}));
  // An error of who reads the module.
  EXPECT_EQ(mixed(fp8 + R"(, "a": {"quant_algo": "W4A8_AWQ"})")->check_named("a").error().code,
            "quantization.algorithm");
  EXPECT_EQ(algorithm("MIXED_PRECISION").error().code, "json.missing");
}

}  // namespace
}  // namespace subbyte
