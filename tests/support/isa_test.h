#pragma once
// Tests that run once for every instruction set of this machine.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/execution.h"

namespace subbyte::testing {

inline std::vector<std::string> isas_of_this_machine() {
  std::vector<std::string> names;
  for (const cpu::Kernels* kernels : cpu::all_kernels()) {
    if (cpu::select_kernels(kernels->name).ok()) names.emplace_back(kernels->name);
  }
  return names;
}

class IsaTest : public ::testing::TestWithParam<std::string> {
 protected:
  /// Made once for all tests: starting eight threads takes longer than most of them run.
  static Execution& execution(int threads) {
    static std::map<std::pair<std::string, int>, std::unique_ptr<Execution>> made;
    std::unique_ptr<Execution>& one = made[{GetParam(), threads}];
    if (one == nullptr) {
      auto created = Execution::create({.num_threads = threads, .isa = GetParam()});
      EXPECT_TRUE(created.ok());
      one = std::move(*created);
    }
    return *one;
  }
};

}  // namespace subbyte::testing

#define SUBBYTE_FOR_EVERY_ISA(suite)                                                      \
  INSTANTIATE_TEST_SUITE_P(EveryIsa, suite,                                               \
                           ::testing::ValuesIn(subbyte::testing::isas_of_this_machine()), \
                           [](const auto& test) { return test.param; })
