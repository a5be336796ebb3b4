// What a conversion carries over beside weights, and the factors that it chooses with the readers
// of the result in mind.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "checkpoints/import_parts.h"
#include "support/quantized_model.h"
#include "transform/transform.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using testing::Contents;
using testing::random_matrix;

std::string code_of(const fs::path& from, const fs::path& to, const std::string& format,
                    bool lossy = false) {
  ThreadPool pool(2);
  const auto report = convert_model(from, to, {format, lossy}, pool);
  return report.ok() ? "ok" : std::string(report.error().code);
}

QuantizedModel model_of(const std::string& exporter, const WeightFormat& format) {
  QuantizedModel model = {exporter, {}};
  ModelModule& module = model.modules.emplace_back();
  module.name = "model.layers.0.mlp.up_proj";
  module.matrices.push_back(random_matrix(format, 32, 128, Contents::kReal, 1));
  return model;
}

/// The config.json of `directory` with one more key in its quantization_config.
void add_to_config(const TempDir& folder, const std::string& directory, const char* key,
                   const json::Value& value) {
  const std::string path = (folder / (directory + "/config.json")).string();
  json::Value config = *json::parse_file(path, 1 << 20);
  config["quantization_config"][key] = value;
  folder.write(directory + "/config.json", config.text());
}

json::Value quantization_of(const fs::path& directory) {
  return (*json::parse_file((directory / "config.json").string(), 1 << 20))["quantization_config"];
}

TEST(ConvertConfig, keeps_how_a_cache_is_quantized) {
  const TempDir folder;
  write_model(model_of("nvfp4_pack_quantized", {Format::kE2M1, Format::kE4M3, Zero::kNone, 16}),
              folder, "source");
  const json::Value fp8 = {{"num_bits", 8},
                           {"type", "float"},
                           {"strategy", "tensor"},
                           {"dynamic", false},
                           {"symmetric", true}};
  add_to_config(folder, "source", "kv_cache_scheme", fp8);
  ASSERT_EQ(code_of(folder / "source", folder / "modelopt", "modelopt_nvfp4"), "ok");
  EXPECT_EQ(quantization_of(folder / "modelopt")["kv_cache_quant_algo"], "FP8");
  ASSERT_EQ(code_of(folder / "modelopt", folder / "back", "nvfp4_pack_quantized"), "ok");
  for (const auto& [key, value] : fp8.items()) {
    EXPECT_EQ(quantization_of(folder / "back")["kv_cache_scheme"][key], value) << key;
  }
  // What ModelOpt has no word for.
  json::Value heads = fp8;
  heads["strategy"] = "attn_head";
  add_to_config(folder, "source", "kv_cache_scheme", heads);
  EXPECT_EQ(code_of(folder / "source", folder / "no", "modelopt_nvfp4"), "convert.kv_cache");
  ASSERT_EQ(code_of(folder / "source", folder / "same", "nvfp4_pack_quantized"), "ok");
  EXPECT_EQ(quantization_of(folder / "same")["kv_cache_scheme"], heads);
  ASSERT_EQ(code_of(folder / "source", folder / "lossy", "modelopt_nvfp4", true), "ok");
  EXPECT_EQ(quantization_of(folder / "lossy")["kv_cache_quant_algo"], nullptr);
}

TEST(ConvertConfig, refuses_formats_that_do_not_say_how_a_cache_is_quantized) {
  const TempDir folder;
  write_model(model_of("pack_quantized", {Format::kI4, Format::kF16, Zero::kNone, 32}), folder,
              "source");
  add_to_config(folder, "source", "kv_cache_scheme", {{"num_bits", 8}, {"type", "float"}});
  for (const char* format : {"gptq", "awq"}) {
    EXPECT_EQ(code_of(folder / "source", folder / "no", format), "convert.kv_cache") << format;
  }
  EXPECT_EQ(code_of(folder / "source", folder / "lossy", "gptq", true), "ok");
  EXPECT_EQ(code_of(folder / "source", folder / "f32", "f32"), "ok");
}

TEST(ConvertConfig, matrices_that_readers_join_get_one_factor) {
  const TempDir folder;
  const WeightFormat mxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  QuantizedModel model = {"mxfp4_pack_quantized", {}};
  const std::string layer = "model.layers.0.";
  std::map<std::string, int> exponents = {
      {"self_attn.q_proj", 100},       {"self_attn.k_proj", 104},    {"self_attn.v_proj", 98},
      {"self_attn.o_proj", 90},        {"mlp.gate_proj", 110},       {"mlp.up_proj", 104},
      {"mlp.experts.0.gate_proj", 60}, {"mlp.experts.0.up_proj", 80}};  // too far apart
  for (const auto& [name, exponent] : exponents) {
    ModelModule& module = model.modules.emplace_back();
    module.name = layer + name;
    module.matrices.push_back(random_matrix(mxfp4, 32, 64, Contents::kReal, 1));
    for (std::byte& scale : module.matrices[0].scales->span()) scale = std::byte(exponent);
  }
  write_model(model, folder, "source");
  for (const auto& [format, suffix] : {std::pair("nvfp4_pack_quantized", ".weight_global_scale"),
                                       std::pair("modelopt_nvfp4", ".weight_scale_2")}) {
    ASSERT_EQ(code_of(folder / "source", folder / format, format), "ok");
    expect_weights_of(model, folder / format);
    const auto opened = TensorSource::open(folder / format);
    ASSERT_TRUE(opened.ok());
    const std::string end = suffix;  // clang 14 captures no structured binding
    const auto factor = [&](const std::string& name) {
      return load_f32(*opened->find(layer + name + end), 0);
    };
    EXPECT_EQ(factor("self_attn.q_proj"), factor("self_attn.k_proj"));
    EXPECT_EQ(factor("self_attn.q_proj"), factor("self_attn.v_proj"));
    EXPECT_NE(factor("self_attn.q_proj"), factor("self_attn.o_proj"));
    EXPECT_EQ(factor("mlp.gate_proj"), factor("mlp.up_proj"));
    EXPECT_NE(factor("mlp.experts.0.gate_proj"), factor("mlp.experts.0.up_proj"));
  }
}

}  // namespace
}  // namespace subbyte
