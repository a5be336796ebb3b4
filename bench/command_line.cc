#include "bench/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "app/help.h"
#include "app/parser.h"
#include "app/terminal.h"

namespace subbyte::bench {
namespace {

Status run(app::Program& program, const std::vector<std::string>& arguments) {
  SUBBYTE_TRY(app::CommandInfo* const command, app::parse(program, arguments));
  if (!program.wants_help) {
    const Result<app::ExitCode> code = command->run();
    return code.ok() ? Status() : Status(code.error());
  }
  const int columns = app::columns_of(stdout);
  fmt::print("{}", command == nullptr ? app::program_text(program, columns)
                                      : app::command_text(program, *command, columns));
  return {};
}

}  // namespace

int run_program(app::Program& program, int argc, char** argv) {
  program.share_flag(app::Shares::kNothing, "-h,--help", program.wants_help, "this text");
  std::vector<std::string> arguments(argv + 1, argv + std::max(argc, 1));
  const bool is_help = !arguments.empty() && (arguments[0] == "-h" || arguments[0] == "--help");
  const bool has_command = !arguments.empty() && program.find(arguments[0]) != nullptr;
  if (!is_help && !has_command) arguments.insert(arguments.begin(), program.commands[0].name);
  const Status status = run(program, arguments);
  if (status.ok()) return app::kOk;
  fmt::print(stderr, "{}: {}\n", program.name, status.error().message);
  return app::kFailure;
}

std::string variable(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

}  // namespace subbyte::bench
