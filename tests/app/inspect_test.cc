// What inspect says, in text and in JSON.

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "app/process.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kData = SUBBYTE_TEST_DATA;

/// A golden with a tokenizer, as `run` wants one.
std::string golden_with_tokenizer(const TempDir& folder, const std::string& name) {
  fs::copy(golden(name), folder / "model");
  fs::copy(kData / "tokenizers" / "qwen.tokenizer.json", folder / "model/tokenizer.json");
  return (folder / "model").string();
}

TEST(Inspect, json_names_formats_and_bits) {
  const TempDir folder;
  const ProcessResult result =
      run_program({"inspect", golden_with_tokenizer(folder, "gpt-oss-mxfp4"), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json root = Json::parse(result.out);
  EXPECT_EQ(root.at("architecture"), "gpt_oss");
  EXPECT_EQ(root.at("quantization"), "mxfp4");
  bool seen = false;
  for (const Json& tensor : root.at("tensors")) {
    if (tensor.at("name") != "model.layers.0.mlp.experts.gate_up_proj") continue;
    seen = true;
    EXPECT_EQ(tensor.at("kind"), "mxfp4");
    EXPECT_DOUBLE_EQ(tensor.at("bits_per_weight").get<double>(), 4.25);
    EXPECT_EQ(tensor.at("shape"), Json({8, 256, 128}));
  }
  EXPECT_TRUE(seen);
}

TEST(Inspect, stages_have_all_layers_and_their_bytes) {
  const ProcessResult result =
      run_program({"inspect", golden("qwen3-awq"), "--pipeline-parallel", "2", "--json"});
  const Json root = Json::parse(result.out);
  const Json& stages = root.at("pipeline_parallel").at("stages");
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].at("first_layer"), 0);
  EXPECT_EQ(stages[1].at("first_layer"), stages[0].at("layers"));
  EXPECT_EQ(stages[0].at("has_head"), false);
  EXPECT_EQ(stages[1].at("has_head"), true);
  for (const Json& stage : stages) {
    EXPECT_GT(stage.at("weight_bytes"), 0);
    EXPECT_GT(stage.at("cache_bytes"), 0);
  }
  const ProcessResult page =
      run_program({"inspect", golden("qwen3-awq"), "--pipeline-parallel", "2"});
  EXPECT_NE(page.out.find("and the head: "), std::string::npos) << page.out;
}

TEST(Inspect, a_page_joins_layers_and_says_what_a_run_takes) {
  const std::string page = run_program({"inspect", golden("qwen3-awq")}).out;
  for (const char* text :
       {"2 of width 256, 4 heads of 64, 2 of keys and values\n", "512 positions\n",
        "1.0 kB a position",  // 2 layers x 2 heads x 64 numbers x 2 x 16 bits
        "\nmodel.layers.0-1\n", "\n  mlp.down_proj ", "\nmodel.norm "}) {
    EXPECT_NE(page.find(text), std::string::npos) << text << "\n" << page;
  }
  EXPECT_EQ(page.find("model.layers.1\n"), std::string::npos);
  const std::string all = run_program({"inspect", golden("qwen3-awq"), "--tensors"}).out;
  EXPECT_NE(all.find("\nmodel.layers.1\n"), std::string::npos);
  EXPECT_EQ(all.find("layers.0-1"), std::string::npos);
  const std::string file = golden("qwen3-awq") + "/model.safetensors";
  EXPECT_EQ(run_program({"inspect", file}).out.find("a weight"), std::string::npos);
}

