#include "checkpoints/unread_parts.h"

#include <gtest/gtest.h>

#include "checkpoints/config/quantization_config.h"

namespace subbyte {
namespace {

TEST(UnreadParts, are_known_by_the_names_of_their_tensors) {
  for (const char* name :
       {"mtp.fc.weight", "mtp.layers.0.mlp.up_proj", "visual.blocks.0.attn.qkv.weight",
        "model.visual.merger.norm.bias", "model.vision_tower.x", "multi_modal_projector.y",
        "model.mtp_block.0.mlp.up_proj.weight", "model.mtp_emb_norm.0.weight"}) {
    EXPECT_TRUE(is_in_unread_part(name)) << name;
  }
  for (const char* name :
       {"model.layers.0.mlp.up_proj", "lm_head", "model.mtp.weight", "mtpx.fc", "visuals.a",
        "model.layers.0.visual.weight", "model.language_model.layers.0.mlp.up_proj", ""}) {
    EXPECT_FALSE(is_in_unread_part(name)) << name;
  }
}

TEST(UnreadParts, are_layers_that_draft) {
  const TensorSource tensors = TensorSource::of({{"model.layers.61.enorm.weight", {}}});
  EXPECT_TRUE(is_in_unread_part(tensors, "model.layers.61.mlp.experts.3.up_proj.weight"));
  EXPECT_TRUE(is_in_unread_part(tensors, "model.layers.61.eh_proj"));
  EXPECT_TRUE(is_in_unread_part(tensors, "mtp.fc.weight"));
  EXPECT_FALSE(is_in_unread_part(tensors, "model.layers.6.mlp.up_proj.weight"));
  EXPECT_FALSE(is_in_unread_part(tensors, "model.layers.61"));
  EXPECT_FALSE(is_in_unread_part(tensors, "lm_head.weight"));
}

TEST(UnreadParts, are_known_by_entries_of_configs) {
  for (const char* entry :
       {"mtp.fc", "mtp*", "mtp.layers.0*", "re:^mtp.*", "re:.*visual.*", "model.visual*",
        R"(re:^model\.visual\..*)", "+:.*mtp.*", "-:^mtp", "*mtp*", "model.vision_tower"}) {
    EXPECT_TRUE(names_unread_part(entry)) << entry;
  }
  for (const char* entry : {"lm_head", "Linear", "re:.*", "*", "re:.*mlp.*", "mtp_head", "+:.*",
                            "model.layers.0.mlp", "re:.*(mtp|mlp).*", ""}) {
    EXPECT_FALSE(names_unread_part(entry)) << entry;
  }
}

/// The config of a text; a section that is not understood.
Result<QuantizationConfig> read(const char* text) {
  const auto value = json::parse(text, "config.json");
  return read_quantization_config(*json::Object::of(*value, "config.json"), {});
}

TEST(UnreadParts, may_have_entries_that_nobody_understands) {
  for (const char* text : {
           R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128,
               "dynamic": {"+:.*mtp.*": {"bits": 5, "group_size": 7}}}})",
           R"({"quantization_config": {"quant_method": "auto-round", "bits": 4, "sym": true,
               "group_size": 128, "packing_format": "auto_round:auto_gptq",
               "extra_config": {"mtp.fc": {"bits": 5}, "model.visual.merger": {"bits": 7}}}})",
           R"({"quantization_config": {"quant_method": "compressed-tensors",
               "format": "pack-quantized", "config_groups": {
               "group_0": {"targets": ["re:^mtp.*"], "format": "new-quantized",
                           "weights": {"num_bits": 4}},
               "group_1": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int",
                           "strategy": "group", "group_size": 32}}}}})",
           R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
               "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"},
               "mtp.fc": {"quant_algo": "W3A7"}, "mtp.layers.0.x": {"quant_algo": "MXFP4"}}}})"}) {
    const auto config = read(text);
    EXPECT_TRUE(config.ok()) << config.error().message;
  }
}

TEST(UnreadParts, leave_the_entries_of_others_refused) {
  const auto groups = read(
      R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
          "config_groups": {"group_0": {"targets": ["re:^mtp.*", "Linear"],
          "format": "new-quantized", "weights": {"num_bits": 4}}}}})");
  EXPECT_EQ(groups.error().code, "quantization.format");
  const auto layers = read(
      R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
          "quantized_layers": {"model.language_model.layers.0.mlp.up_proj": {"quant_algo": "X"},
          "model.layers.0.mlp.gate_proj": {"quant_algo": "NVFP4"}}}})");
  ASSERT_TRUE(layers.ok()) << layers.error().message;
  EXPECT_EQ(layers->check_named("model.layers.0.mlp.up_proj").error().code,
            "quantization.algorithm");
  EXPECT_TRUE(layers->check_named("model.layers.0.mlp.gate_proj").ok());
}

}  // namespace
}  // namespace subbyte
