// quantize as a user runs it: every format of every family runs, verifies and converts; what a
// format lacks is refused by name.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/process.h"
#include "support/temp_dir.h"
#include "transform/format_hints.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

constexpr const char* kFamilies[] = {"qwen3", "qwen3-moe", "gpt-oss", "llama"};

class QuantizeProgram : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string make_source(const std::string& family) {
    const std::string name = path("source-" + family);
    if (!fs::exists(name)) {
      const ProcessResult made =
          run_program({"synth", name, "--arch", family, "--shape", "tiny", "--format", "bf16"});
      EXPECT_EQ(made.exit_code, 0) << made.err;
    }
    return name;
  }

  ProcessResult quantize(const std::string& family, const std::string& name, Arguments more) {
    Arguments arguments = {"quantize", make_source(family), path(name), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }

  /// It verifies without an error, gives logits, and holds what diff finds again in a conversion.
  void expect_sound(const std::string& name) {
    const ProcessResult verified = run_program({"verify", path(name)});
    EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
    const ProcessResult run =
        run_program({"logits", path(name), "--ids", "1,2,3", "-o", path(name + ".logits")});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const ProcessResult converted =
        run_program({"convert", path(name), path("floats"), "--to", "f32", "--allow-lossy"});
    EXPECT_EQ(converted.exit_code, 0) << converted.err;
    EXPECT_EQ(run_program({"verify", path("floats")}).exit_code, 0);
    fs::remove_all(path("floats"));
  }

  void expect_refused(const std::string& family, const Arguments& more, const std::string& code,
                      const std::string& what) {
    const ProcessResult refused = quantize(family, "refused", more);
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_NE(refused.err.find(code), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find(what), std::string::npos) << refused.err;
    EXPECT_FALSE(fs::exists(path("refused")));
  }

  TempDir folder_;
};

TEST_F(QuantizeProgram, every_format_of_every_family_runs_verifies_and_converts) {
  int written = 0;
  for (const std::string family : kFamilies) {
    for (const QuantizeFormat* const format : quantize_formats()) {
      const std::string name = family + "-" + std::string(format->name);
      SCOPED_TRACE(name);
      const ProcessResult made = quantize(family, name, {"--format", std::string(format->name)});
      if (made.exit_code != 0) {  // experts of gpt-oss, for which some software has no layout
        EXPECT_EQ(family, "gpt-oss");
        EXPECT_NE(made.err.find("quantize.model_type"), std::string::npos) << made.err;
        continue;
      }
      ++written;
      const Json report = Json::parse(made.out);
      EXPECT_GT(report["modules"], 0);
      // What section 12 of the kbit document demands of 2 and of 3 bits; more bits give more.
      EXPECT_GT(report["signal_to_noise_db"], format->default_bits == 2 ? 7.3 : 14.9);
      // Of vectors each matrix has 256, of f16; the smallest matrix here has 8192 weights.
      const double codebook =
          format->name.starts_with("vq") ? 256.0 * 8 / format->default_bits * 16 / 8192 : 0;
      EXPECT_LT(report["bits_per_weight"], format->default_bits + 0.6 + codebook);
      EXPECT_EQ(report["resumed_tensors"], 0);
      expect_sound(name);
    }
  }
  EXPECT_EQ(written, 68);  // of 72: awq, gptq, gptq_v2 and modelopt_nvfp4 of gpt-oss
}