/// It is right for `logits` and `convert`, as `verify` says, too.
TEST(Inspect, a_model_without_a_tokenizer_has_a_note_that_says_what_to_do) {
  const ProcessResult inspected = run_program({"inspect", golden("qwen3-awq"), "--json"});
  EXPECT_EQ(inspected.exit_code, 0);
  EXPECT_EQ(Json::parse(inspected.out).at("problems"), Json::array());
  const Json notes = Json::parse(inspected.out).at("notes");
  ASSERT_EQ(notes.size(), 1u);
  const auto note = notes[0].get<std::string>();
  EXPECT_NE(note.find("copy it from the model that this one was made from"), std::string::npos);
  EXPECT_NE(run_program({"inspect", golden("qwen3-awq")}).out.find("\nnote: " + note),
            std::string::npos);
  const ProcessResult run = run_program({"run", golden("qwen3-awq"), "-p", "a"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find(note), std::string::npos) << run.err;
  const TempDir folder;
  const ProcessResult whole =
      run_program({"inspect", golden_with_tokenizer(folder, "qwen3-awq"), "--json"});
  EXPECT_EQ(Json::parse(whole.out).at("notes"), Json::array());
}

TEST(Inspect, contradictions_are_listed_and_exit_with_3) {
  const TempDir folder;
  const fs::path model = folder.path() / "model";
  fs::copy(golden("qwen3-awq"), model);
  Json config = Json::parse(folder.read("model/config.json"));
  config["quantization_config"]["group_size"] = 64;
  folder.write("model/config.json", config.dump());
  const ProcessResult result = run_program({"inspect", model.string()});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.out.find("group_size is 64, but"), std::string::npos) << result.out;
  EXPECT_EQ(run_program({"run", model.string(), "-p", "x"}).exit_code, 1);
}

/// What the page says, as numbers.
std::vector<double> numbers_in(const std::string& line) {
  std::vector<double> numbers;
  const std::regex number("[0-9]+(\\.[0-9]+)?");
  for (std::sregex_iterator at(line.begin(), line.end(), number), end; at != end; ++at) {
    if (at->position() == 0 || !std::isalpha(line[at->position() - 1])) {
      numbers.push_back(std::stod(at->str()));
    }
  }
  return numbers;
}

TEST(Inspect, says_in_json_all_that_it_says_in_text) {
  const TempDir folder;
  for (const char* arch : {"qwen3", "qwen3-moe"}) {
    const std::string model = (folder / arch).string();
    ASSERT_EQ(run_program({"synth", model, "--arch", arch, "--shape", "tiny"}).exit_code, 0);
    const std::string page = run_program({"inspect", model}).out;
    const Json json = Json::parse(run_program({"inspect", model, "--json"}).out);
    const Json& facts = json.at("model");
    const auto mega = [](const Json& bytes) { return std::round(bytes.get<double>() / 1e5) / 10; };
    const std::map<std::string, std::vector<double>> expected = {
        {"layers",
         {facts.at("layers"), facts.at("width"), facts.at("heads"), facts.at("head_width"),
          facts.at("key_value_heads")}},
        {"experts", {facts.at("experts"), facts.at("experts_per_token")}},
        {"vocabulary", {facts.at("vocabulary")}},
        {"context", {facts.at("context")}},
        {"cache", {facts.at("cache_bytes_per_position").get<double>() / 1e3}},
        {"memory", {mega(json.at("bytes")), mega(facts.at("full_context_bytes"))}}};
    std::istringstream lines(page);
    std::set<std::string> seen;
    for (std::string line; std::getline(lines, line) && !line.empty();) {
      const std::string name = line.substr(0, line.find(' '));
      seen.insert(name);
      if (!expected.contains(name)) continue;
      const auto found = numbers_in(line);
      ASSERT_EQ(found.size(), expected.at(name).size()) << line;
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i], expected.at(name)[i], 0.051) << line;
      }
    }
    for (const auto& [name, values] : expected) {
      EXPECT_EQ(seen.contains(name), name != "experts" || arch != std::string("qwen3")) << name;
    }
    EXPECT_NE(page.find("architecture  " + json.at("architecture").get<std::string>() + "\n"),
              page.npos);
    EXPECT_NE(page.find("quantization  " + json.at("quantization").get<std::string>() + "\n"),
              page.npos);
  }
}

}  // namespace
}  // namespace subbyte
