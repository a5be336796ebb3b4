#pragma once
// Classes 56 to 58: what an operating system can put under a name.

#include <functional>
#include <string_view>
#include <vector>

#include "support/temp_dir.h"

namespace subbyte::conformance {

struct FileSystemCase {
  std::string_view name;
  int number = 0;
  std::string_view code;
  std::function<std::string_view(const TempDir&)> run;  // makes it, opens it, returns the code
};

std::vector<FileSystemCase> file_system_cases();

}  // namespace subbyte::conformance