/// Families whose layers differ from those of these in operations without matrices.
TEST_F(QuantizeProgram, other_families_are_quantized_run_and_verified) {
  const std::pair<std::string, int> modules[] = {
      {"mistral", 14},     {"phi3", 14},          {"gemma2", 14},      {"gemma3", 6 * 7},
      {"granite", 14},     {"lfm2", 17},          {"olmo2", 14},       {"olmo3", 4 * 7},
      {"glm4", 14},        {"smollm3", 4 * 7},    {"ernie4.5", 14},    {"exaone4", 4 * 7},
      {"seed-oss", 14},    {"hunyuan-dense", 14}, {"ministral3", 14},  {"bamba", 17},
      {"nemotron-h", 10},  {"deepseek-v3", 40},   {"deepseek-v2", 38}, {"glm4-moe-lite", 40},
      {"mistral4", 64},    {"deepseek-v32", 44},  {"glm-moe-dsa", 44}, {"ernie4.5-moe", 38},
      {"hunyuan-moe", 62}, {"llama4", 52},        {"nemotron", 12},    {"cohere2", 28},
      {"gemma4-moe", 122}};
  for (const auto& [family, count] : modules) {
    SCOPED_TRACE(family);
    const ProcessResult made = quantize(family, family + "-awq", {"--format", "awq"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(Json::parse(made.out)["modules"], count);
    expect_sound(family + "-awq");
  }
}

TEST_F(QuantizeProgram, integers_of_every_width_with_and_without_zero_points) {
  for (const std::string format : {"compressed-tensors", "gptq", "gptq-v2"}) {
    double last = 0;
    for (const std::string bits : {"2", "3", "4", "5", "6", "7", "8"}) {
      if (format != "compressed-tensors" && bits >= "5" && bits <= "7") {
        expect_refused("llama", {"--format", format, "--bits", bits}, "[quantize.bits]",
                       "expected 2, 3, 4, 8");
        continue;
      }
      for (const std::string symmetry : {"--symmetric", "--asymmetric"}) {
        const std::string name = format + bits + symmetry;
        SCOPED_TRACE(name);
        const ProcessResult made = quantize(
            "llama", name, {"--format", format, "--bits", bits, "--group-size", "32", symmetry});
        ASSERT_EQ(made.exit_code, 0) << made.err;
        const Json report = Json::parse(made.out);
        EXPECT_EQ(report["symmetric"], symmetry == "--symmetric");
        // Half of the noise's amplitude with each bit: 6 dB, less where a range is not used.
        EXPECT_GT(report["signal_to_noise_db"], last + (symmetry == "--symmetric" ? 3 : 0));
        if (symmetry == "--asymmetric") last = report["signal_to_noise_db"];
        expect_sound(name);
      }
    }
    EXPECT_GT(last, 40);
  }
}

TEST_F(QuantizeProgram, head_embedding_and_what_is_ignored) {
  const auto inspect = [&](const std::string& name) {
    const ProcessResult read = run_program({"diff", make_source("qwen3"), path(name), "--json"});
    EXPECT_FALSE(read.out.empty()) << read.err;
    return read.out;
  };
  const ProcessResult both = quantize(
      "qwen3", "both", {"--format", "compressed-tensors", "--bits", "8", "--head", "--embedding"});
  ASSERT_EQ(both.exit_code, 0) << both.err;
  EXPECT_EQ(Json::parse(both.out)["modules"], 16);
  expect_sound("both");
  EXPECT_NE(inspect("both").find("lm_head"), std::string::npos);
  const Json both_config = Json::parse(folder_.read("both/config.json"));
  EXPECT_EQ(both_config["quantization_config"]["config_groups"]["group_0"]["targets"],
            Json::parse(R"(["Linear", "model.embed_tokens"])"));
  // A tied head is the embedding.
  const ProcessResult tied =
      quantize("llama", "tied", {"--format", "compressed-tensors", "--bits", "6", "--embedding"});
  ASSERT_EQ(tied.exit_code, 0) << tied.err;
  EXPECT_EQ(Json::parse(tied.out)["modules"], 15);
  expect_sound("tied");
  for (const std::string format : {"gptq", "nvfp4", "nf4", "mxfp4"}) {
    SCOPED_TRACE(format);
    const ProcessResult head = quantize("qwen3", "head" + format, {"--format", format, "--head"});
    ASSERT_EQ(head.exit_code, 0) << head.err;
    EXPECT_EQ(Json::parse(head.out)["modules"], 15);
    expect_sound("head" + format);
  }
  const ProcessResult ignored =
      quantize("qwen3", "ignored",
               {"--format", "gptq", "--ignore", "model.layers.0", "--ignore",
                R"(re:.*\.down_proj$)", "--ignore", "lm_head"});
  ASSERT_EQ(ignored.exit_code, 0) << ignored.err;
  EXPECT_EQ(Json::parse(ignored.out)["modules"], 6);
  expect_sound("ignored");
  const Json config = Json::parse(folder_.read("ignored/config.json"));
  EXPECT_TRUE(
      config["quantization_config"]["dynamic"].contains(R"(-:^model\.layers\.1\.mlp\.down_proj$)"));
  // Whole names, as the layer before keeps modules of that name.
  const Json& listed = config["quantization_config"]["modules_in_block_to_quantize"];
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].size(), 6u);
  EXPECT_EQ(std::ranges::count(listed[0], "model.layers.1.self_attn.q_proj"), 1);
  const ProcessResult experts =
      quantize("qwen3-moe", "experts", {"--format", "gptq_v2", "--bits", "2", "--experts-only"});
  ASSERT_EQ(experts.exit_code, 0) << experts.err;
  EXPECT_EQ(Json::parse(experts.out)["modules"], 48);
  expect_sound("experts");
}

