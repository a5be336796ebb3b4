// Parts that nobody reads, beside a text model: they keep no command from it, and what is written
// has their bytes.

#include <gtest/gtest.h>

#include <algorithm>

#include "base/thread_pool.h"
#include "models/checkpoint.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "transform/transform.h"
#include "verify/inspect.h"
#include "verify/sound_models.h"

namespace subbyte::conformance {
namespace {

constexpr uint64_t kSize = 128;
constexpr const char* kDraft = "mtp.layers.0.mlp.gate_proj";

/// A matrix of a draft head in blocks of FP8, as published files have it.
void add_draft_in_fp8(TinyModel& model) {
  Random random(11);
  TestTensor codes =
      random_bits(std::string(kDraft) + ".weight", DType::kF8E4M3, {kSize, kSize}, random);
  for (char& code : codes.bytes) code = static_cast<char>(code & 0x3F);
  model.tensors.push_back(codes);
  model.tensors.push_back(
      filled<uint16_t>(std::string(kDraft) + ".weight_scale_inv", DType::kBF16, {1, 1}, 0x3C00));
  model.tensors.push_back(random_floats("model.visual.patch.weight", DType::kBF16, {8, 8}, random));
}

/// A text model in which one matrix is NVFP4 of ModelOpt.
TinyModel nvfp4_text() {
  TinyModel model = sound_delta_net();
  const TinyModel other = sound_nvfp4();
  model.quantization() = {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}};
  model.remove(std::string(kUp) + ".weight");
  for (const TestTensor& tensor : other.tensors) {
    if (tensor.name.starts_with(kUp)) model.tensors.push_back(tensor);
  }
  return model;
}

class UnreadParts : public ::testing::Test {
 protected:
  void write(const TinyModel& model) {
    for (const auto& [name, content] : model.files()) dir_.write("model/" + name, content);
  }
  std::filesystem::path model() const { return dir_.path() / "model"; }

  void expect_sound() {
    const VerifyReport report = verify_path(model());
    EXPECT_EQ(report.count(Severity::kError), 0) << lines(report).front();
    const auto found = inspect(model(), backend_->host(), backend_.get());
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->problems, std::vector<std::string>());
    EXPECT_EQ(found->unread, 3);
    const auto summary = summarize(open_checkpoint(model()), pool_);
    EXPECT_TRUE(summary.verdict.ok()) << to_string(summary.verdict.error());
  }

  /// What nobody reads has the same bytes in both.
  void expect_copied(const std::filesystem::path& result) {
    const auto before = TensorSource::open(model());
    const auto after = TensorSource::open(result);
    ASSERT_TRUE(before.ok() && after.ok());
    for (const auto& [name, tensor] : before->tensors()) {
      if (!name.starts_with("mtp.") && !name.starts_with("model.visual.")) continue;
      const FileTensor* const copy = after->find(name);
      ASSERT_NE(copy, nullptr) << name;
      EXPECT_EQ(copy->dtype, tensor.dtype) << name;
      EXPECT_TRUE(std::ranges::equal(copy->bytes, tensor.bytes)) << name;
    }
  }

  void expect_converted(const char* format) {
    const std::filesystem::path result = dir_.path() / format;
    std::string said;
    const ConvertOptions options = {
        .format = format, .allow_lossy = true, .notice = [&](const auto& line) { said += line; }};
    const auto report = convert_model(model(), result, options, pool_);
    ASSERT_TRUE(report.ok()) << report.error().message;
    expect_copied(result);
    EXPECT_NE(said.find(kDraft), std::string::npos) << said;
    const auto diff = diff_models(model(), result, pool_);
    ASSERT_TRUE(diff.ok()) << diff.error().message;
    for (const ComparedWeight& weight : diff->weights) {
      if (weight.name.starts_with("mtp.")) {
        EXPECT_EQ(weight.verdict, ComparedWeight::Verdict::kSameBytes) << weight.name;
      }
    }
  }

  TempDir dir_;
  ThreadPool pool_{2};
  std::unique_ptr<Backend> backend_ = testing::make_test_backend(1);
};

TEST_F(UnreadParts, in_another_format_than_the_text_are_copied) {
  TinyModel tiny = nvfp4_text();
  add_draft_in_fp8(tiny);
  write(tiny);
  expect_sound();
  expect_converted("bf16");
  expect_converted("nvfp4_pack_quantized");
  const auto again = quantize_model(model(), dir_.path() / "q", {}, pool_);
  EXPECT_EQ(again.error().code, "quantize.already_quantized");
}

TEST_F(UnreadParts, may_have_an_algorithm_that_nobody_knows) {
  TinyModel tiny = nvfp4_text();
  add_draft_in_fp8(tiny);
  json::Value& config = tiny.quantization();
  config["quant_algo"] = "MIXED_PRECISION";
  config["quantized_layers"] = {{std::string(kUp), {{"quant_algo", "NVFP4"}, {"group_size", 16}}},
                                {kDraft, {{"quant_algo", "FP8_BLOCK_SCALES"}}}};
  write(tiny);
  expect_sound();
  expect_converted("bf16");
  // Of a module that is read it is an error, which names the entry.
  config["quantized_layers"]["model.layers.0.mlp.down_proj"] = {{"quant_algo", "SECRET"}};
  write(tiny);
  const Status loaded = check_loading(model(), *backend_, Reads::kHeaders);
  ASSERT_EQ(loaded.error().code, "quantization.algorithm") << loaded.error().message;
  EXPECT_NE(loaded.error().message.find("down_proj.quant_algo"), std::string::npos)
      << loaded.error().message;
}

TEST_F(UnreadParts, may_be_all_that_is_quantized) {
  TinyModel tiny = sound_delta_net();
  add_draft_in_fp8(tiny);
  tiny.quantization() = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  write(tiny);
  expect_sound();
  const auto made = quantize_model(
      model(), dir_.path() / "q", {.format = "gptq", .group_size = 16, .allow_lossy = true}, pool_);
  ASSERT_TRUE(made.ok()) << made.error().message;
  expect_copied(dir_.path() / "q");
  const VerifyReport report = verify_path(dir_.path() / "q");
  EXPECT_EQ(report.count(Severity::kError), 0) << lines(report).front();
}

TEST_F(UnreadParts, may_have_broken_tensors) {
  TinyModel tiny = nvfp4_text();
  add_draft_in_fp8(tiny);
  for (TestTensor& tensor : tiny.tensors) {
    if (tensor.name.ends_with(".weight_scale_inv")) tensor.set<uint16_t>(0, 0x7FC0);  // NaN
    if (tensor.name.starts_with("mtp.") && tensor.name.ends_with(".weight")) {
      tensor.shape = {kSize * 2, kSize / 2};  // which those factors are not for
    }
  }
  write(tiny);
  expect_sound();
  expect_converted("bf16");
}

}  // namespace
}  // namespace subbyte::conformance
