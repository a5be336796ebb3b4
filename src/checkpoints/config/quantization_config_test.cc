#include "checkpoints/config/quantization_config.h"

#include <gtest/gtest.h>

#include "checkpoints/flavours/ct_config.h"
#include "checkpoints/flavours/integer_config.h"
#include "json/strict_json.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

const AwqState& awq_of(const Result<QuantizationConfig>& config) {
  return *config->says<AwqState>();
}

const GptqState& gptq_of(const Result<QuantizationConfig>& config) {
  return *config->says<GptqState>();
}

const std::vector<CompressedScheme>& schemes_of(const Result<QuantizationConfig>& config) {
  return config->says<CompressedState>()->schemes;
}

class QuantizationConfigTest : public testing::Test {
 protected:
  Result<QuantizationConfig> read(const std::string& config) {
    SUBBYTE_TRY(value_, json::parse(config, "config.json"));
    SUBBYTE_TRY(const json::Object object, json::Object::of(value_, "config.json"));
    return read_quantization_config(object, dir_.path());
  }
  /// The quantization_config is `section`.
  Result<QuantizationConfig> read_section(const std::string& section) {
    return read(R"({"quantization_config": )" + section + "}");
  }
  std::string code(const std::string& section) {
    const auto config = read_section(section);
    return config.ok() ? "" : std::string(config.error().code);
  }
  std::string awq_code(const std::string& members) {
    return code(R"({"quant_method": "awq", )" + members + "}");
  }
  std::string gptq_code(const std::string& members) {
    return code(R"({"quant_method": "gptq", )" + members + "}");
  }

  TempDir dir_;
  json::Value value_;
};

TEST_F(QuantizationConfigTest, reads_awq) {
  const auto config = read_section(
      R"({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": false,
          "version": "gemm", "modules_to_not_convert": null, "backend": "autoawq"})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->method_name(), "awq");
  EXPECT_EQ(awq_of(config).sizes.bits, std::vector<int64_t>{4});
  EXPECT_EQ(awq_of(config).sizes.group_sizes, std::vector<int64_t>{64});
  EXPECT_FALSE(awq_of(config).zero_point);
  EXPECT_EQ(config->where, "config.json: quantization_config");
}

TEST_F(QuantizationConfigTest, reads_awq_with_its_older_keys) {
  const auto config =
      read_section(R"({"quant_method": "awq", "w_bit": 4, "q_group_size": -1, "version": "GEMM"})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(awq_of(config).sizes.group_sizes, std::vector<int64_t>{-1});
  EXPECT_TRUE(awq_of(config).zero_point);
}

TEST_F(QuantizationConfigTest, reads_gptq_of_both_versions) {
  const auto v1 = read_section(
      R"({"quant_method": "gptq", "bits": 3, "group_size": -1, "sym": true, "desc_act": true})");
  ASSERT_TRUE(v1.ok()) << v1.error().message;
  EXPECT_EQ(v1->method_name(), "gptq");
  EXPECT_EQ(gptq_of(v1).sizes.bits, std::vector<int64_t>{3});
  EXPECT_TRUE(gptq_of(v1).sym);
  EXPECT_TRUE(gptq_of(v1).desc_act);
  EXPECT_TRUE(gptq_of(v1).stores_zero_minus_one);
  for (const char* key : {"checkpoint_format", "format"}) {
    const auto v2 = read_section(R"({"quant_method": "gptq", "bits": 4, "group_size": 128, ")" +
                                 std::string(key) + R"(": "gptq_v2"})");
    ASSERT_TRUE(v2.ok()) << v2.error().message;
    EXPECT_FALSE(gptq_of(v2).stores_zero_minus_one);
    EXPECT_FALSE(gptq_of(v2).sym);
  }
}

