// The small files of a model are opened once a run.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "app/process.h"
#include "support/opened_files.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::vector<std::string> arguments;  // words in capitals are paths
  int copies = 0;                      // of what goes along with weights
  std::string input = {};
};

TEST(SideFiles, are_opened_once_a_run) {
  const Case cases[] = {
      {{"run", "MODEL", "-p", "a", "-n", "1"}},
      {{"chat", "MODEL", "-n", "1"}, 0, "a\n"},
      {{"bench", "MODEL", "-p", "8", "-n", "1", "-r", "1"}},
      {{"perplexity", "MODEL", "TEXT"}},
      {{"convert", "MODEL", "DENSE", "--to", "bf16", "--allow-lossy"}, 1},
      {{"quantize", "DENSE", "OUT", "--format", "awq"}, 1},
      {{"verify", "MODEL"}},
      {{"inspect", "MODEL"}},
      {{"template", "MODEL", "--messages", "MESSAGES"}},
  };
  const TempDir folder;
  fs::copy(fs::path(SUBBYTE_TEST_DATA) / "../../demo/model", folder / "MODEL");
  folder.write("TEXT", "It was a bright cold day.\n");
  folder.write("MESSAGES", R"([{"role": "user", "content": "a"}])");
  for (const Case& one : cases) {
    std::vector<std::string> arguments = one.arguments;
    for (std::string& argument : arguments) {
      const auto is_capital = [](char c) { return c >= 'A' && c <= 'Z'; };
      if (std::ranges::all_of(argument, is_capital)) argument = (folder / argument).string();
    }
    testing::OpenedFiles opened(arguments[1]);
    const ProcessResult result = run_program(arguments, {.input = one.input});
    EXPECT_EQ(result.exit_code, 0) << arguments[0] << result.err;
    auto counts = opened.take();
    EXPECT_EQ(counts["config.json"], 1) << arguments[0];
    for (const char* const name : {"generation_config.json", "tokenizer_config.json"}) {
      EXPECT_LE(counts[name], 1 + one.copies) << arguments[0] << ": " << name;
    }
  }
}

}  // namespace
}  // namespace subbyte
