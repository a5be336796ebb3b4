#pragma once
// Tests that run once for every instruction set of this machine.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ops/execution.h"

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
  static std::unique_ptr<Execution> execution(int threads) {
    auto created = Execution::create(threads, GetParam());
    EXPECT_TRUE(created.ok());
    return std::move(*created);
  }
};

}  // namespace subbyte::testing

#define SUBBYTE_FOR_EVERY_ISA(suite)                                                      \
  INSTANTIATE_TEST_SUITE_P(EveryIsa, suite,                                               \
                           ::testing::ValuesIn(subbyte::testing::isas_of_this_machine()), \
                           [](const auto& test) { return test.param; })
