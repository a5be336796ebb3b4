// Help in its forms, mistakes in the command line, seeds.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "app/process.h"
#include "support/paths.h"

namespace subbyte {
namespace {

const std::filesystem::path kData = SUBBYTE_TEST_DATA;

TEST(Usage, mistakes_are_one_line_that_names_them) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"fly"}, "\"fly\""},
      {{"run"}, "MODEL is required"},
      {{"inspect", "x", "--flap"}, "--flap"},
      {{"run", (kData / "goldens/qwen3-awq").string(), "-n", "many"}, "many"},
      {{"synth", "/dev/null/x", "--seed", "-1"}, "--seed"},
      {{"chat", "x\n\x1b[31m", "y"}, "y"},
      {{"help", "flying"}, "\"flying\""}};
  for (const auto& [arguments, named] : mistakes) {
    const ProcessResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 2) << named;
    EXPECT_TRUE(result.out.empty()) << result.out;
    EXPECT_TRUE(result.err.starts_with("subbyte: error: ")) << result.err;
    EXPECT_TRUE(result.err.ends_with("]\n")) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find('\x1b'), std::string::npos);
  }
}

TEST(Usage, help_man_page_and_completion_name_every_option) {
  const std::string man = run_program({"man"}).out;
  for (const char* command : {"run", "chat", "convert", "perplexity"}) {
    const ProcessResult help = run_program({"help", command});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_EQ(help.out, run_program({command, "--help"}).out);
    EXPECT_NE(help.out.find("--threads"), std::string::npos);  // of every command
    EXPECT_NE(man.find(std::string(".SS ") + command + "\n"), std::string::npos);
  }
  EXPECT_NE(man.find("\\-\\-kv\\-cache\\-type"), std::string::npos);
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const ProcessResult script = run_program({"completion", shell});
    EXPECT_EQ(script.exit_code, 0);
    EXPECT_NE(script.out.find("kv-cache-type"), std::string::npos) << shell;
  }
  for (const char* variable : {"HF_HOME", "HF_HUB_CACHE", "SUBBYTE_THREADS", "NO_COLOR"}) {
    EXPECT_NE(run_program({"help", "environment"}).out.find(variable), std::string::npos);
  }
  EXPECT_NE(run_program({"--version"}).out.find("\ncommit "), std::string::npos);
}

TEST(Usage, a_thing_has_one_name_in_all_commands) {
  using Names = std::vector<std::string>;
  const std::map<std::string, Names> expected = {
      {"run", {"MODEL"}},           {"chat", {"MODEL"}},         {"inspect", {"MODEL"}},
      {"verify", {"MODEL"}},        {"logits", {"MODEL"}},       {"perplexity", {"MODEL", "FILE"}},
      {"quantize", {"SRC", "DST"}}, {"convert", {"SRC", "DST"}}, {"diff", {"A", "B"}},
      {"synth", {"DST"}},           {"clean", {"DIR"}},          {"tokenize", {"MODEL", "TEXT"}},
      {"plan", {"MODEL"}},
  };
  for (const auto& [command, names] : expected) {
    const std::string help = run_program({command, "--help"}).out;
    EXPECT_EQ(names_under("Arguments:", help), names) << command;
    const bool has_context = help.find("-c,") != std::string::npos;
    EXPECT_EQ(has_context, help.find("-c, --ctx-size") != std::string::npos) << command;
    for (const char* other : {"bfloat16", "float16", "fp16", "gpt_oss", "GPT-OSS"}) {
      EXPECT_EQ(help.find(other), std::string::npos) << command << " " << other;
    }
  }
}

TEST(Usage, a_random_seed_is_printed_and_repeats_the_text) {
  const std::vector<std::string> arguments = {
      "run", (kData / "../../demo/model").string(), "-p", "It was", "-n", "12", "--seed"};
  auto random = arguments;
  random.push_back("-1");
  const ProcessResult first = run_program(random);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  ASSERT_TRUE(first.err.starts_with("subbyte: --seed ")) << first.err;
  auto repeated = arguments;
  repeated.push_back(first.err.substr(16, first.err.find('\n') - 16));
  EXPECT_EQ(run_program(repeated).out, first.out);
  EXPECT_NE(run_program(random).err.substr(0, 24), first.err.substr(0, 24));
}

}  // namespace
}  // namespace subbyte
