#include <gtest/gtest.h>

#include "checkpoints/flavours/ct_config.h"
#include "json/strict_json.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

using Scheme = CompressedScheme;

class CompressedTensorsConfig : public testing::Test {
 protected:
  /// `members` of the section beside quant_method.
  Result<QuantizationConfig> read(const std::string& members) {
    const std::string config =
        R"({"quantization_config": {"quant_method": "compressed-tensors", )" + members + "}}";
    SUBBYTE_TRY(value_, json::parse(config, "config.json"));
    SUBBYTE_TRY(const json::Object object, json::Object::of(value_, "config.json"));
    return read_quantization_config(object, dir_.path());
  }
  std::string code(const std::string& members) {
    const auto config = read(members);
    return config.ok() ? "" : std::string(config.error().code);
  }
  static std::string with_group(const std::string& format, const std::string& weights) {
    return R"("format": ")" + format + R"(", "config_groups": {"group_0": {"targets": ["Linear"],
              "weights": {)" +
           weights + "}}}";
  }
  std::string code(const std::string& format, const std::string& weights) {
    return code(with_group(format, weights));
  }
  std::vector<Scheme> schemes(const std::string& members) {
    const auto config = read(members);
    EXPECT_TRUE(config.ok()) << config.error().message;
    return config.ok() ? config->says<CompressedState>()->schemes : std::vector<Scheme>();
  }

  TempDir dir_;
  json::Value value_;
};

TEST_F(CompressedTensorsConfig, reads_what_llm_compressor_writes) {
  const auto found = schemes(R"("format": "pack-quantized", "quantization_status": "compressed",
      "config_groups": {"group_0": {"targets": ["Linear"],
        "weights": {"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group",
                    "group_size": 128, "dynamic": false, "actorder": null, "observer": "minmax",
                    "observer_kwargs": {}, "block_structure": null},
        "input_activations": null, "output_activations": null}},
      "ignore": ["lm_head"], "kv_cache_scheme": null, "sparsity_config": {}, "version": "0.12")");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0], (Scheme{Scheme::Format::kPackQuantized, 4, true, 128, false}));
  EXPECT_EQ(to_string(found[0]), "pack-quantized 4 bits symmetric group 128");
}

TEST_F(CompressedTensorsConfig, tells_which_group_names_a_module) {
  const auto config = read(R"("format": "pack-quantized", "config_groups": {
      "group_0": {"targets": ["Linear", "re:.*up_proj", "model.layers.0.mlp.down_proj"],
                  "weights": {"num_bits": 7, "group_size": 32}},
      "group_1": {"targets": ["model.language_model.layers.1.mlp.down_proj", 3],
                  "weights": {"num_bits": 8, "group_size": 32}},
      "W4A16": ["model.layers.2.mlp.down_proj"]})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto bits_of = [&](const std::string& module) {
    const Scheme* scheme = config->says<CompressedState>()->named_scheme(module);
    return scheme == nullptr ? 0 : scheme->bits;
  };
  EXPECT_EQ(bits_of("model.layers.0.mlp.down_proj"), 7);
  EXPECT_EQ(bits_of("language_model.model.layers.1.mlp.down_proj"), 8);
  EXPECT_EQ(bits_of("model.layers.2.mlp.down_proj"), 4);
  EXPECT_EQ(bits_of("model.layers.0.mlp.up_proj"), 0);  // which a pattern names, that is not read
}

TEST_F(CompressedTensorsConfig, reads_strategies_and_orders) {
  const std::string start = R"("num_bits": 8, "symmetric": false, )";
  const auto one = [&](const std::string& rest) {
    return to_string(schemes(with_group("pack-quantized", start + rest)).at(0));
  };
  EXPECT_EQ(one(R"("strategy": "channel")"), "pack-quantized 8 bits asymmetric channel");
  EXPECT_EQ(one(R"("group_size": -1)"), "pack-quantized 8 bits asymmetric channel");
  EXPECT_EQ(one(R"("group_size": 32)"), "pack-quantized 8 bits asymmetric group 32");
  for (const char* order : {"\"group\"", "\"dynamic\"", "true"}) {
    EXPECT_EQ(one(R"("group_size": 32, "actorder": )" + std::string(order)),
              "pack-quantized 8 bits asymmetric group 32 actorder group");
  }
  for (const char* order : {"\"weight\"", "\"static\"", "false", "null"}) {
    EXPECT_EQ(one(R"("group_size": 32, "actorder": )" + std::string(order)),
              "pack-quantized 8 bits asymmetric group 32");
  }
}

