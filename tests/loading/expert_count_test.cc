// Experts that config.json does not have: refused before anything is made for each of them.

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "support/temp_dir.h"
#include "transform/expert_stacks.h"
#include "transform/packing/pack_model.h"
#include "transform/transform.h"
#include "verify/sound_models.h"

namespace subbyte::conformance {
namespace {

constexpr uint64_t kMany = 50'000;
constexpr const char* kStack = "model.layers.0.mlp.experts.gate_up_proj";

/// A stack of gpt-oss whose experts have two rows each.
TinyModel with_stack(uint64_t experts) {
  TinyModel model;
  model.config = sound_mxfp4().config;
  const std::string name(kStack);
  model.tensors = {filled<uint8_t>(name + "_blocks", DType::kU8, {experts, 2, 1, 16}, 0x11),
                   filled<uint8_t>(name + "_scales", DType::kU8, {experts, 2, 1}, 0x7F)};
  return model;
}

class ExpertCounts : public ::testing::Test {
 protected:
  Result<ConvertReport> convert(const TinyModel& model, const char* format) {
    for (const auto& [name, content] : model.files()) dir_.write("m/" + name, content);
    return convert_model(dir_ / "m", dir_ / "out", {.format = format}, pool_);
  }

  TempDir dir_;
  ThreadPool pool_{2};
};

TEST_F(ExpertCounts, of_stacks_are_those_of_config) {
  for (const char* format : {"mxfp4_pack_quantized", "mxfp4", "bf16"}) {
    const auto report = convert(with_stack(kMany), format);
    ASSERT_FALSE(report.ok()) << format;
    EXPECT_EQ(report.error().code, "model.weight_shape");
    EXPECT_NE(report.error().message.find("expected 2 experts of a layer"), std::string::npos)
        << report.error().message;
    EXPECT_FALSE(std::filesystem::exists(dir_ / "out"));
  }
  EXPECT_EQ(convert(with_stack(kExperts + 1), "bf16").error().code, "model.weight_shape");
}

/// What config.json says counts, whoever can run it; without a word of it there is a limit.
TEST_F(ExpertCounts, of_other_families_are_at_most_those_of_config) {
  TinyModel model = with_stack(64);
  model.config["model_type"] = "another";
  model.config["num_local_experts"] = 64;
  EXPECT_TRUE(convert(model, "bf16").ok());
  std::filesystem::remove_all(dir_ / "out");
  model.config["num_local_experts"] = 63;
  EXPECT_EQ(convert(model, "bf16").error().code, "model.weight_shape");
  model = with_stack(kMany);
  model.config["model_type"] = "another";
  model.config.erase("num_local_experts");
  EXPECT_EQ(convert(model, "bf16").error().code, "model.weight_shape");
  model.config["num_local_experts"] = kMany;
  EXPECT_EQ(convert(model, "bf16").error().code, "model.weight_shape");
}

TEST_F(ExpertCounts, of_packed_modules_are_those_of_config) {
  for (const auto& [name, content] : sound_mxfp4().files()) dir_.write("m/" + name, content);
  PackOptions options;
  options.layout = "flashinfer-mxfp4";
  const auto packed = pack_model(dir_ / "m", dir_ / "packed", options, pool_);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  json::Value config = sound_mxfp4().config;
  for (const int64_t experts : {1, 3, 2}) {
    config["num_local_experts"] = experts;
    dir_.write("packed/config.json", config.text());
    const auto report = unpack_model(dir_ / "packed", dir_ / "back", {}, pool_);
    EXPECT_EQ(report.ok(), experts == 2);
    if (!report.ok()) {
      EXPECT_EQ(report.error().code, "model.weight_shape");
    }
  }
}

}  // namespace
}  // namespace subbyte::conformance
