// subbyte clean: removes what commands that were killed left behind.

#include <fmt/format.h>

#include <cstdio>

#include "app/command.h"
#include "app/output.h"
#include "base/leftover.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string directory;
  bool dry_run = false;
};

Result<ExitCode> run(const Options& options) {
  SUBBYTE_TRY(const auto leftovers, find_leftovers(options.directory));
  ExitCode code = kOk;
  for (const Leftover& leftover : leftovers) {
    std::string line = describe(leftover);
    if (leftover.state == Leftover::State::kAbandoned) {
      const Status removed = options.dry_run ? Status() : remove_leftover(leftover.path);
      if (!removed.ok()) code = kFailure;
      line += options.dry_run ? ", would be removed"
              : removed.ok()  ? ", removed"
                              : ", not removed: " + removed.error().message;
    }
    print(stdout, fitted(app::line("{}", line), stdout, 4));
  }
  if (leftovers.empty()) print_notice(options.directory + ": no leftovers");
  return code;
}

}  // namespace

void add_clean(Program& program, Invocation&) {
  Command command = program.add_command(
      "clean", "Remove what commands that did not finish left in a directory",
      "  subbyte clean .             # NAME.partial-PID-N of this user that no process writes\n"
      "  subbyte clean /models --dry-run");
  auto options = std::make_shared<Options>();
  command.option("DIR", options->directory, "directory to look in, not below it").required();
  command.flag("--dry-run", options->dry_run, "list them only");
  command.run([options] { return run(*options); });
}

}  // namespace subbyte::app
