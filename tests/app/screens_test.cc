// What is on the screen: lines that fit, colours, and what shells complete.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "app/process.h"
#include "app/terminal.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

const fs::path kDemo = fs::path(SUBBYTE_TEST_DATA) / "../../demo/model";

std::string without_colours(const std::string& text) {
  return std::regex_replace(text, std::regex("\x1b\\[[0-9;?]*[a-zA-Z]"), "");
}

/// What the cursor goes back over is a line of its own.
std::string lines_of(std::string text) {
  text = std::regex_replace(text, std::regex("\r\n"), "\n");
  std::ranges::replace(text, '\r', '\n');
  return text;
}

/// The screen of a command on a terminal of so many columns.
std::string screen(const Arguments& arguments, int columns,
                   std::map<std::string, std::string> environment = {}) {
  environment["COLUMNS"] = std::to_string(columns);
  Terminal terminal(arguments, environment, columns);
  std::string text = terminal.read_to_end();
  terminal.exit_code();
  return lines_of(text);
}

/// Lines are at most `columns` - 1 long, but for words that are longer than that, after no more
/// than the name of the program.
void expect_to_fit(const std::string& text, std::size_t columns, const std::string& command) {
  std::istringstream lines(without_colours(text));
  for (std::string line; std::getline(lines, line);) {
    std::size_t width = 0;
    for (const char c : line) width += (c & 0xC0) != 0x80;
    if (width < columns) continue;
    std::string words = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    if (words.starts_with("subbyte: ")) words = words.substr(words.find(' ') + 1);
    EXPECT_EQ(words.find(' '), words.npos) << command << ": " << line;
  }
}

class Screens : public testing::TestWithParam<int> {};

TEST_P(Screens, of_help_and_mistakes_fit) {
  const int columns = GetParam();
  const auto names = names_under("Commands:", run_program({"help"}).out);
  ASSERT_GE(names.size(), 18u);
  for (const std::string& name : names) {
    expect_to_fit(screen({name, "--help"}, columns), columns, name);
    expect_to_fit(screen({name, "--no-such-option"}, columns), columns, name);
  }
  for (const char* page : {"environment", "exit-codes", "other-programs"}) {
    const std::string text = screen({"help", page}, columns);
    EXPECT_GT(std::ranges::count(text, '\n'), 5);
    expect_to_fit(text, columns, page);
  }
  expect_to_fit(screen({"--help"}, columns), columns, "--help");
  expect_to_fit(screen({"run", "org/name", "-p", "a"}, columns, {{"HF_HUB_CACHE", "/x"}}), columns,
                "run");
}

TEST_P(Screens, of_commands_fit) {
  const int columns = GetParam();
  const TempDir folder;
  const std::string demo = kDemo.string();
  const std::string text = folder.write("a.txt", "It was so, and it was so again.").string();
  const std::string broken = (folder / "broken").string();
  fs::copy(kDemo, broken);
  Json config = Json::parse(folder.read("broken/config.json"));
  config["num_hidden_layers"] = 3;
  folder.write("broken/config.json", config.dump());
  for (const Arguments& arguments :
       std::vector<Arguments>{{"run", demo, "-p", "It", "-n", "1"},
                              {"inspect", demo},
                              {"inspect", demo, "--tensors"},
                              {"inspect", broken},
                              {"verify", demo, "--notes"},
                              {"verify", broken},
                              {"tokenize", demo, "It was so", "--pieces"},
                              {"perplexity", demo, text},
                              {"convert", demo, (folder / "q").string(), "--to", "bf16"},
                              {"quantize", demo, (folder / "r").string()},
                              {"synth", (folder / "s").string(), "--shape", "tiny"},
                              {"diff", demo, (folder / "q").string()},
                              {"clean", folder.path().string()},
                              {"list"},
                              {"bench", demo, "-p", "8", "-n", "2", "-r", "1", "-d", "0,64"},
                              {"devices"}}) {
    expect_to_fit(screen(arguments, columns, {{"HF_HUB_CACHE", folder.path().string()}}), columns,
                  arguments[0]);
  }
}

TEST_P(Screens, of_a_conversation_fit) {
  Terminal terminal({"chat", kDemo.string(), "-n", "1", "--temp", "0", "--color", "never"}, {},
                    GetParam());
  std::string text = terminal.read_until("\n> ");
  terminal.type("/help\r");
  terminal.read_until("/help\r\n");  // as it is typed
  text += "\n" + terminal.read_until("\n> ");
  terminal.type("/fly\r");
  terminal.read_until("/fly\r\n");
  text += "\n" + terminal.read_until("\n> ");
  expect_to_fit(lines_of(text), GetParam(), "chat");
}

