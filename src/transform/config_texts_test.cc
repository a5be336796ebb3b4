// The dtype of a wrapper, which the whole, its text model or both say.

#include "transform/config_texts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/paths.h"
#include "support/quantized_model.h"
#include "transform/packing/pack_model.h"
#include "transform/transform.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using testing::Contents;
using testing::random_matrix;
using testing::RandomMatrix;

json::Value config_of(const fs::path& directory) {
  return *json::parse_file((directory / "config.json").string(), 1 << 20);
}

/// Writes `source`: a module in NVFP4 under a wrapper's config.json with `more`.
void write_wrapper(const TempDir& folder, const json::Value& more) {
  QuantizedModel model = {"nvfp4_pack_quantized", {}};
  ModelModule& module = model.modules.emplace_back();
  module.name = "model.language_model.layers.0.mlp.up_proj";
  RandomMatrix matrix =
      random_matrix({Format::kE2M1, Format::kE4M3, Zero::kNone, 16}, 128, 256, Contents::kReal, 1);
  matrix.view.tensor_scale = 0.125;
  std::ranges::fill(matrix.scales->span(), std::byte{0x38});  // 1, which Marlin has for both types
  module.matrices.push_back(std::move(matrix));
  write_model(model, folder, "source");
  json::Value config = config_of(folder / "source");
  config.erase("torch_dtype");
  config.update(more);
  folder.write("source/config.json", config.text());
}

/// The line of metadata that says the type of the activations.
std::string activations_of(const TempDir& folder) {
  ThreadPool pool(1);
  PackOptions options;
  options.layout = "marlin-fp4";
  const auto report = pack_model(folder / "source", folder / "packed", options, pool);
  EXPECT_TRUE(report.ok()) << report.error().message;
  if (!report.ok()) return {};
  const auto packed = TensorSource::open_packed(folder / "packed");
  EXPECT_TRUE(packed.ok()) << packed.error().message;
  for (const auto& [name, line] : packed->metadata().front()) {
    const auto value = json::parse(line, name);
    if (!value.ok() || !value->is_object() || !value->contains("activations")) continue;
    return (*value)["activations"].get<std::string>();
  }
  return {};
}

TEST(ConfigDtype, pack_takes_that_of_the_text_model_where_the_whole_says_none) {
  struct Case {
    const char* config;
    const char* activations;
  };
  for (const Case& test : {
           Case{R"({"text_config":{"dtype":"float16"}})", "f16"},
           Case{R"({"text_config":{"torch_dtype":"float16"}})", "f16"},
           Case{R"({"text_config":{"dtype":"bfloat16"}})", "bf16"},
           Case{R"({"dtype":"bfloat16","text_config":{"dtype":"float16"}})", "bf16"},
           Case{R"({"torch_dtype":"float16","text_config":{"dtype":"bfloat16"}})", "f16"},
           Case{R"({"dtype":null,"text_config":{"dtype":"float16"}})", "f16"},
           Case{R"({"dtype":"bfloat16","torch_dtype":"float16"})", "bf16"},
           Case{R"({"text_config":{}})", "bf16"},
       }) {
    SCOPED_TRACE(test.config);
    const TempDir folder;
    write_wrapper(folder, *json::parse(test.config, "config.json"));
    EXPECT_EQ(activations_of(folder), test.activations);
  }
}

TEST(ConfigDtype, convert_names_it_in_each_part_that_had_one) {
  const TempDir folder;
  write_wrapper(folder, *json::parse(R"({"dtype":"bfloat16","text_config":{"dtype":"bfloat16"},)"
                                     R"("vision_config":{"torch_dtype":"bfloat16","depth":1},)"
                                     R"("audio_config":{"depth":2}})",
                                     "config.json"));
  ThreadPool pool(1);
  const auto report = convert_model(folder / "source", folder / "f16", {"f16", true}, pool);
  ASSERT_TRUE(report.ok()) << report.error().message;
  const json::Value config = config_of(folder / "f16");
  EXPECT_EQ(config["dtype"], "float16");
  EXPECT_FALSE(config.contains("torch_dtype"));
  EXPECT_EQ(config["text_config"].text(), R"({"dtype":"float16"})");
  EXPECT_EQ(config["vision_config"].text(), R"({"torch_dtype":"float16","depth":1})");
  EXPECT_EQ(config["audio_config"].text(), R"({"depth":2})");
}

TEST(ConfigDtype, quantize_names_f16_in_the_text_model_of_a_wrapper) {
  const fs::path golden = fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3_5-wrapped-bf16";
  const TempDir folder;
  fs::copy(golden, folder / "source");
  json::Value config = config_of(golden);
  config["text_config"]["dtype"] = "bfloat16";
  folder.write("source/config.json", config.text());
  ThreadPool pool(2);
  QuantizeOptions options = {"awq", 16};
  options.allow_lossy = true;
  const auto report = quantize_model(folder / "source", folder / "awq", options, pool);
  ASSERT_TRUE(report.ok()) << report.error().message;
  config = config_of(folder / "awq");
  EXPECT_EQ(config["text_config"]["dtype"], "float16");
  EXPECT_EQ(config["torch_dtype"], "float16");
}

/// Readers of Qwen2-VL have other names of modules than its files have of tensors.
TEST(ModuleNames, are_those_of_the_class_that_config_json_names) {
  const ExportedModel exported = {
      .modules = {{.name = "model.layers.0.mlp.up_proj"}},
      .kept = {"model.layers.1.mlp.up_proj", "visual.blocks.0.attn.qkv", "lm_head"}};
  const auto texts_of = [&](const char* type) {
    const Exporter* const exporter = find_exporter("pack_quantized");
    return config_texts({{"model_type", type}}, *exporter, exported).front().text;
  };
  for (const char* const wrapper : {"qwen2_vl", "qwen2_5_vl"}) {
    const std::string text = texts_of(wrapper);
    EXPECT_NE(text.find("\"model.language_model.layers.1.mlp.up_proj\""), std::string::npos)
        << text;
    EXPECT_NE(text.find("\"model.visual.blocks.0.attn.qkv\""), std::string::npos) << text;
  }
  const std::string text = texts_of("qwen2");
  EXPECT_NE(text.find("\"model.layers.1.mlp.up_proj\""), std::string::npos) << text;
}

}  // namespace
}  // namespace subbyte
