// subbyte logits: what the program writes of a golden model, beside the reference.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "app/process.h"
#include "checkpoints/containers/tensor_source.h"
#include "models/model_config.h"
#include "support/golden_bound.h"
#include "support/goldens.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::vector<T> tensor_values(const TensorSource& source, const std::string& name) {
  const FileTensor* tensor = source.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

class Logits : public ::testing::TestWithParam<const char*> {};

TEST_P(Logits, of_the_command_are_those_of_the_reference) {
  const TempDir folder;
  auto reference = TensorSource::open(testing::golden_folder(GetParam()) / "reference.safetensors");
  ASSERT_TRUE(reference.ok());
  const auto config = read_model_config(testing::golden_folder(GetParam()));
  ASSERT_TRUE(config.ok());
  const std::string isa = testing::isa_of(*testing::make_test_backend(1));
  const auto rounding = testing::rounding_of(isa, Activations::kF32, true);
  for (int prompt = 0; prompt < 3; ++prompt) {
    const std::string prefix = "prompt" + std::to_string(prompt);
    const auto ids = tensor_values<int32_t>(*reference, prefix + ".ids");
    const auto expected = tensor_values<float>(*reference, prefix + ".logits");
    std::string list;
    for (const int32_t id : ids) list += (list.empty() ? "" : ",") + std::to_string(id);
    const fs::path file = folder.path() / (prefix + ".safetensors");
    const ProcessResult result = run_program({"logits", testing::golden_folder(GetParam()).string(),
                                              "--ids", list, "--out", file.string()});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    auto output = TensorSource::open(file);
    ASSERT_TRUE(output.ok()) << output.error().message;
    EXPECT_EQ(output->find("logits")->shape, reference->find(prefix + ".logits")->shape);
    const auto found = tensor_values<float>(*output, "logits");
    ASSERT_EQ(found.size(), expected.size());
    const double tolerance = testing::golden_tolerance(*config, expected, rounding);
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], tolerance) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Logits, ::testing::ValuesIn(testing::goldens(testing::kEveryWay)),
                         NamedByValue());

TEST(LogitsOutput, replaces_no_file_of_the_model_and_wants_tokens) {
  const TempDir folder;
  const fs::path model = folder / "model";
  fs::copy(testing::golden_folder("qwen3-awq"), model);
  for (const char* name : {"config.json", "model.safetensors"}) {
    const auto size = fs::file_size(model / name);
    const ProcessResult result = run_program({"logits", model.string(), "--ids", "1", "--force",
                                              "-o", (model / "../model" / name).string()});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find("is a file of the model, not overwritten [file.exists]"),
              std::string::npos)
        << result.err;
    EXPECT_EQ(fs::file_size(model / name), size);
  }
  std::ofstream(model / "logits.safetensors") << "mine";
  const std::string own = (model / "logits.safetensors").string();
  EXPECT_EQ(run_program({"logits", model.string(), "--ids", "1", "--force", "-o", own}).exit_code,
            0);
  const ProcessResult none =
      run_program({"logits", model.string(), "--ids", "", "-o", (folder / "x").string()});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("expected at least one token id [usage.ids]"), std::string::npos)
      << none.err;
  EXPECT_FALSE(fs::exists(folder / "x"));
}

}  // namespace
}  // namespace subbyte
