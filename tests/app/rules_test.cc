// What lies in a model's directory and would change its answers is used or refused by name, by all
// commands alike; and what is sampled with is said (docs/model_files.md).

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

#include "app/process.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const fs::path kModel = fs::path(SUBBYTE_TEST_DATA) / "../../demo/model";

/// A copy of the demo model whose files are changed.
class Rules : public testing::Test {
 protected:
  Rules() { fs::copy(kModel, model_); }

  void change(const char* file, const Json& patch) {
    Json value = fs::exists(model_ / file) ? Json::parse(folder_.read(std::string("model/") + file))
                                           : Json::object();
    for (const auto& [key, one] : patch.items()) value[key] = one;
    folder_.write(std::string("model/") + file, value.dump());
  }
  ProcessResult call(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, model_.string());
    return run_program(arguments);
  }
  /// run, inspect and verify say the same, and each names what is wrong.
  void expect_refused(const std::string& code, const std::string& named) {
    const ProcessResult run = call({"run", "-p", "Hi", "-n", "1"});
    EXPECT_EQ(run.exit_code, 1) << named;
    EXPECT_NE(run.err.find(named), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("[" + code + "]"), std::string::npos) << run.err;
    const ProcessResult inspect = call({"inspect"});
    EXPECT_NE(inspect.exit_code, 0) << named;
    EXPECT_NE((inspect.out + inspect.err).find(named), std::string::npos) << inspect.out;
    const ProcessResult verify = call({"verify"});
    EXPECT_EQ(verify.exit_code, 3) << named;
    EXPECT_NE(verify.out.find("error    " + code), std::string::npos) << verify.out;
  }
  void expect_taken() {
    EXPECT_EQ(call({"run", "-p", "Hi", "-n", "1"}).exit_code, 0);
    EXPECT_EQ(call({"inspect"}).exit_code, 0);
    EXPECT_EQ(call({"verify"}).exit_code, 0) << call({"verify"}).out;
  }

  TempDir folder_;
  const fs::path model_ = folder_.path() / "model";
};

TEST_F(Rules, keys_that_are_not_computed_are_refused_unless_they_ask_for_nothing) {
  change("generation_config.json",
         {{"no_repeat_ngram_size", 0}, {"num_beams", 1}, {"suppress_tokens", nullptr}});
  change("config.json", {{"is_encoder_decoder", false}, {"output_attentions", true}});
  change("tokenizer_config.json", {{"add_prefix_space", false}, {"split_special_tokens", nullptr}});
  expect_taken();
  change("generation_config.json", {{"no_repeat_ngram_size", 3}});
  expect_refused("config.not_computed", "no_repeat_ngram_size: expected nothing or 0");
  change("generation_config.json", {{"no_repeat_ngram_size", 0}});
  change("config.json", {{"partial_rotary_factor", 0.5}});
  expect_refused("config.not_computed", "partial_rotary_factor");
}

TEST_F(Rules, quantization_configs_that_say_more_or_other_than_the_tensors_are_refused) {
  Json section = Json::parse(folder_.read("model/config.json"))["quantization_config"];
  section["modules_to_not_convert"] = {"lm_head"};
  change("config.json", {{"quantization_config", section}});
  expect_taken();
  section["modules_to_not_convert"] = {"mlp.up_proj"};
  change("config.json", {{"quantization_config", section}});
  expect_refused("import.config", "mlp.up_proj");
  section["modules_to_not_convert"] = nullptr;
  section["rotation_config"] = {{"kind", "hadamard"}};
  change("config.json", {{"quantization_config", section}});
  expect_refused("config.not_computed", "rotation_config");
}