INSTANTIATE_TEST_SUITE_P(Columns, Screens, testing::Values(79, 40),
                         testing::PrintToStringParamName());

/// Of lines of wide characters and of such with marks: a line has as many as fit.
TEST(Screens, count_columns_and_not_characters) {
  constexpr std::size_t kColumns = 40;
  const auto longest = [](const std::string& letter) {
    std::string path;
    for (int i = 0; i < 30; ++i) path += letter + letter + " ";
    std::istringstream lines(screen({"inspect", path + "x"}, kColumns));
    std::size_t most = 0;
    for (std::string line; std::getline(lines, line);) {
      std::size_t count = 0;
      for (std::size_t at = line.find(letter); at != line.npos; at = line.find(letter, at + 1)) {
        ++count;
      }
      most = std::max(most, count);
    }
    return most;
  };
  EXPECT_EQ(longest("\u4E00"), 14u);   // five columns for two and a blank, less an indent of two
  EXPECT_EQ(longest("e\u0301"), 24u);  // three columns
}

TEST(Pipes, have_no_broken_lines_and_no_colours) {
  const ProcessResult error =
      run_program({"run", "org/name", "-p", "a"}, {.environment = {{"COLUMNS", "40"}}});
  EXPECT_EQ(std::ranges::count(error.err, '\n'), 1) << error.err;
  EXPECT_EQ(error.err.find('\x1b'), error.err.npos);
  const std::string page = run_program({"inspect", kDemo.string()}).out;
  EXPECT_EQ(page.find('\x1b'), page.npos);
  expect_to_fit(page, 80, "inspect");
}

TEST(Colours, are_those_that_were_asked_for) {
  const Arguments missing = {"run", "/no/such/model", "-p", "a"};
  const auto has = [](const std::string& text) { return text.find('\x1b') != text.npos; };
  EXPECT_TRUE(has(screen(missing, 80)));
  EXPECT_FALSE(has(screen(missing, 80, {{"NO_COLOR", "1"}})));
  EXPECT_FALSE(has(screen(missing, 80, {{"TERM", "dumb"}})));
  for (const char* when : {"never", "always"}) {
    Arguments arguments = missing;
    arguments.insert(arguments.end(), {"--color", when});
    EXPECT_EQ(has(screen(arguments, 80)), when[0] == 'a');
    EXPECT_EQ(has(run_program(arguments).err), when[0] == 'a');
  }
  EXPECT_TRUE(has(screen({"help"}, 80)));
  EXPECT_TRUE(has(screen({"inspect", kDemo.string()}, 80)));
  EXPECT_TRUE(has(screen({"verify", kDemo.string(), "--notes"}, 80)));
  EXPECT_TRUE(has(screen({"run", kDemo.string(), "-p", "It", "-n", "1", "-q"}, 80)));
}

/// The words that bash offers for the last one of these.
std::set<std::string> completed(const Arguments& words, const std::string& cache) {
  const TempDir folder;
  const std::string script =
      folder.write("script", run_program({"completion", "bash"}).out).string();
  std::string list;
  for (const std::string& word : words) list += " '" + word + "'";
  const std::string bash =
      "PATH=" + fs::path(kProgramPath).parent_path().string() + ":$PATH; export HF_HUB_CACHE='" +
      cache + "'; cd '" + cache + "'; source " + script + "; COMP_WORDS=(subbyte" + list +
      "); COMP_CWORD=" + std::to_string(words.size()) +
      "; _subbyte; printf '%s\\n' \"${COMPREPLY[@]}\" > " + (folder / "out").string();
  const std::string file = folder.write("run.sh", bash).string();
  EXPECT_EQ(std::system(("bash " + file).c_str()), 0);
  std::istringstream lines(folder.read("out"));
  std::set<std::string> found;
  for (std::string line; std::getline(lines, line);) found.insert(line);
  return found;
}

