// A checkpoint of Qwen3 in AWQ, written as a model file of OrinMLLM, is the same model.

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoints/containers/orin_model.h"
#include "checkpoints/model_path.h"
#include "models/model.h"
#include "support/orin_bytes.h"
#include "support/orin_files.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "verify/inspect.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

class OrinModels : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto source = TensorSource::open(golden_);
    const auto config = ModelFiles(golden_).config();
    ASSERT_TRUE(source.ok() && config.ok());
    const auto header = orin_header(*config->object());
    ASSERT_TRUE(header.ok()) << header.error().message;
    const Status written = write_orin_checkpoint(dir_.path(), *header, *source);
    ASSERT_TRUE(written.ok()) << written.error().message;
  }

  std::vector<float> logits(const fs::path& path) {
    const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
    const auto model = load_model(path, *backend_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (!model.ok()) return {};
    return testing::logits_of(**model, *backend_, tokens);
  }

  const fs::path golden_ = fs::path(SUBBYTE_TEST_DATA) / "goldens/qwen3-awq";
  TempDir dir_;
  const fs::path file_ = dir_ / kOrinFileName;
  std::unique_ptr<Backend> backend_ = testing::make_test_backend(2);
};

TEST_F(OrinModels, give_the_logits_of_the_checkpoint) {
  const auto expected = logits(golden_);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(logits(file_), expected);
}

TEST_F(OrinModels, are_found_and_take_the_end_from_beside_them) {
  const auto found = find_model(file_.string());
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(*found, file_);
  EXPECT_EQ(read_model_config(file_)->eos_tokens, std::vector<int32_t>());
  dir_.write("generation_config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(read_model_config(file_)->eos_tokens, std::vector<int32_t>{7});
  EXPECT_EQ(find_model(dir_.write("other.bin", "words").string()).error().code, "model.not_found");
}

TEST_F(OrinModels, are_inspected) {
  const auto found = inspect(file_, backend_->host());
  const auto expected = inspect(golden_, backend_->host());
  ASSERT_TRUE(found.ok() && expected.ok());
  EXPECT_EQ(found->architecture, "qwen3");
  EXPECT_EQ(found->quantization, "awq");
  EXPECT_TRUE(found->problems.empty());
  EXPECT_EQ(found->files, std::vector{file_.string()});
  EXPECT_EQ(found->bytes, expected->bytes);
  ASSERT_EQ(found->weights.size(), expected->weights.size());
  for (std::size_t i = 0; i < found->weights.size(); ++i) {
    EXPECT_EQ(found->weights[i].name, expected->weights[i].name);
    EXPECT_EQ(found->weights[i].format, expected->weights[i].format);
  }
}

TEST_F(OrinModels, that_cannot_run_are_inspected_all_the_same) {
  const OrinBytes q8 = {.magic = 0x616B3432, .version = 2, .rest = {8}, .data = 6560};
  const fs::path path = dir_.write("q8.bin", q8.text());
  const auto found = inspect(path, backend_->host());
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->problems.size(), 1u);  // the architecture
  const auto weight =
      std::ranges::find(found->weights, "model.layers.1.mlp.up_proj", &InspectedWeight::name);
  ASSERT_NE(weight, found->weights.end());
  EXPECT_EQ(weight->flavour, "q8_0");
  EXPECT_EQ(load_model(path, *backend_).error().code, "config.model_type");

  OrinBytes longer;
  longer.positions = 262144;
  const fs::path later = dir_.write("later.bin", longer.text());
  EXPECT_EQ(inspect(later, backend_->host())->problems.size(), 1u);
  EXPECT_EQ(load_model(later, *backend_).error().code, "json.type");
}

}  // namespace
}  // namespace subbyte