TEST_F(QuantizeProgram, what_a_format_lacks_is_refused_by_name) {
  expect_refused("qwen3", {"--format", "awq", "--bits", "3"}, "[quantize.bits]",
                 "expected 4, which are what awq has");
  for (const std::string bits : {"nan", "inf", "-1", "400"}) {
    expect_refused("qwen3", {"--format", "gptq", "--bits", bits}, "[quantize.bits]",
                   bits + " bits, expected 2, 3, 4, 8");
  }
  folder_.write("nothing.txt", "");
  for (const std::string bits : {"3", "3.4"}) {
    expect_refused("qwen3", {"--format", "gptq", "--bits", bits, "--text", path("nothing.txt")},
                   "[usage.text]", bits == "3" ? "--bits" : "nothing.txt");
  }
  expect_refused("qwen3", {"--format", "awq", "--symmetric"}, "[quantize.symmetry]", "awq");
  expect_refused("qwen3", {"--format", "nvfp4", "--asymmetric"}, "[quantize.symmetry]", "nvfp4");
  expect_refused("qwen3", {"--format", "nvfp4", "--group-size", "32"}, "[quantize.group_size]",
                 "expected 16");
  expect_refused("qwen3", {"--format", "gptq", "--group-size", "8"}, "[quantize.group_size]",
                 "or 0 for whole rows");
  expect_refused("qwen3", {"--format", "awq", "--head"}, "[quantize.head]", "awq");
  expect_refused("llama", {"--format", "gptq", "--head"}, "[quantize.head]", "--embedding");
  expect_refused("llama", {"--format", "nf4", "--embedding"}, "[quantize.embedding]", "nf4");
  expect_refused("qwen3", {"--format", "nf4", "--experts-only"}, "[quantize.nothing]", "nf4");
  expect_refused("qwen3", {"--ignore", "q_proj"}, "[quantize.ignore]", "k_proj");
  expect_refused("qwen3", {"--ignore", "mlp.q_proj"}, "[quantize.ignore]", "\"mlp.q_proj\"");
  expect_refused("qwen3", {"--ignore", "re:("}, "[quantize.pattern]", "\"re:(\"");
  expect_refused("gpt-oss", {"--format", "gptq"}, "[quantize.model_type]",
                 "--format compressed-tensors");
  expect_refused("gpt-oss", {"--format", "modelopt"}, "[quantize.model_type]", "--format nvfp4");
  expect_refused("qwen3", {"--format", "gptk"}, "[quantize.format]", "did you mean gptq");
}