TEST_F(QuantizationConfigTest, knows_the_zero_points_of_gptqmodel) {
  const auto borrows = [&](const std::string& rest) {
    const auto config =
        read_section(R"({"quant_method": "gptq", "bits": 2, "group_size": 32)" + rest + "}");
    return config.ok() && gptq_of(config).zeros_borrow;
  };
  EXPECT_TRUE(borrows(R"(, "meta": {"quantizer": ["gptqmodel:7.7.0"]})"));
  EXPECT_TRUE(borrows(R"(, "meta": {"quantizer": ["optimum:1.24", "gptqmodel:2.0"]})"));
  EXPECT_TRUE(borrows(R"(, "meta": {"quantizer": "gptqmodel:0.9.1"})"));
  EXPECT_FALSE(borrows(""));
  EXPECT_FALSE(borrows(R"(, "meta": {"quantizer": ["other"]})"));
  EXPECT_FALSE(borrows(R"(, "meta": ["gptqmodel"])"));
  EXPECT_FALSE(
      borrows(R"(, "checkpoint_format": "gptq_v2", "meta": {"quantizer": ["gptqmodel:7.7.0"]})"));
}

TEST_F(QuantizationConfigTest, collects_the_overrides_of_gptq) {
  const auto config = read_section(
      R"({"quant_method": "gptq", "bits": 4, "group_size": 128,
          "dynamic": {"+:.*down.*": {"bits": 8, "group_size": 32}, "-:.*gate.*": {}}})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(gptq_of(config).sizes.bits, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(gptq_of(config).sizes.group_sizes, (std::vector<int64_t>{128, 32}));
  EXPECT_EQ(gptq_code(R"("bits": 4, "group_size": 128, "dynamic": {"+:a": {"bits": 5}})"),
            "quantization.bits");
  EXPECT_EQ(gptq_code(R"("bits": 4, "group_size": 128, "dynamic": {"+:a": 8})"), "json.type");
  EXPECT_EQ(gptq_code(R"("bits": 4, "group_size": 128, "dynamic": [])"), "json.type");
}

TEST_F(QuantizationConfigTest, asks_nothing_of_what_stands_beside_modules_that_are_kept_out) {
  EXPECT_EQ(gptq_code(R"("bits": 4, "group_size": 128,
                         "dynamic": {"-:.*attn.*": null, "-:lm_head": false, "+:.*up": null})"),
            "");
  EXPECT_EQ(gptq_code(R"("bits": 4, "group_size": 128, "dynamic": {"+:.*up": false})"),
            "json.type");
  EXPECT_EQ(code(R"({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": true,
                     "packing_format": "auto_round:auto_gptq",
                     "extra_config": {"model.visual": null}})"),
            "");
}

TEST_F(QuantizationConfigTest, is_that_of_the_text_model_where_a_wrapper_has_none) {
  const std::string awq = R"({"quant_method": "awq", "bits": 4, "group_size": 64})";
  const std::string text = R"("text_config": {"quantization_config": )" + awq + "}}";
  const auto inner = read("{" + text);
  const auto both = read(R"({"quantization_config": {"quant_method": "mxfp4"}, )" + text);
  ASSERT_TRUE(inner.ok() && both.ok());
  EXPECT_EQ(inner->method_name(), "awq");
  EXPECT_EQ(inner->where, "config.json: text_config.quantization_config");
  EXPECT_EQ(both->method_name(), "mxfp4");
}

