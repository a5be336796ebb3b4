// What six commands say with --json that a checkpoint is, with a result and with an error.
// tools/check_verdicts.py asks them of more.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/process.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kData = SUBBYTE_TEST_DATA;

class CheckpointJson : public ::testing::Test {
 protected:
  /// The member "checkpoint" of each command, which is the same.
  Json said(const std::string& model) {
    const std::string to = (dir_ / "to").string();
    const std::vector<std::vector<std::string>> commands = {
        {"inspect", model},
        {"verify", model},
        {"run", model, "-p", "a", "-n", "1"},
        {"convert", model, to, "--to", "bf16", "--allow-lossy"},
        {"diff", model, model},
        {"quantize", model, to + "q", "--allow-lossy"}};
    Json first;
    for (std::vector<std::string> command : commands) {
      command.emplace_back("--json");
      const ProcessResult result = run_program(command);
      const Json answer = Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
      EXPECT_TRUE(answer.is_object() && answer.contains("checkpoint")) << command[0] << result.out;
      if (!answer.is_object() || !answer.contains("checkpoint")) continue;
      if (first.is_null()) first = answer["checkpoint"];
      EXPECT_EQ(answer["checkpoint"], first) << command[0];
      EXPECT_EQ(answer.contains("error"), result.exit_code == 1 || result.exit_code == 2)
          << command[0];
    }
    return first;
  }

  TempDir dir_;
};

TEST_F(CheckpointJson, is_the_same_with_results_and_with_errors) {
  const Json demo = said((kData / "../../demo/model").string());
  EXPECT_EQ(demo.at("kind"), "qwen3");
  EXPECT_EQ(demo.at("verdict"), "ok");
  EXPECT_GT(demo.at("formats").size(), 1u);
}

TEST_F(CheckpointJson, counts_experts_of_a_model_without_a_tokenizer) {
  const Json said_of = said((kData / "goldens/gpt-oss-mxfp4").string());
  EXPECT_EQ(said_of.at("verdict"), "ok");
  EXPECT_EQ(said_of.at("formats").at(1),
            (Json{{"format", "e2m1 g32 scale e8m0"}, {"matrices", 64}}));
}

TEST_F(CheckpointJson, has_the_code_of_what_is_refused) {
  fs::copy(kData / "goldens/qwen3-awq", dir_ / "model");
  Json config = Json::parse(dir_.read("model/config.json"));
  config["intermediate_size"] = 999;
  dir_.write("model/config.json", config.dump());
  EXPECT_EQ(said((dir_ / "model").string()).at("verdict"), "model.weight_shape");
  config["model_type"] = "another";
  dir_.write("model/config.json", config.dump());
  const Json other = said((dir_ / "model").string());
  EXPECT_EQ(other.at("kind"), "another");
  EXPECT_EQ(other.at("verdict"), "config.model_type");
  dir_.write("model/adapter_config.json", "{}");
  EXPECT_EQ(said((dir_ / "model").string()).at("verdict"), "model.adapter");
}

}  // namespace
}  // namespace subbyte
