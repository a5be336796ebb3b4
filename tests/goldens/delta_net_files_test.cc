// What quantize, convert and verify make of models with gated delta nets: of projections that lie
// joined or apart, numbers that stay in f32, and parts that are not read.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/thread_pool.h"
#include "checkpoints/containers/tensor_source.h"
#include "json/strict_json.h"
#include "support/goldens.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "support/test_names.h"
#include "support/test_tensors.h"
#include "transform/transform.h"
#include "verify/inspect.h"
#include "verify/verify.h"

namespace subbyte {
namespace {

using namespace std::string_literals;

class DeltaNetFiles : public ::testing::TestWithParam<const char*> {
 protected:
  /// The logits of a few tokens by a checkpoint.
  std::vector<float> logits(const std::filesystem::path& directory) {
    auto model = load_model(directory, *backend_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (!model.ok()) return {};
    const std::vector<int32_t> ids = {5, 77, 3, 100, 42, 8, 19};
    return testing::logits_of(**model, *backend_, ids);
  }

  /// Weights are the same numbers, and products of other formats round otherwise.
  static void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3) << i;
  }

  bool is_quantized() const {
    const auto config = json::parse_file((source_ / "config.json").string(), 1 << 20);
    return config.ok() && config->contains("quantization_config");
  }
  bool is_wrapped() const {
    const auto config = json::parse_file((source_ / "config.json").string(), 1 << 20);
    return config.ok() && config->contains("text_config");
  }

  std::filesystem::path source_ = testing::golden_folder(GetParam());
  std::unique_ptr<Backend> backend_ = testing::make_test_backend(1);
  ThreadPool pool_{2};
  TempDir folder_;
};

/// Codes of 8 bits and 4 times factors of f32 are rounded to f32, as the bound allows.
TEST_P(DeltaNetFiles, give_the_same_logits_after_a_conversion) {
  const auto converted =
      convert_model(source_, folder_ / "converted", {.format = "f32", .allow_lossy = true}, pool_);
  ASSERT_TRUE(converted.ok()) << converted.error().message;
  expect_near(logits(folder_ / "converted"), logits(source_));
}

TEST_P(DeltaNetFiles, are_quantized_but_for_what_decides_what_is_forgotten) {
  const auto report =
      quantize_model(source_, folder_ / "awq", {.format = "awq", .group_size = 16}, pool_);
  if (is_quantized()) {
    EXPECT_EQ(report.error().code, "quantize.already_quantized");
    return;
  }
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto before = TensorSource::open(source_);
  const auto after = TensorSource::open(folder_ / "awq");
  ASSERT_TRUE(before.ok() && after.ok());
  int64_t exact = 0;
  int64_t projections = 0;
  for (const auto& [name, tensor] : before->tensors()) {
    if (name.ends_with("A_log")) {
      const FileTensor* const kept = after->find(name);
      ASSERT_NE(kept, nullptr) << name;
      EXPECT_TRUE(std::ranges::equal(kept->bytes, tensor.bytes)) << name;
      ++exact;
    }
    const bool is_gate = name.ends_with("in_proj_a.weight") || name.ends_with("in_proj_ba.weight");
    const bool is_unread = name.starts_with("mtp.") || name.starts_with("model.visual.");
    if (is_gate || is_unread) {
      EXPECT_NE(after->find(name), nullptr) << name;
    }
    if (name.ends_with("linear_attn.out_proj.weight")) {
      EXPECT_EQ(after->find(name), nullptr) << name;
      ++projections;
    }
  }
  const auto config = read_model_config(source_);
  ASSERT_TRUE(config.ok());
  const auto delta_nets = std::ssize(ops_of<DeltaNetOp>(*plan_of(*config)));
  EXPECT_EQ(exact, delta_nets);
  EXPECT_EQ(projections, delta_nets);
  EXPECT_GT(report->signal_to_noise_db, 20);  // 4 bits in groups of 16
  const auto converted =
      convert_model(folder_ / "awq", folder_ / "floats", {.format = "f32"}, pool_);
  ASSERT_TRUE(converted.ok()) << converted.error().message;
  expect_near(logits(folder_ / "awq"), logits(folder_ / "floats"));
}

TEST_P(DeltaNetFiles, are_sound_but_for_a_tokenizer_and_parts_that_are_not_read) {
  const auto report = verify(source_, {}, pool_);
  ASSERT_TRUE(report.ok()) << report.error().message;
  std::vector<std::string> codes;
  for (const Finding& finding : report->findings) {
    // Symmetric integers from -7 on, as the script has them.
    if (finding.code != "verify.unused_codes") codes.emplace_back(finding.code);
  }
  std::vector<std::string> expected = {"verify.no_tokenizer"};
  if (is_wrapped()) expected.emplace_back("verify.unread");
  std::ranges::sort(codes);
  EXPECT_EQ(codes, expected);
}

TEST_P(DeltaNetFiles, are_opened_by_an_inspection_which_counts_what_is_not_read) {
  const auto report = inspect(source_, pool_, backend_.get());
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->problems, std::vector<std::string>());
  const auto unread = std::ranges::count_if(report->weights, [](const InspectedWeight& weight) {
    return weight.name.starts_with("mtp.") || weight.name.starts_with("model.visual.");
  });
  EXPECT_EQ(report->unread, unread);
  EXPECT_EQ(unread > 0, is_wrapped());
}

