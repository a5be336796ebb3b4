// Ctrl-C on a terminal, in every command: the bar is cleared, a line says what is left, the prompt
// of the shell begins a line of its own, and nothing that is not finished stays on the disk.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "app/process.h"
#include "app/terminal.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

const std::string kModel = (fs::path(SUBBYTE_TEST_DATA) / "../../demo/model").string();
const std::string kNothing = "subbyte: stopped; nothing was written\r\n";

/// What each command is given; DIR is a folder that is empty but for the directory `m`, a model in
/// bf16, `p`, a packed one, and the file `text`.
const std::map<std::string, Arguments> kArguments = {
    {"run", {kModel, "-p", "It was", "-n", "100", "--temp", "0"}},
    {"chat", {kModel, "-p", "Hello", "-n", "100", "--temp", "0"}},
    {"serve", {kModel, "--port", "0"}},
    {"inspect", {kModel}},
    {"verify", {kModel}},
    {"logits", {kModel, "--ids", "1,2,3", "-o", "DIR/new"}},
    {"template", {"DIR/chat_template.jinja", "--messages", "DIR/messages.json"}},
    {"tokenize", {kModel, "It was"}},
    {"detokenize", {kModel, "1,2,3"}},
    {"perplexity", {kModel, "DIR/text"}},
    {"bench", {kModel, "-p", "16", "-n", "4", "-r", "2"}},
    {"quantize", {"DIR/m", "DIR/new/one/two"}},
    {"convert", {kModel, "DIR/new/one/two", "--to", "bf16"}},
    {"pack", {kModel, "DIR/new/one/two", "--to", "marlin"}},
    {"unpack", {"DIR/p", "DIR/new/one/two"}},
    {"diff", {kModel, kModel}},
    {"synth", {"DIR/new/one/two", "--shape", "tiny"}},
    {"list", {}},
    {"clean", {"DIR"}},
    {"devices", {}},
    {"plan", {kModel, "--gpus", "H200"}},
    {"help", {}},
    {"completion", {"bash"}},
    {"man", {}},
};

/// The terminal writes "^C" before or after what the program does.
std::string without_echo(std::string text) {
  for (std::size_t at = text.find("^C"); at != text.npos; at = text.find("^C")) text.erase(at, 2);
  return text;
}

/// The models that the commands are given, made once.
class Stopped : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempDir;
    folder_->write("text", "It was so. It was so. It was so.");
    folder_->write("chat_template.jinja", "{{ messages[0].content }}");
    folder_->write("messages.json", R"([{"role": "user", "content": "Hi"}])");
    ASSERT_EQ(run_program({"synth", path("m"), "--shape", "tiny", "--format", "bf16"}).exit_code,
              0);
    const std::string golden = (fs::path(SUBBYTE_TEST_DATA) / "goldens/gpt-oss-mxfp4").string();
    ASSERT_EQ(run_program({"pack", golden, path("p"), "--to", "flashinfer-mxfp4"}).exit_code, 0);
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static std::string path(const std::string& name) { return (*folder_ / name).string(); }

  static inline TempDir* folder_ = nullptr;
};

std::vector<std::string> commands() {
  std::vector<std::string> names;
  for (const auto& [command, arguments] : kArguments) names.push_back(command);
  return names;
}

/// As the help lists them.
TEST(Interrupt, is_tried_in_every_command) {
  const auto help = run_program({"--help"}, {.environment = {{"COLUMNS", "200"}}});
  std::vector<std::string> listed = names_under("Commands:", help.out);
  std::ranges::sort(listed);
  EXPECT_EQ(listed, commands());
}

/// Wherever the program is: it waits for the terminal at the latest where it writes its result.
TEST_P(Stopped, says_so_and_leaves_nothing) {
  Arguments arguments = {GetParam()};
  for (const std::string& argument : kArguments.at(GetParam())) {
    const bool is_place = argument.starts_with("DIR");
    arguments.push_back(is_place ? folder_->path().string() + argument.substr(3) : argument);
  }
  const std::set<std::string> before = folder_->names();
  Terminal terminal = Terminal::stopped(arguments, {{"HF_HUB_CACHE", path("none")}});
  terminal.type("\x03");
  const std::string text = without_echo(terminal.read_to_end());
  EXPECT_EQ(terminal.exit_code(), 130) << text;
  // After the last clearing of a bar nothing stands in the line but ours.
  const std::size_t line = text.rfind("stopped");
  ASSERT_NE(line, text.npos) << text;
  EXPECT_TRUE(text.ends_with("\r\n")) << text;
  EXPECT_EQ(text.find('\n', line), text.size() - 1) << text;
  EXPECT_EQ(folder_->names(), before);
}

INSTANTIATE_TEST_SUITE_P(Commands, Stopped, testing::ValuesIn(commands()),
                         [](const auto& test) { return test.param; });

/// On a terminal that shows the bar.
TEST(Interrupt, clears_the_bar) {
  const TempDir folder;
  std::string much;
  for (int i = 0; i < 20'000; ++i) much += "It was so. ";
  const std::string text = folder.write("text", much).string();
  Terminal terminal({"perplexity", kModel, text});
  terminal.read_until("perplexity [");
  terminal.type("\x03");
  const std::string rest = without_echo(terminal.read_to_end());
  EXPECT_EQ(terminal.exit_code(), 130);
  EXPECT_TRUE(rest.ends_with("\r\x1b[K" + kNothing)) << rest;
}

TEST(Interrupt, ends_the_waiting_for_a_text) {
  Terminal terminal({"tokenize", kModel});
  terminal.read_until("ends it\r\n");  // a notice of the program
  terminal.type("\x03");
  EXPECT_EQ(without_echo(terminal.read_to_end()), "\r\n" + kNothing);
  EXPECT_EQ(terminal.exit_code(), 130);
}

/// Folders that were made for the target go, and an empty directory that made way comes back.
TEST(Interrupt, leaves_folders_as_they_were) {
  const TempDir folder;
  for (const char* target : {"new/one", "empty"}) {
    SCOPED_TRACE(target);
    fs::create_directories(folder / "empty");
    Terminal terminal({"synth", (folder / target).string(), "--shape", "0.6b"});
    terminal.read_until("writing [");
    terminal.type("\x03");
    const std::string rest = without_echo(terminal.read_to_end());
    EXPECT_EQ(terminal.exit_code(), 130);
    EXPECT_TRUE(rest.ends_with(kNothing)) << rest;
    EXPECT_EQ(folder.names(), std::set<std::string>{"empty"});
    EXPECT_TRUE(fs::is_empty(folder / "empty"));
  }
}

TEST(Interrupt, is_silent_where_a_pipe_ends) {
  const TempDir folder;
  const ProcessResult result =
      run_program({"synth", (folder / "m").string(), "--shape", "0.6b", "--format", "awq"},
                  {.watch = [&](int pid) {
                    if (folder.names().empty()) return false;
                    ::kill(pid, SIGPIPE);
                    return true;
                  }});
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(folder.names(), std::set<std::string>());
}

}  // namespace
}  // namespace subbyte