TEST_F(QuantizationConfigTest, reads_the_packings_of_auto_round) {
  const auto with = [&](const std::string& packing, const std::string& rest = "") {
    return read_section(R"({"quant_method": "auto-round", "bits": 4, "group_size": 128,
                            "data_type": "int", "sym": true, "packing_format": ")" +
                        packing + "\"" + rest + "}");
  };
  const auto v1 = with("auto_round:auto_gptq", R"(, "extra_config": {"a": {"bits": 8}, "b":
                       {"bits": 16, "group_size": 0}, "c": {"group_size": 32}})");
  ASSERT_TRUE(v1.ok()) << v1.error().message;
  EXPECT_EQ(v1->method_name(), "gptq");
  EXPECT_TRUE(gptq_of(v1).sym && gptq_of(v1).stores_zero_minus_one);
  EXPECT_EQ(gptq_of(v1).sizes.bits, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(gptq_of(v1).sizes.group_sizes, (std::vector<int64_t>{128, 32}));
  EXPECT_FALSE(gptq_of(v1).sym_differs);
  EXPECT_TRUE(
      gptq_of(with("auto_round", R"(, "extra_config": {"a": {"sym": false}})")).sym_differs);
  EXPECT_EQ(with("auto_round", R"(, "extra_config": {"a": {"sym": 1}})").error().code, "json.type");
  const auto v2 = with("auto_round");
  ASSERT_TRUE(v2.ok()) << v2.error().message;
  EXPECT_EQ(v2->method_name(), "gptq");
  EXPECT_FALSE(gptq_of(v2).stores_zero_minus_one);
  const auto awq = with("auto_round:auto_awq");
  ASSERT_TRUE(awq.ok()) << awq.error().message;
  EXPECT_EQ(awq->method_name(), "awq");
  EXPECT_FALSE(awq_of(awq).zero_point);
  EXPECT_EQ(code(R"({"quant_method": "intel/auto-round", "bits": 2, "group_size": 32,
                     "backend": "auto_round:exllamav2"})"),
            "");
  for (const char* packing : {"auto_round:fp8_static", "auto_round:llm_compressor", "mlx", ""}) {
    EXPECT_EQ(with(packing).error().code, "quantization.version") << packing;
  }
  EXPECT_TRUE(v1->by_auto_round && awq->by_auto_round);
  EXPECT_EQ(code(R"({"quant_method": "auto-round", "bits": 4, "group_size": 32})"), "json.missing");
}

TEST_F(QuantizationConfigTest, reads_fp4_of_auto_round_as_that_of_compressed_tensors) {
  const auto with = [&](const std::string& rest) {
    return read_section(R"({"quant_method": "auto-round", "sym": true,
                            "packing_format": "auto_round:llm_compressor", )" +
                        rest + "}");
  };
  for (const char* type : {"nv_fp", "nv_fp4_with_static_gs"}) {
    const auto config =
        with(R"("bits": 4, "group_size": 16, "data_type": ")" + std::string(type) + "\"");
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->method_name(), "compressed-tensors");
    ASSERT_EQ(schemes_of(config).size(), 1u);
    EXPECT_EQ(schemes_of(config)[0].format, CompressedScheme::Format::kNvfp4);
  }
  const auto mx = with(R"("bits": 4, "group_size": 32, "data_type": "mx_fp")");
  ASSERT_TRUE(mx.ok()) << mx.error().message;
  EXPECT_EQ(schemes_of(mx).at(0).format, CompressedScheme::Format::kMxfp4);
  const auto code_with = [&](const std::string& rest) { return with(rest).error().code; };
  EXPECT_EQ(code_with(R"("bits": 6, "group_size": 32, "data_type": "mx_fp")"), "quantization.bits");
  EXPECT_EQ(code_with(R"("bits": 4, "group_size": 16, "data_type": "mx_fp")"),
            "quantization.group_size");
  EXPECT_EQ(code_with(R"("bits": 8, "group_size": 128, "data_type": "fp")"), "quantization.format");
}

TEST_F(QuantizationConfigTest, knows_who_wrote_and_what_overrides_say_of_symmetry) {
  const auto gptq = [&](const std::string& rest) {
    return read_section(R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true)" +
                        rest + "}");
  };
  EXPECT_FALSE(gptq("")->by_auto_round || gptq_of(gptq("")).sym_differs);
  EXPECT_TRUE(gptq(R"(, "provider": "auto-round")")->by_auto_round);
  EXPECT_TRUE(gptq(R"(, "autoround_version": "0.16.1")")->by_auto_round);
  EXPECT_TRUE(gptq_of(gptq(R"(, "dynamic": {"+:a": {"sym": false}})")).sym_differs);
  EXPECT_FALSE(gptq_of(gptq(R"(, "dynamic": {"+:a": {"sym": true, "bits": 8}})")).sym_differs);
  EXPECT_EQ(gptq(R"(, "dynamic": {"+:a": {"sym": 1}})").error().code, "json.type");
}

