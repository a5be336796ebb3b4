// Small inputs that once cost work and memory that their size does not justify.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "app/process.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// More than any of these commands takes on a slow machine under a sanitizer.
constexpr int64_t kManySeconds = 60;

class Work : public testing::Test {
 protected:
  void make(std::vector<std::string> options) {
    options.insert(options.begin(), {"synth", path("model"), "--shape", "tiny"});
    ASSERT_EQ(run_program(options).exit_code, 0);
  }

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  void change(const std::string& file, const std::function<void(Json&)>& change) {
    const std::string text = folder_.read("model/" + file);
    Json value = text.empty() ? Json::object() : Json::parse(text);
    change(value);
    folder_.write("model/" + file, value.dump());
  }

  /// Adds a tensor, whose bytes are `fill`.
  void add(const std::string& name, const char* dtype, const std::vector<uint64_t>& shape,
           std::size_t bytes, char fill = 0) {
    header_[name] = {
        {"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes}}};
    data_.append(bytes, fill);
  }

  void write_tensors() {
    const std::string header = header_.dump();
    const uint64_t size = header.size();
    folder_.write("model/model.safetensors",
                  std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data_);
  }

  ProcessResult run(std::vector<std::string> arguments) {
    return run_program(arguments, {.max_cpu_seconds = kManySeconds});
  }

  TempDir folder_;
  Json header_ = Json::object();
  std::string data_;
};

TEST_F(Work, of_verify_does_not_grow_with_layers_times_experts) {
  make({"--arch", "qwen3-moe", "--format", "bf16"});
  change("config.json", [](Json& config) {
    config["num_hidden_layers"] = 1024;
    config["num_experts"] = 4096;
    config["num_experts_per_tok"] = 1;
  });
  for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
    add(std::string("model.layers.0.mlp.experts.7.") + part + ".weight", "BF16", {0, 0}, 0);
  }
  write_tensors();
  const ProcessResult result = run({"verify", path("model"), "--json"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_LT(result.max_resident_bytes, 200 << 20);
  // One finding for all that are missing of a stack.
  const Json report = Json::parse(result.out);
  int stacks = 0;
  for (const Json& finding : report.at("findings")) {
    const std::string where = finding.at("where");
    stacks += where.starts_with("model.layers.0.mlp.experts.") ? 1 : 0;
  }
  EXPECT_EQ(stacks, 2);  // gate and up are one
  // And one for all layers of which nothing is there.
  EXPECT_LT(report.at("findings").size(), 20u);
  EXPECT_NE(result.out.find("none in 1023 of the 1024 layers"), std::string::npos);
}

TEST_F(Work, of_verify_does_not_grow_with_the_square_of_a_template) {
  make({});
  change("tokenizer_config.json", [](Json& config) {
    std::string text;
    for (int i = 0; i < 500'000; ++i) text += "<|";
    config["chat_template"] = text + "im_end|>";
  });
  EXPECT_NE(run({"verify", path("model")}).exit_code, 128 + 24);
}

TEST_F(Work, of_run_does_not_grow_with_the_square_of_templates_in_a_folder) {
  make({});
  fs::create_directory(path("model/additional_chat_templates"));
  for (int i = 0; i < 20'000; ++i) {
    folder_.write("model/additional_chat_templates/" + std::to_string(i) + ".jinja", "x");
  }
  // One comparison for each pair of them took 27 seconds.
  const ProcessResult result = run_program({"run", path("model"), "-p", "a", "-n", "1"},
                                           {.max_cpu_seconds = kManySeconds / 5});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(Work, of_diff_and_convert_does_not_grow_with_rows_that_are_empty) {
  make({"--arch", "gpt-oss", "--format", "mxfp4"});
  const std::string stack = "model.layers.0.mlp.experts.gate_up_proj";
  add(stack + "_blocks", "U8", {2, 64, 1, 16}, 2 * 64 * 16);
  add(stack + "_scales", "U8", {2, 64, 1}, 2 * 64, 127);
  add(stack + "_bias", "BF16", {uint64_t{1} << 40, 0}, 0);
  write_tensors();
  EXPECT_EQ(run({"diff", path("model"), path("model")}).exit_code, 0);
  const ProcessResult result =
      run({"convert", path("model"), path("out"), "--to", "mxfp4_pack_quantized"});
  EXPECT_NE(result.exit_code, 128 + 24) << result.err;
  EXPECT_LT(result.max_resident_bytes, 200 << 20);
}

/// A page of memory for each matrix of 32 bytes would be 160 MB.
TEST_F(Work, of_convert_takes_no_page_for_each_tiny_expert) {
  constexpr uint64_t kExperts = 10'000;
  make({"--arch", "gpt-oss", "--format", "mxfp4"});
  const std::string stack = "model.layers.0.mlp.experts.gate_up_proj";
  add(stack + "_blocks", "U8", {kExperts, 2, 1, 16}, kExperts * 32);
  add(stack + "_scales", "U8", {kExperts, 2, 1}, kExperts * 2, 127);
  write_tensors();
  const ProcessResult result =
      run({"convert", path("model"), path("out"), "--to", "mxfp4_pack_quantized"});
  EXPECT_LT(result.max_resident_bytes, 128 << 20) << result.err;
}

}  // namespace
}  // namespace subbyte