TEST_F(Rules, two_checkpoints_in_a_directory_are_refused_and_a_stale_index_is_not) {
  const Json map = {{"model.norm.weight", "part-1.safetensors"}};
  folder_.write("model/model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  expect_taken();
  fs::copy(model_ / "model.safetensors", model_ / "part-1.safetensors");
  expect_refused("model.two_checkpoints", "move one of them away");
}

TEST_F(Rules, an_adapter_is_refused) {
  folder_.write("model/adapter_config.json", "{}");
  expect_refused("model.adapter", "adapter_config.json");
}

TEST_F(Rules, tokens_of_tokenizer_config_json_are_tokens) {
  change("tokenizer_config.json",
         {{"added_tokens_decoder", {{"4096", {{"content", "<|new|>"}, {"special", true}}}}}});
  EXPECT_EQ(call({"tokenize", "<|new|>", "--special"}).out, "4096\n");
  EXPECT_EQ(call({"detokenize", "4096", "--special"}).out, "<|new|>\n");
}

TEST_F(Rules, what_ends_a_text_may_stand_in_tokenizer_config_json_alone) {
  const auto text = [&] { return call({"run", "-p", "Hi", "-n", "3", "--temp", "0"}).out; };
  const std::string whole = text();
  const Json ids = Json::parse(call({"tokenize", whole, "--json"}).out)["ids"];
  // A token that is generated and is no single byte becomes what ends a text.
  const Json tokenizer = Json::parse(folder_.read("model/tokenizer.json"));
  std::string name;
  int id = 0;
  for (const auto& [key, one] : tokenizer["model"]["vocab"].items()) {
    for (std::size_t i = 2; i < ids.size() && name.empty(); ++i) {
      if (ids[i] == one && one > 255) std::tie(name, id) = std::pair(key, one.get<int>());
    }
  }
  ASSERT_FALSE(name.empty()) << ids;
  change("config.json", {{"eos_token_id", nullptr}});
  change("generation_config.json", {{"eos_token_id", nullptr}});
  EXPECT_EQ(text(), whole);
  change("tokenizer_config.json", {{"eos_token", name}});
  EXPECT_LT(text().size(), whole.size()) << name;
  change("generation_config.json", {{"eos_token_id", id == 300 ? 301 : 300}});
  EXPECT_NE(call({"verify"}).out.find("verify.end_tokens"), std::string::npos);
}

TEST_F(Rules, keys_that_nobody_knows_are_a_note_of_verify) {
  change("config.json", {{"brand_new_key", 1}});
  change("generation_config.json", {{"another_key", 1}});
  const ProcessResult verify = call({"verify", "--notes"});
  EXPECT_EQ(verify.exit_code, 0);
  EXPECT_NE(verify.out.find("brand_new_key"), std::string::npos) << verify.out;
  EXPECT_NE(verify.out.find("another_key"), std::string::npos) << verify.out;
}

/// As the reference reads them.
TEST_F(Rules, sampling_may_stand_in_config_json_where_it_has_no_file_of_its_own) {
  fs::remove(model_ / "generation_config.json");
  change("config.json", {{"temperature", 0.25}, {"min_p", 0.125}, {"do_sample", true}});
  EXPECT_NE(call({"run", "-p", "a", "-n", "1"})
                .err.find("sampled temperature 0.25, top-k 0, "
                          "top-p 1, min-p 0.125"),
            std::string::npos);
  const ProcessResult verify = call({"verify", "--notes"});
  EXPECT_EQ(verify.exit_code, 0) << verify.out;
  EXPECT_EQ(verify.out.find("min_p"), std::string::npos) << verify.out;
  change("config.json", {{"suppress_tokens", Json::array({5})}});
  expect_refused("config.not_computed", "suppress_tokens");
}

TEST_F(Rules, keys_that_nobody_knows_are_found_where_else_a_quantization_config_lies) {
  Json config = Json::parse(folder_.read("model/config.json"));
  Json section = config["quantization_config"];
  config.erase("quantization_config");
  folder_.write("model/config.json", config.dump());
  section["brand_new_key"] = 1;
  folder_.write("model/quant_config.json", section.dump());
  const ProcessResult verify = call({"verify", "--notes"});
  EXPECT_EQ(verify.exit_code, 0) << verify.out;
  EXPECT_NE(verify.out.find("quant_config.json: brand_new_key"), std::string::npos) << verify.out;
}

TEST_F(Rules, contexts_that_yarn_makes_longer_are_accepted) {
  EXPECT_EQ(call({"run", "-p", "Hi", "-n", "1", "-c", "4000"}).exit_code, 2);
  change("config.json",
         {{"rope_scaling",
           {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}}}});
  EXPECT_EQ(call({"run", "-p", "Hi", "-n", "1", "-c", "4000"}).exit_code, 0);
  EXPECT_EQ(call({"run", "-p", "Hi", "-n", "1", "-c", "4097"}).exit_code, 2);
}

TEST_F(Rules, what_is_sampled_with_is_said) {
  fs::remove(model_ / "generation_config.json");
  const auto said = [&](std::vector<std::string> options) {
    std::vector<std::string> arguments = {"run", "-p", "Hi", "-n", "1"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const std::string text = call(arguments).err;
    const auto begin = text.find("sampled ");
    return begin == std::string::npos ? text : text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_EQ(said({}), "sampled temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, seed 0");
  EXPECT_EQ(said({"--temp", "0"}), "sampled greedy (temperature 0)");
  EXPECT_EQ(said({"--presence-penalty", "1.5", "-s", "7"}),
            "sampled temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, seed 7, presence penalty "
            "1.5");
  change("generation_config.json", {{"temperature", 0.6}});
  EXPECT_EQ(said({"--top-k", "5"}), "sampled temperature 0.6, top-k 5, top-p 1, min-p 0, seed 0");
  const ProcessResult chat = call({"chat", "-p", "Hi", "-n", "1"});
  EXPECT_NE(chat.err.find("sampled temperature 0.6, top-k 0, top-p 1"), std::string::npos)
      << chat.err;
  folder_.write("in.jsonl", "{\"prompt\": \"Hi\"}\n");
  const ProcessResult job = call({"run", "--prompts", (folder_ / "in.jsonl").string(), "-o",
                                  (folder_ / "out.jsonl").string(), "--json", "-n", "1"});
  EXPECT_EQ(Json::parse(job.out)["sampling"]["top_k"], 0) << job.out;
}

TEST_F(Rules, an_empty_stop_is_refused) {
  const ProcessResult result = call({"run", "-p", "Hi", "--stop", ""});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("[usage.stop]"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace subbyte