TEST_F(QuantizationConfigTest, reads_how_a_cache_is_quantized) {
  using Form = KvCacheScheme::Form;
  const auto form = [&](const std::string& section) {
    const auto config = read_section(section);
    EXPECT_TRUE(config.ok()) << config.error().message;
    return config.ok() ? config->kv_cache.form : Form::kNone;
  };
  const auto compressed = [&](const std::string& scheme) {
    return form(R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
                    "config_groups": {"NVFP4": ["Linear"]}, "kv_cache_scheme": )" +
                scheme + "}");
  };
  EXPECT_EQ(compressed("null"), Form::kNone);
  EXPECT_EQ(compressed(R"({"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false,
                           "symmetric": true})"),
            Form::kFp8);
  EXPECT_EQ(compressed(R"({"num_bits": 8, "type": "float", "strategy": "attn_head"})"),
            Form::kOther);
  EXPECT_EQ(compressed(R"({"num_bits": 8, "type": "int"})"), Form::kOther);
  const auto modelopt = [&](const std::string& rest) {
    return form(R"({"quant_method": "modelopt", "quant_algo": "NVFP4")" + rest + "}");
  };
  EXPECT_EQ(modelopt(""), Form::kNone);
  EXPECT_EQ(modelopt(R"(, "kv_cache_quant_algo": null)"), Form::kNone);
  EXPECT_EQ(modelopt(R"(, "kv_cache_quant_algo": "FP8")"), Form::kFp8);
  EXPECT_EQ(modelopt(R"(, "kv_cache_quant_algo": "NVFP4")"), Form::kOther);
  EXPECT_EQ(modelopt(R"(, "kv_cache_scheme": {"num_bits": 8, "type": "float"})"), Form::kFp8);
}

TEST_F(QuantizationConfigTest, names_other_software) {
  for (const char* method : {"exl3", "torchao", "quark", "aqlm"}) {
    const auto config = read_section(R"({"quant_method": ")" + std::string(method) + "\"}");
    EXPECT_EQ(config.error().code, "quantization.method");
    EXPECT_NE(config.error().message.find("which are not supported; take the model in 16 bits"),
              std::string::npos)
        << config.error().message;
  }
  const auto mlx = read(R"({"quantization": {"group_size": 64, "bits": 4},
                            "quantization_config": {"group_size": 64, "bits": 4}})");
  EXPECT_EQ(mlx.error().code, "quantization.method");
  EXPECT_NE(mlx.error().message.find("found weights of MLX"), std::string::npos);
}

TEST_F(QuantizationConfigTest, reads_mxfp4_and_none) {
  EXPECT_EQ(read_section(R"({"quant_method": "mxfp4"})")->method_name(), "mxfp4");
  EXPECT_EQ(read("{}")->method_name(), "none");
  EXPECT_EQ(read_section("null")->method_name(), "none");
  EXPECT_EQ(read("{}")->flavour, nullptr);
}

TEST_F(QuantizationConfigTest, refuses_other_methods) {
  for (const char* method : {"quark", "A.W.Q", "torchao", ""}) {
    EXPECT_EQ(code(R"({"quant_method": ")" + std::string(method) + "\"}"), "quantization.method");
  }
  EXPECT_EQ(code("{}"), "json.missing");
  EXPECT_EQ(code(R"({"quant_method": 4})"), "json.type");
  EXPECT_EQ(code("[]"), "json.type");
  EXPECT_EQ(read(R"({"compression_config": {"quant_method": "compressed-tensors"}})").error().code,
            "json.missing");
}

TEST_F(QuantizationConfigTest, refuses_bits_that_do_not_exist) {
  for (const char* bits : {"0", "1", "5", "6", "7", "9", "16", "-4", "4294967300"}) {
    EXPECT_EQ(gptq_code(R"("group_size": 128, "bits": )" + std::string(bits)), "quantization.bits")
        << bits;
  }
  for (const char* bits : {"0", "2", "3", "8"}) {
    EXPECT_EQ(awq_code(R"("group_size": 128, "bits": )" + std::string(bits)), "quantization.bits");
  }
  EXPECT_EQ(gptq_code(R"("group_size": 128, "bits": "4")"), "json.type");
  EXPECT_EQ(gptq_code(R"("group_size": 128, "bits": 4.5)"), "json.type");
  EXPECT_EQ(gptq_code(R"("group_size": 128, "bits": true)"), "json.type");
  EXPECT_EQ(gptq_code(R"("group_size": 128)"), "json.missing");
  EXPECT_EQ(awq_code(R"("group_size": 128)"), "json.missing");
}

