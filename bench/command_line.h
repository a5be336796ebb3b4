#pragma once
// Command lines of benchmarks, declared as those of the program are (app/arguments.h).

#include <string>

#include "app/arguments.h"

namespace subbyte::bench {

/// Runs the command that the arguments name, else the first one of the program, and returns what
/// the process is to exit with. -h and --help print pages.
int run_program(app::Program& program, int argc, char** argv);

/// A variable of the environment, else `otherwise`.
std::string variable(const char* name, const std::string& otherwise = {});

}  // namespace subbyte::bench