TEST_F(QuantizeProgram, experts_of_gpt_oss_become_the_stacks_that_its_own_software_reads) {
  ASSERT_EQ(quantize("gpt-oss", "q", {"--format", "mxfp4"}).exit_code, 0);
  const Json config = Json::parse(folder_.read("q/config.json"))["quantization_config"];
  EXPECT_EQ(config["quant_method"], "mxfp4");
  const std::string bytes = folder_.read("q/model.safetensors");
  EXPECT_NE(bytes.find("model.layers.0.mlp.experts.gate_up_proj_blocks"), std::string::npos);
  EXPECT_NE(bytes.find("model.layers.0.mlp.experts.gate_up_proj_bias"), std::string::npos);
  // To modules, with a bias each, and back: the same weights.
  ASSERT_EQ(quantize("gpt-oss", "apart", {"--format", "mxfp4_pack_quantized"}).exit_code, 0);
  const ProcessResult diff = run_program({"convert", path("apart"), path("back"), "--to", "mxfp4"});
  ASSERT_EQ(diff.exit_code, 0) << diff.err;
  EXPECT_EQ(run_program({"diff", path("q"), path("back")}).exit_code, 0);
}

TEST_F(QuantizeProgram, rules_give_single_matrices_forms_of_their_own) {
  folder_.write("rules.json", R"({
    "model.layers.0.mlp": {"bits": 8},
    "re:.*down_proj": {"bits": 3, "group_size": 32, "symmetric": false},
    "self_attn.o_proj": {"keep": true}})");
  const std::string rules = path("rules.json");
  for (const std::string format : {"compressed-tensors", "gptq_v2"}) {
    SCOPED_TRACE(format);
    const std::string name = "mixed-" + format;
    const ProcessResult made = quantize("qwen3", name, {"--format", format, "--rules", rules});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    const Json report = Json::parse(made.out);
    EXPECT_EQ(report["modules_of_bits"], Json::parse(R"({"3": 1, "4": 8, "8": 3})"));
    expect_sound(name);
  }
  folder_.write("rules.json", R"({"re:.*layers\\.0.*[qkv]_proj$":
                                      {"group_size": 16, "symmetric": false}})");
  const ProcessResult first = quantize("qwen3", "first", {"--format", "gptq", "--rules", rules});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(Json::parse(first.out)["symmetric"], true);  // of all but what the rule names
  EXPECT_GT(Json::parse(first.out)["group_size"], 16);
  folder_.write("rules.json", R"({"re:.*[qkv]_proj$": {"bits": 2}, "o_proj": {"bits": 3},
                                  "re:.*(gate|up)_proj$": {"bits": 5}})");
  const ProcessResult kbit =
      quantize("qwen3", "mixed-kbit", {"--format", "kbit4", "--rules", rules});
  ASSERT_EQ(kbit.exit_code, 0) << kbit.err;
  EXPECT_EQ(Json::parse(kbit.out)["modules_of_bits"],
            Json::parse(R"({"2": 6, "3": 2, "4": 2, "5": 4})"));
  expect_sound("mixed-kbit");
  const auto refuse = [&](const std::string& text, const std::string& format,
                          const std::string& code, const std::string& what) {
    folder_.write("rules.json", text);
    expect_refused("qwen3", {"--format", format, "--rules", rules}, code, what);
  };
  refuse(R"({"q_proj": {"bits": 8}})", "gptq", "[quantize.rules]", "k_proj");
  refuse(R"({"mlp": {"bits": 8}})", "gptq", "[quantize.rules]", "\"mlp\"");  // no name ends so
  refuse(R"({"model": {"bits": 5}})", "gptq", "[quantize.rules]", "\"model\": 5 bits");
  refuse(R"({"model.layers.0": {"group_size": 64}})", "awq", "[quantize.rules]", "one for all");
  refuse(R"({"model.layers.0": {"bit": 8}})", "gptq", "[quantize.rules]", "bit");
  refuse(R"({"model.layers.0": {}})", "gptq", "[quantize.rules]", "keep");
  refuse(R"({"model.layers.0": {"keep": true, "bits": 4}})", "gptq", "[quantize.rules]", "keep");
  refuse(R"({"lm_head": {"bits": 8}})", "gptq", "[quantize.rules]", "--head");
  refuse("[]", "gptq", "[json.type]", "rules.json");
}

