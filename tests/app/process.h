#pragma once
// Runs the program as a child, and reads what it printed.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace subbyte {

struct ProcessResult {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out;
  std::string err;
  int64_t max_resident_bytes = 0;
};

struct ProcessOptions {
  std::string input = {};                               // stdin
  std::map<std::string, std::string> environment = {};  // on top of ours
  int64_t max_file_bytes = 0;                           // limit of the size of files; 0: none
  int64_t max_open_files = 0;                           // 0: as here
  int64_t max_cpu_seconds = 0;                          // SIGXCPU ends what takes longer; 0: none
  std::string out_file = {};                            // where stdout goes instead of the result
  int64_t max_address_bytes = 0;                        // limit of the address space; 0: none
  /// Called with the pid while the child runs, again and again until it returns true.
  std::function<bool(int pid)> watch = {};
};

/// Runs `subbyte ARGUMENTS...`.
ProcessResult run_program(const std::vector<std::string>& arguments,
                          const ProcessOptions& options = {});

/// The names under a heading of a page of help, as "Commands:".
std::vector<std::string> names_under(std::string_view heading, const std::string& page);

/// The folder of a golden model.
std::string golden(std::string_view name);

}  // namespace subbyte
