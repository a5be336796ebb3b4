#pragma once
// All of the program but main(), for another main() that has it inside: `python -m subbyte`.

namespace subbyte::app {

/// Runs the command of `argv` and returns what the process is to exit with. Signals and standard
/// streams of the process are the program's from now on.
int run_program(int argc, char** argv);

}  // namespace subbyte::app