TEST_F(QuantizeProgram, a_mean_of_bits_is_kept_and_lost_where_it_costs_least) {
  // A few tokens, as what they say of single widths is tested below.
  folder_.write("text.txt", "the quick brown fox jumps over the lazy dog");
  const auto with_bits = [&](const std::string& name, const std::string& bits) {
    return quantize("qwen3", name,
                    {"--format", "compressed-tensors", "--bits", bits, "--text", path("text.txt")});
  };
  const ProcessResult made = with_bits("mean", "3.4");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Json report = Json::parse(made.out);
  EXPECT_LE(report["code_bits"], 3.4);
  EXPECT_GT(report["code_bits"], 3.3);
  EXPECT_GT(report["modules_of_bits"].size(), 1u);
  expect_sound("mean");
  // 8 bits take as many words as 7 in the packing of earlier releases.
  const ProcessResult seven = with_bits("seven", "7.5");
  ASSERT_EQ(seven.exit_code, 0) << seven.err;
  EXPECT_EQ(Json::parse(seven.out)["modules_of_bits"].size(), 2u);
  expect_sound("seven");
  expect_refused("qwen3", {"--format", "awq", "--bits", "3.4"}, "[quantize.bits]", "awq");
  expect_refused("qwen3", {"--format", "gptq", "--bits", "8.5"}, "[quantize.bits]", "2 to 8");
}

TEST_F(QuantizeProgram, predictions_of_a_text_choose_widths_and_say_what_they_cost) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the quick brown fox " + std::to_string(i * 37) + " jumps, ";
  folder_.write("text.txt", text);
  const Arguments form = {"--format", "compressed-tensors", "--group-size", "32"};
  const auto divergence = [&](const std::string& name, const Arguments& more) {
    Arguments arguments = form;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult made = quantize("llama", name, arguments);
    EXPECT_EQ(made.exit_code, 0) << made.err;
    EXPECT_LE(Json::parse(made.out)["code_bits"], 3.5);
    const ProcessResult measured =
        run_program({"perplexity", path(name), path("text.txt"), "--compare", make_source("llama"),
                     "--window", "64", "--json"});
    EXPECT_EQ(measured.exit_code, 0) << measured.err;
    return Json::parse(measured.out);
  };
  const Json two = divergence("two", {"--bits", "2"});
  const Json mean = divergence("mean", {"--bits", "3.5", "--text", path("text.txt")});
  const Json own = divergence("own", {"--bits", "3.5"});  // of what the model writes
  EXPECT_LT(own["kl"]["value"], two["kl"]["value"]);
  EXPECT_GT(mean["kl"]["value"], 0);
  EXPECT_LT(mean["kl"]["value"], two["kl"]["value"]);
  EXPECT_LE(mean["kl_median"], mean["kl_99"]);
  EXPECT_LE(mean["kl_99"], mean["kl_largest"]);
  EXPECT_GT(mean["same_top"]["value"], two["same_top"]["value"]);
  EXPECT_EQ(mean["reference_perplexity"], two["reference_perplexity"]);
  const ProcessResult shown = run_program(
      {"perplexity", path("mean"), path("text.txt"), "--compare", make_source("llama")});
  EXPECT_NE(shown.out.find("KL divergence"), std::string::npos) << shown.out;
}

}  // namespace
}  // namespace subbyte