TEST_F(QuantizationConfigTest, refuses_group_sizes_that_do_not_exist) {
  for (const char* size : {"0", "-2", "7", "4", "12", "16777224", "-128"}) {
    EXPECT_EQ(gptq_code(R"("bits": 4, "group_size": )" + std::string(size)),
              "quantization.group_size")
        << size;
    EXPECT_EQ(awq_code(R"("bits": 4, "group_size": )" + std::string(size)),
              "quantization.group_size");
  }
  EXPECT_EQ(gptq_code(R"("bits": 4, "group_size": "128")"), "json.type");
  EXPECT_EQ(gptq_code(R"("bits": 4)"), "json.missing");
}

TEST_F(QuantizationConfigTest, refuses_layouts_of_other_versions) {
  const std::string sizes = R"("bits": 4, "group_size": 128, )";
  for (const char* version : {"gemv", "gemv_fast", "marlin", "llm-awq", ""}) {
    EXPECT_EQ(awq_code(sizes + R"("version": ")" + version + "\""), "quantization.version");
  }
  for (const char* format : {"gptq_p", "bitblas", ""}) {
    EXPECT_EQ(gptq_code(sizes + R"("checkpoint_format": ")" + format + "\""),
              "quantization.version");
  }
  EXPECT_EQ(gptq_code(sizes + R"("is_marlin_format": false)"), "");
  EXPECT_EQ(awq_code(sizes + R"("version": 1)"), "json.type");
  EXPECT_EQ(awq_code(sizes + R"("zero_point": 1)"), "json.type");
}

TEST_F(QuantizationConfigTest, knows_the_layout_of_marlin_by_each_of_its_names) {
  const auto section = [](const std::string& keys) {
    return R"({"quantization_config": {"group_size": 128, )" + keys + "}}";
  };
  for (const char* keys : {R"("quant_method": "marlin")",
                           R"("quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin")",
                           R"("quant_method": "gptq", "bits": 4, "format": "marlin")",
                           R"("quant_method": "gptq", "bits": 4, "is_marlin_format": true)"}) {
    const auto config = read(section(keys));
    ASSERT_TRUE(config.ok()) << keys << ": " << config.error().message;
    EXPECT_TRUE(gptq_of(config).marlin) << keys;
    EXPECT_EQ(config->method_name(), "gptq");
    EXPECT_EQ(gptq_of(config).sizes.bits, std::vector<int64_t>{4});
  }
  const auto other = read(section(R"("quant_method": "gptq", "bits": 4)"));
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(gptq_of(other).marlin);
}

TEST_F(QuantizationConfigTest, reads_the_side_files_of_older_tools) {
  dir_.write("quant_config.json", R"({"w_bit": 4, "q_group_size": 128, "version": "GEMM"})");
  auto config = read("{}");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->method_name(), "awq");
  EXPECT_EQ(config->where, (dir_ / "quant_config.json").string());
  dir_.write("quantize_config.json", R"({"bits": 4, "group_size": 128, "desc_act": false})");
  config = read("{}");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->method_name(), "gptq");
  // config.json goes before both.
  EXPECT_EQ(read_section(R"({"quant_method": "mxfp4"})")->method_name(), "mxfp4");
  dir_.write("quantize_config.json", "{");
  EXPECT_EQ(read("{}").error().code, "json.syntax");
}