TEST_F(CompressedTensorsConfig, reads_groups_with_formats_of_their_own_and_presets) {
  const auto found = schemes(R"("format": "mixed-precision", "config_groups": {
      "a": {"format": "nvfp4-pack-quantized", "weights": {"num_bits": 4, "type": "float",
            "strategy": "tensor_group", "group_size": 16},
            "input_activations": {"num_bits": 4, "type": "float", "dynamic": "local"}},
      "b": {"format": "mxfp4-pack-quantized", "weights": {"num_bits": 4, "type": "float",
            "strategy": "group", "group_size": 32}},
      "c": {"weights": null, "output_activations": {"num_bits": 8}},
      "W4A16": ["Linear"]})");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(to_string(found[0]), "nvfp4-pack-quantized");
  EXPECT_EQ(to_string(found[1]), "mxfp4-pack-quantized");
  EXPECT_EQ(to_string(found[2]), "pack-quantized 4 bits symmetric group 128");
}

TEST_F(CompressedTensorsConfig, reads_naive_integers) {
  const auto found = schemes(
      with_group("naive-quantized", R"("num_bits": 5, "strategy": "group", "group_size": 32)"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(to_string(found[0]), "naive-quantized 5 bits symmetric group 32");
  const auto tensor =
      schemes(with_group("naive-quantized", R"("num_bits": 8, "strategy": "tensor")"));
  ASSERT_EQ(tensor.size(), 1u);
  EXPECT_EQ(to_string(tensor[0]), "naive-quantized 8 bits symmetric tensor");
  const auto packed = schemes(
      with_group("pack-quantized", R"("num_bits": 4, "strategy": "tensor", "symmetric": false)"));
  ASSERT_EQ(packed.size(), 1u);
  EXPECT_EQ(to_string(packed[0]), "pack-quantized 4 bits asymmetric tensor");
}

/// Powers of two as scales are told by the type of their tensor.
TEST_F(CompressedTensorsConfig, reads_mxfp8) {
  const auto found =
      schemes(with_group("mxfp8-quantized", R"("num_bits": 8, "type": "float", "strategy": "group",
                                               "group_size": 32, "scale_dtype": "torch.uint8")"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(to_string(found[0]), "float-quantized group 32");
  const auto presets = schemes(R"("config_groups": {"MXFP8A16": ["a"], "mxfp8": ["b"]})");
  ASSERT_EQ(presets.size(), 2u);
  EXPECT_EQ(presets[0], found[0]);
  EXPECT_EQ(presets[1], found[0]);
}

TEST_F(CompressedTensorsConfig, reads_int8_with_activations_as_naive_integers) {
  const auto found = schemes(R"("format": "int-quantized", "config_groups": {
      "a": {"weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
            "input_activations": {"num_bits": 8, "type": "int", "strategy": "token",
                                  "dynamic": true}},
      "W8A8": ["Linear"]})");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(to_string(found[0]), "naive-quantized 8 bits symmetric channel");
  EXPECT_EQ(found[0], found[1]);
}

TEST_F(CompressedTensorsConfig, reads_fp8) {
  const std::string start = R"("num_bits": 8, "type": "float", "strategy": )";
  const auto one = [&](const std::string& rest, const std::string& format = "float-quantized") {
    return to_string(schemes(with_group(format, start + rest)).at(0));
  };
  EXPECT_EQ(one(R"("tensor")"), "float-quantized tensor");
  EXPECT_EQ(one(R"("channel", "group_size": null)"), "float-quantized channel");
  EXPECT_EQ(one(R"("channel")", "naive-quantized"), "float-quantized channel");
  EXPECT_EQ(one(R"("group", "group_size": 32)"), "float-quantized group 32");
  EXPECT_EQ(one(R"("block", "block_structure": [128, 64])"), "float-quantized block 128 x 64");
  const auto presets = schemes(R"("config_groups": {"FP8": ["a"], "FP8_DYNAMIC": ["b"],
                                                    "FP8_BLOCK": ["c"]})");
  ASSERT_EQ(presets.size(), 3u);
  EXPECT_EQ(to_string(presets[0]), "float-quantized tensor");
  EXPECT_EQ(to_string(presets[1]), "float-quantized channel");
  EXPECT_EQ(to_string(presets[2]), "float-quantized block 128 x 128");
  const auto refused = [&](const std::string& rest) { return code("float-quantized", rest); };
  EXPECT_EQ(refused(start + R"("token")"), "quantization.strategy");
  EXPECT_EQ(refused(start + R"("group", "group_size": 12)"), "quantization.group_size");
  for (const char* size : {"null", "128", "[128]", "[0, 128]", "[128, 12]", "[128, 1.5]"}) {
    EXPECT_EQ(refused(start + R"("block", "block_structure": )" + size), "quantization.group_size")
        << size;
  }
  EXPECT_EQ(refused(R"("num_bits": 4, "type": "float", "strategy": "tensor")"),
            "quantization.bits");
  EXPECT_EQ(refused(start + R"("tensor", "symmetric": false)"), "quantization.format");
  EXPECT_EQ(refused(start + R"("tensor", "dynamic": true)"), "quantization.format");
}

TEST_F(CompressedTensorsConfig, refuses_what_it_cannot_read) {
  const std::string good = R"("num_bits": 4, "strategy": "group", "group_size": 128)";
  EXPECT_EQ(code("pack-quantized", good), "");
  for (const char* format :
       {"float-quantized", "marlin-24", "mxfp8-quantized", "mixed-precision", ""}) {
    EXPECT_EQ(code(format, good), "quantization.format") << format;
  }
  for (const char* bits : {"0", "1", "9", "-4", "4294967300"}) {
    EXPECT_EQ(code("pack-quantized", R"("group_size": 128, "num_bits": )" + std::string(bits)),
              "quantization.bits");
  }
  for (const char* size : {"0", "4", "12", "-128", "16777224"}) {
    EXPECT_EQ(code("pack-quantized",
                   R"("num_bits": 4, "strategy": "group", "group_size": )" + std::string(size)),
              "quantization.group_size");
  }
  for (const char* strategy : {"block", "token", "tensor_group", "attn_head"}) {
    EXPECT_EQ(code("pack-quantized", R"("num_bits": 4, "group_size": 128, "strategy": ")" +
                                         std::string(strategy) + "\""),
              "quantization.strategy");
  }
  EXPECT_EQ(code("pack-quantized", R"("num_bits": 4)"), "quantization.strategy");
  EXPECT_EQ(code("pack-quantized", good + R"(, "type": "float")"), "quantization.format");
  EXPECT_EQ(code("pack-quantized", good + R"(, "dynamic": true)"), "quantization.format");
  EXPECT_EQ(code("pack-quantized", good + R"(, "actorder": "up")"),
            "quantization.activation_order");
  EXPECT_EQ(code("pack-quantized", good + R"(, "actorder": 1)"), "json.type");
}

