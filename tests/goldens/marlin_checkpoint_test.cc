// A GPTQ checkpoint stored in Marlin's layout, under both names of its tensors, made of one that is
// not: it is the same model, which runs, verifies and converts back to the bit.

#include <gtest/gtest.h>

#include <filesystem>

#include "base/thread_pool.h"
#include "checkpoints/containers/tensor_source.h"
#include "json/strict_json.h"
#include "models/model.h"
#include "support/json_of.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "support/test_tensors.h"
#include "transform/packing/pack_model.h"
#include "transform/transform.h"
#include "verify/verify.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

/// Names of words and scales, and the keys of the config that say so.
struct Names {
  std::string words;
  std::string scales;
  std::string config;
};

class MarlinCheckpointModel : public ::testing::TestWithParam<Names> {
 protected:
  void SetUp() override {
    QuantizeOptions options;
    options.format = "gptq";
    options.group_size = 128;
    options.symmetric = true;
    const auto quantized =
        quantize_model(fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-bf16", gptq_, options, pool_);
    ASSERT_TRUE(quantized.ok()) << quantized.error().message;
    PackOptions marlin;
    marlin.layout = "marlin";
    const auto packed = pack_model(gptq_, dir_ / "packed", marlin, pool_);
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    write_checkpoint_of_marlin();
  }

  /// The tensors of the packed directory under the names of other software.
  void write_checkpoint_of_marlin() {
    const auto packed = TensorSource::open_packed(dir_ / "packed");
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    std::vector<TestTensor> tensors;
    for (const auto& [name, tensor] : packed->tensors()) {
      std::string other = name;
      const auto rename = [&](const std::string& from, const std::string& to) {
        if (other.ends_with(from)) other = other.substr(0, other.size() - from.size()) + to;
      };
      rename(".packed.words", GetParam().words);
      rename(".packed.scales", GetParam().scales);
      const char* const bytes = reinterpret_cast<const char*>(tensor.bytes.data());
      tensors.push_back(
          {other, tensor.dtype, tensor.shape, std::string(bytes, tensor.bytes.size())});
    }
    json::Value config = json_of(dir_.read("gptq/config.json"));
    config["quantization_config"] = json_of(GetParam().config);
    dir_.write("marlin/config.json", config.text());
    ASSERT_TRUE(write_tensors(marlin_ / "model.safetensors", tensors).ok());
  }

  static std::vector<float> logits(const fs::path& path) {
    const auto backend = testing::make_test_backend(2);
    const auto model = load_model(path, *backend);
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (!model.ok()) return {};
    const std::vector<int32_t> tokens = {3, 141, 59, 265, 358, 97, 93, 238, 46, 264};
    return testing::logits_of(**model, *backend, tokens);
  }

  TempDir dir_;
  fs::path gptq_ = dir_ / "gptq";
  fs::path marlin_ = dir_ / "marlin";
  ThreadPool pool_{2};
};

TEST_P(MarlinCheckpointModel, is_the_model_that_it_was_made_of) {
  const auto diff = diff_models(gptq_, marlin_, pool_);
  ASSERT_TRUE(diff.ok()) << diff.error().message;
  EXPECT_TRUE(diff->same_values());
  EXPECT_FALSE(diff->same_bytes());
  const auto expected = logits(gptq_);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(logits(marlin_), expected);
}

TEST_P(MarlinCheckpointModel, verifies_and_converts_back_to_the_bit) {
  const auto report = verify(marlin_, {}, pool_);
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (const Finding& finding : report->findings) {
    EXPECT_NE(finding.severity, Severity::kError) << to_string(finding);
  }
  ConvertOptions options;
  options.format = "gptq";
  const auto converted = convert_model(marlin_, dir_ / "back", options, pool_);
  ASSERT_TRUE(converted.ok()) << converted.error().message;
  const auto diff = diff_models(gptq_, dir_ / "back", pool_);
  ASSERT_TRUE(diff.ok()) << diff.error().message;
  EXPECT_TRUE(diff->same_bytes());
}

INSTANTIATE_TEST_SUITE_P(
    All, MarlinCheckpointModel,
    ::testing::Values(Names{".B", ".s", R"({"quant_method": "marlin", "group_size": 128})"},
                      Names{".B", ".s",
                            R"({"quant_method": "gptq", "bits": 4, "group_size": 128,
                                "sym": true, "desc_act": false, "is_marlin_format": true})"},
                      Names{".qweight", ".scales",
                            R"({"quant_method": "gptq", "bits": 4, "group_size": 128,
                                "sym": true, "checkpoint_format": "marlin"})"}),
    [](const auto& test) { return "form_" + std::to_string(test.index); });

}  // namespace
}  // namespace subbyte