TEST_F(QuantizationConfigTest, words_have_any_case) {
  const auto same = [&](const std::string& section) {
    const auto upper = read_section(section);
    EXPECT_TRUE(upper.ok()) << upper.error().message;
    return upper.ok() ? upper->method_name() : "";
  };
  EXPECT_EQ(same(R"({"quant_method": "AWQ", "bits": 4, "group_size": 64, "version": "Gemm"})"),
            "awq");
  const auto gptq = read_section(
      R"({"quant_method": "GPTQ", "bits": 2, "group_size": 64, "checkpoint_format": "GPTQ",
          "meta": {"quantizer": ["GPTQModel:7.7.0"]}})");
  ASSERT_TRUE(gptq.ok()) << gptq.error().message;
  EXPECT_TRUE(gptq_of(gptq).zeros_borrow);
  EXPECT_EQ(same(R"({"quant_method": "Auto-Round", "bits": 4, "group_size": 128, "data_type": "INT",
                     "packing_format": "AUTO_ROUND:auto_gptq"})"),
            "gptq");
  EXPECT_EQ(same(R"({"quant_method": "MXFP4"})"), "mxfp4");
  EXPECT_EQ(same(R"({"quant_method": "FP8", "fmt": "E4M3", "activation_scheme": "DYNAMIC"})"),
            "fp8");
  EXPECT_EQ(same(R"({"quant_method": "BitsAndBytes", "load_in_4bit": true,
                     "bnb_4bit_quant_type": "NF4"})"),
            "bitsandbytes");
  EXPECT_EQ(same(R"({"quant_method": "Compressed-Tensors", "format": "Pack-Quantized",
                     "config_groups": {"g": {"weights": {"num_bits": 4, "type": "INT",
                       "strategy": "GROUP", "group_size": 32, "actorder": "WEIGHT"}},
                       "w4a16": ["Linear"]}})"),
            "compressed-tensors");
  EXPECT_EQ(code(R"({"quant_method": "EXL3"})"), "quantization.method");
  EXPECT_NE(read_section(R"({"quant_method": "EXL3"})").error().message.find("ExLlamaV3"),
            std::string::npos);
}

TEST_F(QuantizationConfigTest, floats_of_autoround_are_those_of_compressed_tensors) {
  const auto autoround = [&](const std::string& rest) {
    return read_section(R"({"quant_method": "auto-round", "packing_format": "any", )" + rest + "}");
  };
  const auto mxfp8 = autoround(R"("data_type": "mx_fp", "bits": 8, "group_size": 32)");
  ASSERT_TRUE(mxfp8.ok()) << mxfp8.error().message;
  EXPECT_EQ(to_string(schemes_of(mxfp8).front()), "float-quantized group 32");
  EXPECT_EQ(autoround(R"("data_type": "nv_fp", "bits": 8, "group_size": 16)").error().code,
            "quantization.bits");
  EXPECT_EQ(autoround(R"("data_type": "mx_fp", "bits": 6, "group_size": 32)").error().code,
            "quantization.bits");
}

TEST_F(QuantizationConfigTest, reads_fp8) {
  const auto config = read_section(
      R"({"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
          "weight_block_size": [128, 64], "ignored_layers": ["lm_head"]})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->method_name(), "fp8");
  EXPECT_EQ(config->rounded_inputs, 64);
  EXPECT_EQ(config->kept.entry_of("lm_head"), "lm_head");
  EXPECT_EQ(code(R"({"quant_method": "fp8", "weight_block_size": null})"), "");
  for (const char* other :
       {R"("activation_scheme": "static", "weight_block_size": [128, 128])",
        R"("weight_block_size": [128, 128])", R"("activation_scheme": "dynamic")"}) {
    const auto section = read_section(std::string(R"({"quant_method": "fp8", )") + other + "}");
    EXPECT_EQ(section->rounded_inputs, 0) << other;
  }
  EXPECT_EQ(code(R"({"quant_method": "fp8", "activation_scheme": "token"})"),
            "quantization.activations");
  EXPECT_EQ(read_section(R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0})")
                ->method_name(),
            "fp8");
  const auto code_of_size = [&](const std::string& size) {
    return code(R"({"quant_method": "fp8", "weight_block_size": )" + size + "}");
  };
  for (const char* size : {"128", "[128]", "[128, 0]", "[-1, 128]", "[128, 12]", "[1.5, 8]",
                           "[8, 99999999999999999999]", "[\"a\", 8]"}) {
    EXPECT_EQ(code_of_size(size), "quantization.group_size") << size;
  }
  EXPECT_EQ(code(R"({"quant_method": "fp8", "fmt": "e5m2"})"), "quantization.format");
}

