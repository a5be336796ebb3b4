#pragma once
// How many random cases a test draws.

#include <cstdlib>

namespace subbyte::testing {

/// `all` where `./dev test --all` has set SUBBYTE_TEST_ALL, else `usual`, the first of these.
inline int num_random_cases(int usual, int all) {
  return std::getenv("SUBBYTE_TEST_ALL") == nullptr ? usual : all;
}

}  // namespace subbyte::testing
