// Two names of one field, and two files that say how the same weights are quantized.

#include "checkpoints/config/agreement.h"

#include <gtest/gtest.h>

#include "checkpoints/config/quantization_config.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

class Agreement : public ::testing::Test {
 protected:
  Result<QuantizationConfig> read(const std::string& config) {
    const auto value = json::parse(config, "config.json");
    return read_quantization_config(*json::Object::of(*value, "config.json"), dir_.path());
  }

  /// The code and the message of the refusal; "ok" without one.
  std::string refusal(const std::string& section) {
    const auto config =
        read(R"({"quantization_config": {"bits": 4, "group_size": 128, )" + section + "}}");
    return config.ok() ? "ok" : to_string(config.error());
  }

  /// Files that say something else: "hf_quant_config.json: quant_algo ...".
  std::vector<std::string> differing(const std::string& config) {
    const auto read_config = read(config);
    EXPECT_TRUE(read_config.ok()) << read_config.error().message;
    std::vector<std::string> lines;
    if (!read_config.ok()) return lines;
    for (const Disagreement& one : read_config->differs) {
      lines.push_back(one.file + ": " + one.expected + " / " + one.found);
    }
    return lines;
  }

  TempDir dir_;
};

TEST_F(Agreement, two_names_of_a_field_say_the_same) {
  EXPECT_EQ(refusal(R"("quant_method": "gptq", "format": "gptq_v2")"), "ok");
  EXPECT_EQ(refusal(R"("quant_method": "gptq", "format": "gptq", "checkpoint_format": "gptq")"),
            "ok");
  EXPECT_EQ(refusal(R"("quant_method": "gptq", "format": null, "checkpoint_format": "gptq")"),
            "ok");
  EXPECT_EQ(refusal(R"("quant_method": "gptq", "format": "gptq_v2",
                       "checkpoint_format": "gptq")"),
            "config.json: quantization_config.format: expected what checkpoint_format says, "
            "\"gptq\", found \"gptq_v2\" [quantization.contradiction]");
  for (const char* other : {R"("w_bit": 8)", R"("q_group_size": 64)"}) {
    EXPECT_NE(refusal(R"("quant_method": "awq", )" + std::string(other)).find("contradiction"),
              std::string::npos)
        << other;
  }
}

TEST_F(Agreement, the_version_of_gptq_is_the_same_in_both_files) {
  const std::string section =
      R"("quant_method": "gptq", "checkpoint_format": "gptq", "desc_act": false)";
  dir_.write("quantize_config.json", R"({"bits": 4, "format": "gptq"})");
  EXPECT_EQ(refusal(section), "ok");
  dir_.write("quantize_config.json", R"({"bits": 4})");  // says nothing
  EXPECT_EQ(refusal(section), "ok");
  dir_.write("quantize_config.json", R"({"bits": 4, "format": "gptq_v2"})");
  EXPECT_NE(refusal(section).find("quantize_config.json: format: expected \"gptq\""),
            std::string::npos)
      << refusal(section);
}

TEST_F(Agreement, what_tensors_tell_is_said_alone) {
  const std::string config =
      R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})";
  const auto file = [&](const char* text) { dir_.write("hf_quant_config.json", text); };
  file(R"({"quantization": {"quant_algo": "nvfp4", "group_size": 16}})");
  EXPECT_EQ(differing(config), std::vector<std::string>());
  file(R"({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})");
  EXPECT_EQ(differing(config),
            std::vector<std::string>{"hf_quant_config.json: quant_algo \"NVFP4\", as config.json: "
                                     "quantization_config says / \"FP8\", which does not count"});
  file("{]");  // nobody reads it
  EXPECT_EQ(differing(config), std::vector<std::string>());
}

TEST_F(Agreement, a_module_in_two_lists_is_said) {
  const auto lists = [](const char* ignored) {
    return R"({"quantization_config": {"quant_method": "modelopt", "ignore": [")" +
           std::string(ignored) +
           R"("], "quant_algo": "MIXED_PRECISION", "quantized_layers":
             {"model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"}}}})";
  };
  EXPECT_EQ(differing(lists("lm_head")), std::vector<std::string>());
  const auto both = differing(lists("model.layers.0*"));
  ASSERT_EQ(both.size(), 1u);
  EXPECT_NE(both[0].find("model.layers.0.mlp.up_proj"), std::string::npos) << both[0];
}

