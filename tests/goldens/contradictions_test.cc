// config.json against the tensors: what does not fit together is refused, not half loaded.

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "models/model.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// The code with which a golden is refused after its config was changed; "" when it loads.
std::string code_after(const std::string& golden, const std::function<void(Json&)>& change) {
  const TempDir folder;
  fs::copy(fs::path(SUBBYTE_TEST_DATA) / "goldens" / golden, folder / "model");
  fs::remove(folder / "model/reference.safetensors");
  Json config = Json::parse(folder.read("model/config.json"));
  change(config);
  folder.write("model/config.json", config.dump());
  const auto backend = testing::make_test_backend(1);
  const auto model = load_model(folder / "model", *backend);
  return model.ok() ? "" : std::string(model.error().code);
}

TEST(Contradictions, an_unchanged_golden_loads) {
  EXPECT_EQ(code_after("qwen3-bf16", [](Json&) {}), "");
}

TEST(Contradictions, more_layers_in_the_file_than_in_the_config) {
  EXPECT_EQ(
      code_after("qwen3-bf16", [](Json& c) { c["num_hidden_layers"] = 1, c.erase("layer_types"); }),
      "model.surplus");
}

TEST(Contradictions, a_method_that_no_weight_has) {
  EXPECT_EQ(
      code_after(
          "qwen3-bf16",
          [](Json& c) {
            c["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}};
          }),
      "import.config");
}

TEST(Contradictions, a_head_that_is_not_the_embedding_it_is_tied_to) {
  EXPECT_EQ(code_after("qwen3-bf16", [](Json& c) { c["tie_word_embeddings"] = true; }),
            "model.surplus");
}

TEST(Contradictions, two_rope_schemas_that_disagree) {
  EXPECT_EQ(code_after("qwen3-bf16", [](Json& c) { c["rope_theta"] = 5e5; }), "config.rope");
  EXPECT_EQ(code_after("qwen3-bf16",
                       [](Json& c) {
                         c["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
                       }),
            "config.rope");
}

TEST(Contradictions, two_rope_schemas_that_agree_load) {
  EXPECT_EQ(code_after("qwen3-bf16", [](Json& c) { c["rope_theta"] = 1e6; }), "");
}

}  // namespace
}  // namespace subbyte
