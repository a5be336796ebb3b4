// What a checkpoint is, all commands say alike: what the opening function refuses, each refuses for
// that reason, and what it takes is refused for a command's own alone.

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "base/thread_pool.h"
#include "conformance/metadata_set.h"
#include "models/checkpoint.h"
#include "models/model.h"
#include "support/goldens.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "synth/synth.h"
#include "transform/packing/pack_model.h"
#include "transform/transform.h"
#include "verify/inspect.h"
#include "verify/sound_models.h"

namespace subbyte::conformance {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::string code_of(const Result<T>& result) {
  return result.ok() ? "ok" : std::string(result.error().code);
}

/// Of numbers, which the headers do not show, and of what a command makes.
bool is_own(const std::string& code) {
  constexpr std::string_view kOwn[] = {"ok",
                                       "quantize.",
                                       "convert.",
                                       "export.",
                                       "recast.",
                                       "linear.",
                                       "plan.",
                                       "import.not_finite",
                                       "import.scale_not_finite",
                                       "dense.",
                                       "layout."};
  return std::ranges::any_of(kOwn, [&](std::string_view own) { return code.starts_with(own); });
}

class CommandsAgree : public ::testing::Test {
 protected:
  /// All that read, and with `writes` those that write, too.
  void expect_agreement(const fs::path& path, bool writes) {
    const CheckpointParts checkpoint = open_checkpoint(path);
    const CheckpointSummary summary = summarize(checkpoint, pool_);
    const std::string verdict = code_of(summary.verdict);
    ++verdicts_[verdict];
    const std::string loaded = code_of(check_loading(path, *backend_, Reads::kHeaders));
    if (verdict == "ok") {
      EXPECT_TRUE(is_own(loaded)) << loaded;
    } else {
      EXPECT_EQ(loaded, verdict);
    }
    const auto inspected = inspect(path, pool_, backend_.get());
    const bool is_clean = inspected.ok() && inspected->problems.empty();
    EXPECT_TRUE(loaded == "ok" || !is_clean) << loaded;
    const auto verified = verify(path, {}, pool_, backend_.get());
    const bool is_sound = verified.ok() && verified->is_sound();
    EXPECT_TRUE(verdict == "ok" || !is_sound) << verdict;
    expect_of_weights(code_of(diff_models(path, path, pool_)), checkpoint, verdict);
    if (writes) expect_written(path, checkpoint, verdict);
  }

  /// Of commands that need no family.
  void expect_of_weights(const std::string& code, const CheckpointParts& checkpoint,
                         const std::string& verdict) {
    const std::string of_weights = code_of(checkpoint.check_weights());
    if (of_weights != "ok") {
      EXPECT_EQ(code, of_weights);
    } else {
      EXPECT_TRUE(is_own(code) || code == verdict || code.starts_with("import.")) << code;
    }
  }

  void expect_written(const fs::path& path, const CheckpointParts& checkpoint,
                      const std::string& verdict) {
    const ConvertOptions lossy = {.format = "bf16", .allow_lossy = true};
    expect_of_weights(code_of(convert_model(path, dir_ / "converted", lossy, pool_)), checkpoint,
                      verdict);
    const std::string quantized = code_of(
        quantize_model(path, dir_ / "quantized", {.group_size = 16, .allow_lossy = true}, pool_));
    EXPECT_TRUE(is_own(quantized) || quantized == verdict) << quantized << " " << verdict;
    fs::remove_all(dir_ / "converted");
    fs::remove_all(dir_ / "quantized");
  }

