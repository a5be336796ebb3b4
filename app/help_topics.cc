// Pages of `subbyte help` that are about no command.

#include <fmt/format.h>

#include "app/foreign_names.h"
#include "app/help.h"

namespace subbyte::app {
namespace {

std::string environment() {
  return R"(HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE
    folder of the Hugging Face cache, in which org/name is looked up
HF_HOME
    folder whose hub/ is that cache, where neither is set
XDG_CACHE_HOME
    its huggingface/hub is the cache, where none of them is set; else
    ~/.cache/huggingface/hub
SUBBYTE_THREADS
    threads to work with, as --threads says (1 to 1024)
SUBBYTE_PIN
    1: each thread on a processor of its own, as --pin
SUBBYTE_ISA
    these CPU kernels instead of the best: scalar, avx2, avx512, avx512vnni,
    avx512bf16 or amx
SUBBYTE_STEP_TOKENS
    0 to 8: steps of at most so many single tokens run as one kernel on a GPU
    that has it (8)
SUBBYTE_PRINT_PLAN
    1: say on standard error how steps of each size run: as one kernel, as a
    graph, as launches
NO_COLOR
    set to anything: no colours, unless --color always
COLUMNS
    width of screens, instead of that of the terminal
TERM
    dumb: no colours, no progress bars, no line editing
)";
}

std::string exit_codes() {
  return R"(0   done
1   it failed; one line on standard error says why, with a stable code, such as
    subbyte: error: ./m: no such model [model.not_found]
    With --json the same stands on standard output, too:
    {"error":{"code":"model.not_found","message":"./m: no such model"}}
2   the command line or a variable is wrong; a line of the same form
3   inspect, verify or diff found what they look for: problems, differences
128 + number of the signal that ended it (130: Ctrl-C)
)";
}

/// The table of foreign_names.def, in lines of any length.
std::string other_programs() {
  std::string text =
      "Options of llama.cpp, vLLM and Hugging Face's tools that\n"
      "are taken as ours, and what to do instead of the others.\n\n";
  const auto add = [&](std::string_view names, const std::string& meaning) {
    text += fmt::format("{}\n    {}\n", names, meaning);
  };
  for (const ForeignOption& row : foreign_options()) {
    if (!row.ours.empty()) add(row.names, fmt::format("= {}", row.ours));
  }
  for (const ForeignOption& row : foreign_options()) {
    if (!row.ours.empty()) continue;
    const bool is_of_one = !row.command.empty();
    add(is_of_one ? fmt::format("{} ({})", row.names, row.command) : std::string(row.names),
        std::string(row.instead));
  }
  for (const ForeignCommand& row : foreign_commands()) {
    add(fmt::format("subbyte {}", row.names), std::string(row.instead));
  }
  return text;
}

}  // namespace

const std::vector<Topic> kTopics = {
    {"environment", "Variables that the program reads", environment},
    {"exit-codes", "What the program returns", exit_codes},
    {"other-programs", "Options and commands that people know from elsewhere", other_programs},
};

}  // namespace subbyte::app
