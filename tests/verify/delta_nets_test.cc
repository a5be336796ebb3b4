// What verify says of models with gated delta nets, whose norms have factors 1 + w and whose
// checkpoints may have other parts.

#include <gtest/gtest.h>

#include "verify/sound_models.h"

namespace subbyte::conformance {
namespace {

using Lines = std::vector<std::string>;

const std::string kLayer = "model.layers.0.";

void set_zero(TinyModel& model, const std::string& name) {
  std::string& bytes = model.tensor(name).bytes;
  bytes.assign(bytes.size(), '\0');
}

TEST(VerifyDeltaNets, finds_nothing_in_sound_ones) {
  EXPECT_EQ(lines(verify_model(sound_delta_net())), Lines{});
}

TEST(VerifyDeltaNets, notes_parts_that_are_not_read_and_does_not_look_at_them) {
  TinyModel model = sound_delta_net();
  for (const char* name : {"model.visual.merger.norm.bias", "mtp.fc.weight"}) {
    model.tensors.push_back(filled<uint32_t>(name, DType::kF32, {1}, 0x7FC00000));  // NaN
  }
  const VerifyReport report = verify_model(model);
  ASSERT_EQ(lines(report), Lines{"note verify.unread model.visual.merger.norm.bias"});
  EXPECT_NE(to_string(report.findings[0]).find("2 tensors"), std::string::npos);
}

TEST(VerifyDeltaNets, notes_keys_beside_the_text_part) {
  TinyModel model = sound_delta_net();
  json::Value text = std::move(model.config);
  model.config = {{"model_type", "qwen3_5"},
                  {"text_config", text},
                  {"rope_parameters", {{"rope_type", "yarn"}, {"factor", 4.0}}}};
  model.config["text_config"]["model_type"] = "qwen3_5_text";
  const VerifyReport report = verify_model(model);
  ASSERT_EQ(lines(report), Lines{"note verify.unknown_keys config.json"});
  EXPECT_NE(to_string(report.findings[0])
                .find("text_config, where they are not read: "
                      "\"rope_parameters\""),
            std::string::npos)
      << to_string(report.findings[0]);
}

TEST(VerifyDeltaNets, norms_whose_numbers_are_0_may_be_near_1_but_for_those_of_results) {
  TinyModel model = sound_delta_net();
  set_zero(model, kLayer + "input_layernorm.weight");
  set_zero(model, "model.norm.weight");
  set_zero(model, "model.layers.3.self_attn.q_norm.weight");
  EXPECT_EQ(lines(verify_model(model)), Lines{});
  set_zero(model, kLayer + "linear_attn.norm.weight");
  EXPECT_EQ(lines(verify_model(model)),
            Lines{"error verify.norm_zero " + kLayer + "linear_attn.norm.weight"});
}

TEST(VerifyDeltaNets, filters_have_their_shape) {
  TinyModel model = sound_delta_net();
  model.tensor(kLayer + "linear_attn.conv1d.weight").shape = {64, 4, 1};
  const VerifyReport report = verify_model(model);
  ASSERT_EQ(lines(report), Lines{"error import.shape " + kLayer + "linear_attn.conv1d.weight"});
  EXPECT_NE(to_string(report.findings[0]).find("[64, 1, 4]"), std::string::npos);
}

TEST(VerifyDeltaNets, tensors_of_other_names_are_a_surplus) {
  TinyModel model = sound_delta_net();
  model.tensors.push_back(filled<uint32_t>("model.mtp.weight", DType::kF32, {1}, 0));
  EXPECT_EQ(lines(verify_model(model)), Lines{"error model.surplus model.mtp.weight"});
}

}  // namespace
}  // namespace subbyte::conformance