  TempDir dir_;
  ThreadPool pool_{2};
  std::unique_ptr<Backend> backend_ = testing::make_test_backend(1);
  std::map<std::string, int> verdicts_;
};

TEST_F(CommandsAgree, on_goldens) {
  for (const testing::Golden& golden : testing::kGoldenModels) {
    SCOPED_TRACE(golden.name);
    expect_agreement(testing::golden_folder(golden.name), false);
    const CheckpointSummary summary =
        summarize(open_checkpoint(testing::golden_folder(golden.name)), pool_);
    EXPECT_EQ(summary.kind, golden.model_type);
    EXPECT_FALSE(summary.formats.empty());
  }
}

TEST_F(CommandsAgree, on_synthetic_models) {
  for (const char* arch : {"llama", "qwen2", "qwen3", "qwen3-moe", "gpt-oss", "qwen3.5"}) {
    SCOPED_TRACE(arch);
    SynthOptions options;
    options.arch = arch;
    options.shape = "tiny";
    options.format = std::string_view(arch) == "gpt-oss" ? "mxfp4" : "bf16";
    ASSERT_TRUE(synthesize(dir_ / arch, options, pool_).ok());
    expect_agreement(dir_ / arch, true);
  }
  EXPECT_EQ(verdicts_, (std::map<std::string, int>{{"ok", 6}}));
}

TEST_F(CommandsAgree, on_directories_of_the_conformance_sets) {
  for (const MetadataCase& one : metadata_cases()) {
    SCOPED_TRACE(one.name);
    const TempDir dir;
    for (const auto& [name, content] : one.files) dir.write(name, content);
    expect_agreement(dir.path(), false);
  }
  EXPECT_GT(verdicts_.size(), 20u);
}

/// A config with one member that is gone, of another type or of another value.
void change(json::Value& config, Random& random) {
  const json::Value values[] = {nullptr,
                                -1,
                                0,
                                1,
                                2,
                                3,
                                16,
                                64,
                                1e30,
                                0.5,
                                "",
                                "gptq",
                                true,
                                false,
                                json::Value::array(),
                                json::Value::object()};
  if (random.below(3) == 0) {
    config["nobody_knows"] = 1;
    return;
  }
  json::Value* object = &config;
  for (const char* const inner : {"quantization_config", "text_config"}) {
    if (config.contains(inner) && random.below(2) == 0) object = &config[inner];
  }
  const std::string member = object->items()[random.below(object->size())].first;
  if (random.below(8) == 0) {
    object->erase(member);
  } else {
    (*object)[member] = values[random.below(std::size(values))];
  }
}

/// tools/check_verdicts.py asks the program, of more.
TEST_F(CommandsAgree, on_changed_configs) {
  using Make = TinyModel (*)();
  const Make makes[] = {sound_dense, sound_awq,    [] { return sound_gptq(); },
                        sound_mxfp4, sound_nvfp4,  sound_fp8,
                        sound_nf4,   sound_packed, sound_delta_net};
  constexpr int kConfigs = 100;
  Random random(57);
  for (int i = 0; i < kConfigs; ++i) {
    TinyModel model = makes[i % std::size(makes)]();
    change(model.config, random);
    SCOPED_TRACE(std::to_string(i) + ": " + model.config.text());
    const TempDir dir;
    write_model(model, dir);
    expect_agreement(dir.path(), i % 10 == 0);
  }
  EXPECT_GT(verdicts_["ok"], kConfigs / 4);
  EXPECT_GT(verdicts_.size(), 8u);
}

/// What lies beside the weights and changes the model is asked for in one place.
TEST_F(CommandsAgree, on_an_adapter_beside_the_weights) {
  write_model(sound_awq(), dir_);
  dir_.write("adapter_config.json", R"({"peft_type": "LORA"})");
  dir_.write("adapter_model.safetensors", "");
  const fs::path model = dir_.path();
  expect_agreement(model, true);
  EXPECT_EQ(verdicts_, (std::map<std::string, int>{{"model.adapter", 1}}));
  const TempDir out;
  PackOptions pack;
  pack.layout = "marlin";
  for (const std::string& code :
       {code_of(convert_model(model, out / "a", {.format = "gptq"}, pool_)),
        code_of(quantize_model(model, out / "a", {}, pool_)),
        code_of(pack_model(model, out / "a", pack, pool_)),
        code_of(diff_models(model, model, pool_)), code_of(open_matrices(model)),
        code_of(load_model(model, *backend_))}) {
    EXPECT_EQ(code, "model.adapter");
  }
  EXPECT_FALSE(fs::exists(out / "a"));
}

}  // namespace
}  // namespace subbyte::conformance