TEST_F(QuantizationConfigTest, reads_bitsandbytes) {
  const std::string nf4 = R"({"quant_method": "bitsandbytes", "load_in_4bit": true,
                              "load_in_8bit": false, "bnb_4bit_quant_type": "nf4")";
  const auto config = read_section(nf4 + R"(, "bnb_4bit_use_double_quant": true})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->method_name(), "bitsandbytes");
  EXPECT_EQ(code(nf4 + "}"), "");
  const std::string start = R"({"quant_method": "bitsandbytes", )";
  EXPECT_EQ(code(start + R"("load_in_8bit": true, "load_in_4bit": false})"), "quantization.bits");
  EXPECT_EQ(code(start + R"("load_in_4bit": false})"), "quantization.bits");
  EXPECT_EQ(code(start + R"("load_in_4bit": true})"), "quantization.quant_type");
  EXPECT_EQ(code(start + R"("load_in_4bit": true, "bnb_4bit_quant_type": "fp4"})"),
            "quantization.quant_type");
  EXPECT_EQ(code(start + R"("load_in_4bit": 1})"), "json.type");
}

TEST_F(QuantizationConfigTest, reads_kbit) {
  const auto kbit = [](const std::string& members) {
    return R"({"quant_method": "kbit", )" + members + "}";
  };
  const auto one = read_section(kbit(R"("bits": 3, "block_size": 32)"));
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_EQ(one->method_name(), "kbit");
  const auto several = read_section(kbit(R"("bits": [2, 5], "block_size": 32)"));
  ASSERT_TRUE(several.ok()) << several.error().message;
  for (const std::string bits : {"1", "6", "4.5", "\"4\"", "[]", "[4, 8]", "true", "[[4]]"}) {
    EXPECT_EQ(code(kbit(R"("block_size": 32, "bits": )" + bits)), "quantization.bits") << bits;
  }
  EXPECT_EQ(code(kbit(R"("block_size": 32)")), "quantization.bits");
  EXPECT_EQ(code(kbit(R"("bits": 4)")), "json.missing");
  EXPECT_EQ(code(kbit(R"("bits": 4, "block_size": 64)")), "quantization.group_size");
}

TEST_F(QuantizationConfigTest, reads_vq) {
  const auto vq = [](const std::string& members) {
    return R"({"quant_method": "vq", "block_size": 32, )" + members + "}";
  };
  const auto one = read_section(vq(R"("bits": 2, "rotation": 256)"));
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_EQ(one->method_name(), "vq");
  EXPECT_EQ(code(vq(R"("bits": [2, 4], "rotation": 0)")), "");
  for (const char* bits : {"3", "8", "[]", "[2, 3]", "\"2\""}) {
    const std::string keys = R"("rotation": 0, "bits": )" + std::string(bits);
    EXPECT_EQ(code(vq(keys)), "quantization.bits") << bits;
  }
  EXPECT_EQ(code(vq(R"("bits": 2)")), "json.missing");
  for (const char* rotation : {"32", "128", "512", "1"}) {
    const std::string keys = R"("bits": 2, "rotation": )" + std::string(rotation);
    EXPECT_EQ(code(vq(keys)), "quantization.rotation") << rotation;
  }
  EXPECT_EQ(code(R"({"quant_method": "vq", "bits": 2, "rotation": 0, "block_size": 64})"),
            "quantization.group_size");
}

TEST_F(QuantizationConfigTest, messages_name_the_key_and_both_values) {
  const auto config = read_section(R"({"quant_method": "gptq", "bits": 5, "group_size": 128})");
  EXPECT_EQ(config.error().message,
            "config.json: quantization_config.bits: expected 2, 3, 4 or 8, found 5");
}

}  // namespace
}  // namespace subbyte
