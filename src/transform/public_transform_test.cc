// Public checkpoints and what is made of them, on the demo model.
#include "subbyte/transform.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "subbyte/checkpoint.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace {

using namespace subbyte;
namespace fs = std::filesystem;

fs::path demo_model() {
  return fs::path(kTestData) / "../../demo/model";
}

TEST(PublicCheckpoint, has_modules_matrices_and_tensors) {
  const Checkpoint checkpoint = Checkpoint::open(demo_model(), make_threads(2)).value();
  std::set<std::string> names;
  for (const FoundModule& module : checkpoint.modules()) {
    EXPECT_TRUE(module.info.ok()) << module.name;
    names.insert(module.name);
  }
  ASSERT_TRUE(names.contains("model.layers.0.self_attn.q_proj"));
  const Matrix w = checkpoint.matrix("model.layers.0.self_attn.q_proj").value();
  EXPECT_EQ(w.view.cols, 384);
  const FileTensor scales = checkpoint.tensor("model.layers.0.self_attn.q_proj.scales").value();
  EXPECT_EQ(name(scales.dtype), "F16");
  EXPECT_EQ(scales.shape,
            (std::vector<uint64_t>{static_cast<uint64_t>(w.view.cols / w.view.format.group_size),
                                   static_cast<uint64_t>(w.view.rows)}));
  const auto norm = checkpoint.numbers("model.norm.weight").value();
  EXPECT_EQ(std::ssize(norm), 384);
  EXPECT_EQ(checkpoint.matrix("none").error().code, "import.missing");
  EXPECT_EQ(checkpoint.tensor("none").error().code, "import.missing");
  EXPECT_TRUE(checkpoint.verify_unchanged().ok());
  EXPECT_EQ(Checkpoint::open("/none").error().code, "model.not_found");
}

TEST(PublicCheckpoint, matrices_outlive_it) {
  std::optional<Checkpoint> checkpoint = Checkpoint::open(demo_model()).value();
  const Matrix w = checkpoint->matrix("model.layers.0.mlp.up_proj").value();
  std::vector<float> before(w.view.cols);
  ASSERT_TRUE(w.dequantize(0, before).ok());
  checkpoint.reset();
  std::vector<float> after(w.view.cols);
  ASSERT_TRUE(w.dequantize(0, after).ok());
  EXPECT_EQ(before, after);
}

TEST(PublicTransform, converts_without_loss_and_back_to_floats) {
  const TempDir folder;
  uint64_t last = 0;
  ConvertOptions options = {.format = "compressed-tensors"};
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    last = done;
  };
  const auto report = convert_model(demo_model(), folder.path() / "ct", options).value();
  EXPECT_EQ(report.rounded_matrices, 0);
  EXPECT_GT(last, 0u);
  EXPECT_TRUE(diff_models(demo_model(), folder.path() / "ct").value().same_values());
  EXPECT_EQ(verify(folder.path() / "ct").value().count(Severity::kError), 0);
  EXPECT_EQ(convert_model(demo_model(), folder.path() / "x", {.format = "none"}).error().code,
            "convert.format");
  EXPECT_FALSE(fs::exists(folder.path() / "x"));
}

TEST(PublicTransform, quantizes_floats) {
  const TempDir folder;
  const fs::path floats = folder.path() / "f32";
  ASSERT_TRUE(convert_model(demo_model(), floats, {.format = "f32"}).ok());
  const auto report = quantize_model(floats, folder.path() / "mxfp4", {.format = "mxfp4"}).value();
  EXPECT_EQ(report.group_size, 32);
  EXPECT_EQ(report.bits_per_weight, 4.25);
  EXPECT_GT(report.signal_to_noise_db, 10);
  const auto compared = diff_models(floats, folder.path() / "mxfp4").value();
  EXPECT_FALSE(compared.same_values());
  const Inspection inspection = inspect(folder.path() / "mxfp4").value();
  EXPECT_TRUE(inspection.problems.empty());
  EXPECT_EQ(quantize_model(demo_model(), folder.path() / "x").error().code,
            "quantize.already_quantized");
}

TEST(PublicVerify, finds_what_is_damaged) {
  const TempDir folder;
  fs::copy(demo_model(), folder.path() / "model", fs::copy_options::recursive);
  {
    std::fstream file(folder.path() / "model/config.json", std::ios::out | std::ios::trunc);
    file << "{\"model_type\": \"qwen3\"}";
  }
  const VerifyReport report = verify(folder.path() / "model", {.checksums = true}).value();
  EXPECT_GT(report.count(Severity::kError), 0);
  EXPECT_EQ(report.checksums.size(), report.num_tensors);
  EXPECT_EQ(verify(demo_model()).value().count(Severity::kError), 0);
}

}  // namespace