TEST_F(Agreement, lists_of_one_meaning_are_compared) {
  const std::string config = R"({"quantization_config": {"quant_method": "modelopt",
      "quant_algo": "NVFP4", "ignore": ["lm_head", "re:.*gate"])";
  const auto file = [&](const char* list) {
    dir_.write("hf_quant_config.json",
               R"({"quantization": {"quant_algo": "NVFP4", "exclude_modules": )" +
                   std::string(list) + "}}");
    return differing(config + "}}");
  };
  EXPECT_EQ(file(R"(["re:.*gate", "lm_head"])"), std::vector<std::string>());
  EXPECT_EQ(file("null"), std::vector<std::string>());
  EXPECT_EQ(file(R"(["re:.*gate"])"),
            std::vector<std::string>{"hf_quant_config.json: \"lm_head\" among what is not "
                                     "quantized, as config.json: quantization_config says / a "
                                     "list without it"});
  EXPECT_EQ(file(R"(["re:.*gate", "lm_head", "model.layers.0*"])"),
            std::vector<std::string>{"hf_quant_config.json: no \"model.layers.0*\" among what is "
                                     "not quantized, as config.json: quantization_config says / a "
                                     "list with it"});
  dir_.write("hf_quant_config.json", "{}");
  EXPECT_EQ(differing(config + R"(, "exclude_modules": ["re:.*gate", "lm_head"]}})"),
            std::vector<std::string>());
  const auto two = differing(config + R"(, "exclude_modules": ["lm_head"]}})");
  ASSERT_EQ(two.size(), 1u);
  EXPECT_NE(two[0].find("\"re:.*gate\" among what is not quantized, as "), std::string::npos)
      << two[0];
}

TEST_F(Agreement, overrides_of_single_modules_are_compared) {
  const auto differ = [&](const std::string& config, const std::string& file) {
    const std::string gptq = R"("quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": )";
    dir_.write("quantize_config.json", "{" + gptq + file + "}");
    return differing(R"({"quantization_config": {)" + gptq + config + "}}");
  };
  const std::string down = R"({"+:.*down.*": {"bits": 8, "group_size": 64}, "-:.*gate.*": {}})";
  EXPECT_EQ(differ(down, down), std::vector<std::string>());
  EXPECT_EQ(differ(down, R"({"-:.*gate.*": {}, "+:.*down.*": {"group_size": 64, "bits": 8}})"),
            std::vector<std::string>());
  EXPECT_EQ(differ(down, "null"), std::vector<std::string>());
  EXPECT_EQ(differ(down, R"({"+:.*down.*": {"bits": 4, "group_size": 64}, "-:.*gate.*": {}})"),
            std::vector<std::string>{
                "quantize_config.json: {\"bits\":8,\"group_size\":64} for \"+:.*down.*\", as "
                "dynamic of config.json: quantization_config says / {\"bits\":4,\"group_size\":64}"
                ", which does not count"});
  const auto fewer = differ(down, R"({"+:.*down.*": {"bits": 8, "group_size": 64}})");
  ASSERT_EQ(fewer.size(), 1u);
  EXPECT_NE(fewer[0].find("{} for \"-:.*gate.*\""), std::string::npos) << fewer[0];
  EXPECT_NE(fewer[0].find("/ nothing, which does not count"), std::string::npos) << fewer[0];
}

TEST_F(Agreement, of_overrides_only_words_are_the_same_in_any_case) {
  const auto differ = [&](const std::string& config, const std::string& file) {
    const std::string fields = R"("quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",)"
                               R"("quantized_layers": {"model.up": )";
    dir_.write("hf_quant_config.json", R"({"quantization": {)" + fields + file + "}}}");
    return differing(R"({"quantization_config": {)" + fields + config + "}}}");
  };
  const std::string upper = R"({"quant_algo": "NVFP4", "targets": ["re:.*Up"]})";
  EXPECT_EQ(differ(upper, R"({"targets": ["re:.*Up"], "quant_algo": "nvfp4"})"),
            std::vector<std::string>());
  const auto lower = differ(upper, R"({"quant_algo": "NVFP4", "targets": ["re:.*up"]})");
  ASSERT_EQ(lower.size(), 1u);
  EXPECT_NE(lower[0].find("re:.*Up"), std::string::npos) << lower[0];
  EXPECT_NE(lower[0].find("re:.*up"), std::string::npos) << lower[0];
  EXPECT_EQ(differ(upper, R"({"quant_algo": "NVFP4", "Targets": ["re:.*Up"]})").size(), 1u);
}

TEST_F(Agreement, methods_and_sections_of_wrappers_are_compared) {
  dir_.write("quant_config.json", R"({"w_bit": 4, "q_group_size": 128})");
  const std::string gptq =
      R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "gptq"})";
  EXPECT_EQ(differing(R"({"quantization_config": )" + gptq + "}"),
            std::vector<std::string>{"quant_config.json: weights of \"gptq\", as config.json: "
                                     "quantization_config says / those of \"awq\", which does "
                                     "not count"});
  dir_.write("quant_config.json", "{}");
  std::string inner = gptq;
  inner.replace(inner.find("128"), 3, "64");
  const auto both = differing(R"({"quantization_config": )" + gptq +
                              R"(, "text_config": {"quantization_config": )" + inner + "}}");
  ASSERT_EQ(both.size(), 2u);  // and the file of AWQ
  EXPECT_NE(both.front().find("group_size 128"), std::string::npos) << both.front();
}

}  // namespace
}  // namespace subbyte