class MixedDeltaNetFiles : public DeltaNetFiles {};

/// Each module keeps its format, and config groups say which; what rounds activations is left out.
TEST_P(MixedDeltaNetFiles, are_written_as_mixtures_of_compressed_tensors) {
  const auto converted = convert_model(
      source_, folder_ / "converted", {.format = "compressed-tensors", .allow_lossy = true}, pool_);
  ASSERT_TRUE(converted.ok()) << converted.error().message;
  const auto made = json::parse_file((folder_ / "converted/config.json").string(), 1 << 20);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ((*made)["quantization_config"]["format"], "mixed-precision");
  std::set<std::string> formats;
  for (const auto& [name, group] : (*made)["quantization_config"]["config_groups"].items()) {
    formats.insert(group["format"].get<std::string>());
  }
  EXPECT_EQ(formats, std::set<std::string>({"float-quantized", "nvfp4-pack-quantized"}));
  expect_near(logits(folder_ / "converted"), logits(source_));
}

/// Names of modules in the config that `quantize` or `convert` wrote of a golden, whose config.json
/// is `config`.
std::vector<std::string> ignored_by(const TempDir& folder, const char* golden,
                                    const json::Value& config) {
  const auto source = testing::golden_folder(golden);
  std::filesystem::create_directory(folder / "source");
  folder.write("source/config.json", json::to_text(config));
  std::filesystem::copy(source / "model.safetensors", folder / "source/model.safetensors");
  ThreadPool pool(1);
  const bool is_float = !config.contains("quantization_config") &&
                        !config.at(kTextConfig).contains("quantization_config");
  const auto done =
      is_float
          ? quantize_model(folder / "source", folder / "made",
                           {.format = "compressed-tensors", .group_size = 16}, pool)
                .ok()
          : convert_model(folder / "source", folder / "made", {.format = "float_quantized"}, pool)
                .ok();
  EXPECT_TRUE(done);
  const auto made = json::parse_file((folder / "made/config.json").string(), 1 << 20);
  EXPECT_TRUE(made.ok());
  if (!made.ok()) return {};
  EXPECT_FALSE(made->at(kTextConfig).contains("quantization_config"));
  return (*made)["quantization_config"]["ignore"].get<std::vector<std::string>>();
}

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// Readers compare them with the modules of the class that config.json names.
TEST(WrappedDeltaNets, name_modules_as_the_class_of_the_config_does) {
  for (const char* const golden : {"qwen3_5-wrapped-bf16", "qwen3_5-fp8"}) {
    const auto config =
        json::parse_file((testing::golden_folder(golden) / "config.json").string(), 1 << 20);
    ASSERT_TRUE(config.ok());
    const TempDir wrapped;
    EXPECT_TRUE(has(ignored_by(wrapped, golden, *config),
                    "model.language_model.layers.0.linear_attn.in_proj_a"));
    json::Value text = (*config)[kTextConfig];
    if (config->contains("quantization_config")) {
      text["quantization_config"] = (*config)["quantization_config"];
    }
    const TempDir flat;
    EXPECT_TRUE(has(ignored_by(flat, golden, text), "model.layers.0.linear_attn.in_proj_a"));
  }
}

