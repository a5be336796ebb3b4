#pragma once
// Lists of numbers in an option, as llama-bench takes them:
//
//   512            one
//   128,256,512    several
//   1-4            1, 2, 3, 4
//   0-1024+256     0, 256, 512, 768, 1024
//   1-16*2         1, 2, 4, 8, 16

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace subbyte::app {

/// The numbers of `text`, each from `least` to `most`, at most 1,000. `option` is what a message
/// calls it. Code usage.numbers.
Result<std::vector<int64_t>> parse_numbers(const std::string& option, const std::string& text,
                                           int64_t least, int64_t most);

}  // namespace subbyte::app
