// Hostile text as the argument, the value of an option and a variable of every command, and as the
// folder of a model that is sound: whatever the program prints are printable lines.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "app/process.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

/// A forged line, escape sequences, C1, the other direction, a tag, what is no UTF-8.
const std::string kHostile =
    "x\nsubbyte: error: y\r\x1b[2J\x1b]0;z\x07\u009b31m\u202e\u2028\U000E0041\xff'\"";
const fs::path kModel = fs::path(SUBBYTE_TEST_DATA) / "../../demo/model";

void expect_printable(const std::string& text) {
  for (const char c : text) {
    EXPECT_FALSE((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F) << text;
  }
  for (const char* bad : {"\xc2\x9b", "\xe2\x80\xae", "\xe2\x80\xa8", "\xf3\xa0", "\xff"}) {
    EXPECT_EQ(text.find(bad), std::string::npos) << text;
  }
}

/// One line of the form of all errors, and nothing else.
void expect_one_error(const ProcessResult& result) {
  EXPECT_TRUE(result.exit_code == 1 || result.exit_code == 2) << result.out << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(result.err.starts_with("subbyte: error: ")) << result.err;
  EXPECT_TRUE(result.err.ends_with("]\n")) << result.err;
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  expect_printable(result.err);
}

TEST(HostileText, in_arguments_and_options_of_every_command_is_one_printable_line) {
  const std::vector<std::string> names = names_under("Commands:", run_program({"help"}).out);
  EXPECT_GE(names.size(), 18u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    for (const std::string& first : {std::string("--") + kHostile, std::string("--threads")}) {
      expect_one_error(run_program({name, first, kHostile}));
    }
    if (name == "devices" || name == "man") {
      expect_one_error(run_program({name, kHostile}));
      continue;
    }
    std::vector<std::string> command = {name, "/nowhere/" + kHostile};
    if (name == "quantize" || name == "convert" || name == "diff" || name == "perplexity") {
      command.push_back(kHostile);
    }
    if (name == "convert") command.insert(command.end(), {"--to", "awq"});
    if (name == "logits") command.insert(command.end(), {"--ids", "1", "-o", kHostile});
    if (name == "synth") command[1] = "/dev/null/" + kHostile;
    expect_one_error(run_program(command));
  }
}

TEST(HostileText, in_values_of_options_is_one_printable_line) {
  const std::string model = kModel.string();
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"run", model, "-p", "a", "--device", kHostile},
           {"run", model, "-p", "a", "--activations", kHostile},
           {"run", model, "-p", "a", "--kv-cache-type", kHostile},
           {"run", model, "-p", "a", "--seed", kHostile},
           {"run", model, "-p", "a", "--temp", kHostile},
           {"run", model, "-f", kHostile},
           {"run", model, "--prompts", kHostile, "--output", kHostile},
           {"chat", model, "--reasoning-effort", kHostile},
           {"logits", model, "--ids", kHostile, "-o", "-"},
           {"bench", model, "-p", kHostile},
           {"bench", model, "--kv-cache-type", kHostile},
           {"bench", model, "-o", kHostile},
           {"detokenize", model, kHostile},
           {"convert", model, "/nowhere/x", "--to", kHostile},
           {"quantize", model, "/nowhere/x", "--format", kHostile},
           {"synth", "/nowhere/x", "--shape", kHostile}}) {
    SCOPED_TRACE(command[0] + " " + command[command.size() - 2]);
    expect_one_error(run_program(command));
  }
  for (const char* variable : {"SUBBYTE_THREADS", "SUBBYTE_ISA", "SUBBYTE_PIN"}) {
    SCOPED_TRACE(variable);
    expect_one_error(
        run_program({"run", model, "-p", "a"}, {.environment = {{variable, kHostile}}}));
  }
  expect_one_error(run_program({"inspect", "org/name"}, {.environment = {{"HF_HOME", kHostile}}}));
}

TEST(HostileText, in_the_folder_of_a_model_stays_in_its_lines) {
  const TempDir dir;
  const fs::path model = dir / kHostile;
  fs::copy(kModel, model);
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"inspect", model.string()},
           {"inspect", model.string(), "--json"},
           {"verify", model.string(), "--notes"},
           {"verify", model.string(), "--json"},
           {"diff", model.string(), kModel.string()},
           {"diff", model.string(), kModel.string(), "--json"},
           {"convert", model.string(), (dir / ("out" + kHostile)).string(), "--to", "gptq"},
           {"clean", dir.path().string()},
           {"perplexity", model.string(), dir.write(kHostile + ".txt", "It was so.").string()},
           {"chat", model.string(), "-p", "a", "-n", "1"}}) {
    SCOPED_TRACE(command[0]);
    const ProcessResult result = run_program(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    if (command[0] != "chat") expect_printable(result.out);  // what a model says is data
    expect_printable(result.err);
  }
}

}  // namespace
}  // namespace subbyte