/// The section of a quantized model may stand in the config of the text model alone.
TEST(WrappedDeltaNets, are_quantized_as_the_config_of_their_text_model_says) {
  const auto source = testing::golden_folder("qwen3_5-fp8") / "config.json";
  auto config = json::parse_file(source.string(), 1 << 20);
  ASSERT_TRUE(config.ok());
  (*config)[kTextConfig]["quantization_config"] = (*config)["quantization_config"];
  config->erase("quantization_config");
  const TempDir folder;
  EXPECT_TRUE(has(ignored_by(folder, "qwen3_5-fp8", *config), "lm_head"));
}

/// transformers leaves the factor of a matrix that it did not quantize: no other format knows it.
TEST(WrappedDeltaNets, are_converted_without_factors_that_stand_for_nothing) {
  const auto source = testing::golden_folder("qwen3_5-fp8");
  const auto opened = TensorSource::open(source);
  ASSERT_TRUE(opened.ok());
  const std::string unused = "model.language_model.layers.0.linear_attn.in_proj_a.weight_scale_inv";
  std::vector<TestTensor> tensors = {{unused, DType::kF32, {1, 1}, "\0\0\x80\x3f"s}};
  for (const auto& [name, tensor] : opened->tensors()) {
    tensors.push_back(
        {name, tensor.dtype, tensor.shape,
         std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size())});
  }
  const TempDir folder;
  std::filesystem::create_directory(folder / "source");
  std::filesystem::copy(source / "config.json", folder / "source/config.json");
  ASSERT_TRUE(write_tensors(folder / "source/model.safetensors", tensors).ok());
  ThreadPool pool(1);
  for (const char* const format : {"fp8", "float_quantized", "f32"}) {
    const auto converted = convert_model(folder / "source", folder / format,
                                         {.format = format, .allow_lossy = true}, pool);
    ASSERT_TRUE(converted.ok()) << converted.error().message;
    EXPECT_EQ(TensorSource::open(folder / format)->find(unused), nullptr) << format;
  }
}

/// A wrapper that says nothing of a head that its text part ties: the files have none.
TEST(WrappedDeltaNets, take_the_embedding_where_configs_contradict_each_other) {
  const auto source = testing::golden_folder("qwen3_5-wrapped-bf16");
  const TempDir folder;
  auto config = json::parse_file((source / "config.json").string(), 1 << 20);
  ASSERT_TRUE(config.ok());
  ASSERT_EQ((*config)["tie_word_embeddings"], true);
  config->erase("tie_word_embeddings");
  folder.write("config.json", json::to_text(*config));
  std::filesystem::copy(source / "model.safetensors", folder / "model.safetensors");
  const auto backend = testing::make_test_backend(1);
  const auto tied = load_model(source, *backend);
  const auto unsaid = load_model(folder.path(), *backend);
  ASSERT_TRUE(tied.ok() && unsaid.ok()) << (unsaid.ok() ? "" : unsaid.error().message);
  const std::vector<int32_t> ids = {5, 77, 3};
  EXPECT_EQ(testing::logits_of(**unsaid, *backend, ids), testing::logits_of(**tied, *backend, ids));
}

/// All models that keep states but those with blocks of Mamba 2: outputs of their projections fill
/// no word of AWQ.
std::vector<const char*> models_of_files() {
  std::vector<const char*> names = testing::goldens(testing::kStates);
  for (const char* type : {"bamba", "nemotron_h", "granitemoehybrid"}) {
    for (const char* other : testing::goldens(testing::kStates, type)) std::erase(names, other);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Goldens, DeltaNetFiles, ::testing::ValuesIn(models_of_files()),
                         NamedByValue());
INSTANTIATE_TEST_SUITE_P(Goldens, MixedDeltaNetFiles,
                         ::testing::Values("qwen3_5-fp8-nvfp4", "qwen3_5-moe-fp8-nvfp4",
                                           "qwen3-next-fp8-nvfp4"),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