TEST_F(CompressedTensorsConfig, refuses_floats_of_other_shapes) {
  const std::string floats = R"("type": "float", "strategy": "tensor_group", )";
  EXPECT_EQ(code("nvfp4-pack-quantized", floats + R"("num_bits": 4, "group_size": 16)"), "");
  EXPECT_EQ(code("nvfp4-pack-quantized", floats + R"("num_bits": 4, "group_size": 32)"),
            "quantization.group_size");
  EXPECT_EQ(code("mxfp4-pack-quantized", floats + R"("num_bits": 4, "group_size": 16)"),
            "quantization.group_size");
  EXPECT_EQ(code("nvfp4-pack-quantized", floats + R"("num_bits": 8, "group_size": 16)"),
            "quantization.bits");
  EXPECT_EQ(code("nvfp4-pack-quantized", R"("num_bits": 4, "group_size": 16)"),
            "quantization.format");
  EXPECT_EQ(code("nvfp4-pack-quantized",
                 floats + R"("num_bits": 4, "group_size": 16, "symmetric": false)"),
            "quantization.format");
  EXPECT_EQ(
      code("nvfp4-pack-quantized", R"("type": "float", "num_bits": 4, "strategy": "channel")"),
      "quantization.strategy");
}

TEST_F(CompressedTensorsConfig, refuses_rotated_and_sparse_weights) {
  const std::string good =
      with_group("pack-quantized", R"("num_bits": 4, "strategy": "group", "group_size": 128)");
  EXPECT_EQ(code(good + R"(, "transform_config": {}, "sparsity_config": {"format": "dense"})"), "");
  EXPECT_EQ(code(good + R"(, "transform_config": {"config_groups": {"R1": {}}})"),
            "quantization.transform");
  EXPECT_EQ(code(good + R"(, "sparsity_config": {"format": "sparse-24-bitmask"})"),
            "quantization.sparsity");
}

TEST_F(CompressedTensorsConfig, refuses_groups_that_are_none) {
  EXPECT_EQ(code(R"("format": "pack-quantized")"), "json.missing");
  EXPECT_EQ(code(R"("format": "pack-quantized", "config_groups": {})"), "json.missing");
  EXPECT_EQ(code(R"("format": "pack-quantized", "config_groups": [])"), "json.type");
  EXPECT_EQ(code(R"("format": "pack-quantized", "config_groups": {"a": 4})"), "json.type");
  EXPECT_EQ(code(R"("format": "pack-quantized", "config_groups": {"W3A16": ["Linear"]})"),
            "quantization.format");
  EXPECT_EQ(code(R"("config_groups": {"a": {"weights": {"num_bits": 4, "group_size": 32}}})"),
            "quantization.format");
}

}  // namespace
}  // namespace subbyte