TEST(Completion, offers_the_values_that_are_known) {
  const TempDir cache;
  cache.write("models--org--demo/snapshots/main/config.json", "{}");
  const std::string place = cache.path().string();
  const auto offers = [&](const Arguments& words, const std::string& value) {
    const auto found = completed(words, place);
    EXPECT_TRUE(found.contains(value))
        << testing::PrintToString(words) << " " << testing::PrintToString(found);
  };
  offers({"convert", "a", "b", "--to", "gp"}, "gptq");
  offers({"quantize", "a", "b", "--format", ""}, "awq");
  offers({"synth", "a", "--arch", "gpt"}, "gpt-oss");
  offers({"synth", "a", "--shape", "0"}, "0.6b");
  offers({"synth", "a", "--format", ""}, "mxfp4");
  offers({"run", "a", "--device", "c"}, "cuda");
  offers({"run", "a", "--activations", "i"}, "int8");
  offers({"help", "envi"}, "environment");
  offers({"help", "conv"}, "convert");
  offers({"completion", ""}, "zsh");
  offers({"run", "org/"}, "org/demo");
  offers({"run", "models"}, "models--org--demo");  // a file
  offers({"inspect", "a", "--tens"}, "--tensors");
  offers({"pack", "a", "b", "--tile", ""}, "128x4");
}

TEST(Completion, offers_for_a_model_directories_and_model_files_alone) {
  const TempDir folder;
  folder.write("model/config.json", "{}");
  folder.write("other.partial-1-2/config.json", "{}");
  folder.write("letter.txt", "");
  folder.write("model.ak48", "");
  const std::string place = folder.path().string();
  EXPECT_EQ(completed({"run", ""}, place), (std::set<std::string>{"model", "model.ak48"}));
}

/// The title of a bar and the note after it, for what reads or writes a whole model.
TEST(Bars, are_shown_by_all_that_takes_long_on_large_models) {
  const TempDir folder;
  const std::string dense = (folder.path() / "dense").string();
  const auto place = [&](const char* name) { return (folder.path() / name).string(); };
  EXPECT_NE(screen({"synth", dense, "--shape", "tiny", "--format", "bf16"}, 80).find("writing ["),
            std::string::npos);
  folder.write("text", "a few tokens");
  const std::string quantized = screen(
      {"quantize", dense, place("q"), "--format", "gptq", "--bits", "2.5", "--text", place("text")},
      80);
  for (const char* shown : {"choosing widths [", "  0% 0 of ", "quantizing [", "verifying ["}) {
    EXPECT_NE(quantized.find(shown), std::string::npos) << shown << "\n" << quantized;
  }
  const std::string converted = screen({"convert", place("q"), place("f32"), "--to", "f32"}, 80);
  EXPECT_NE(converted.find("converting ["), std::string::npos) << converted;
  EXPECT_NE(converted.find("verifying ["), std::string::npos) << converted;
  const std::string compared = screen({"diff", dense, place("f32")}, 80);
  EXPECT_NE(compared.find("comparing ["), std::string::npos) << compared;
  EXPECT_NE(compared.find("100%"), std::string::npos) << compared;
  EXPECT_EQ(screen({"diff", dense, place("f32"), "--no-progress"}, 80).find("comparing"),
            std::string::npos);
}

/// A prompt of several steps has a bar, after which comes what the terminal would have shown
/// without one.
TEST(Bars, are_shown_while_long_prompts_are_computed) {
  const TempDir folder;
  const std::string model = (folder / "model").string();
  ASSERT_EQ(run_program({"synth", model, "--shape", "tiny"}).exit_code, 0);
  std::string text, ids = "1";
  for (int i = 0; i < 400; ++i) {  // in steps of 512 tokens, and 128 of logits
    text += "a1 ";
    ids += ",1";
  }
  folder.write("text", text);
  const std::string file = (folder / "text").string();
  const std::string run = screen({"run", model, "-f", file, "-n", "2"}, 80);
  EXPECT_TRUE(std::regex_search(run, std::regex("prompt \\[ +\\]   0% 0 of 1[0-9]+ tokens")))
      << run;
  EXPECT_GT(run.find("a1 a1"), run.find("prompt [")) << run;
  const std::string quiet = screen({"run", model, "-f", file, "-n", "2", "--no-progress"}, 80);
  EXPECT_EQ(quiet.find("prompt ["), std::string::npos) << quiet;
  const std::string brief = screen({"run", model, "-p", "a1", "-n", "2"}, 80);
  EXPECT_EQ(brief.find("prompt ["), std::string::npos) << brief;
  const std::string chat = screen({"chat", model, "-p", text, "-n", "2"}, 80);
  EXPECT_NE(chat.find("prompt ["), std::string::npos) << chat;
  const std::string logits =
      screen({"logits", model, "--ids", ids, "-o", (folder / "logits").string()}, 80);
  EXPECT_NE(logits.find("logits ["), std::string::npos) << logits;
  EXPECT_NE(logits.find("401 of 401 tokens"), std::string::npos) << logits;
}

}  // namespace
}  // namespace subbyte
