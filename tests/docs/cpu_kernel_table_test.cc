// The table of docs/kernels/cpu.md, "Which variant runs", says what the dispatch tables say.

#include "docs/cpu_kernel_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "support/paths.h"

namespace subbyte::cpu {
namespace {

constexpr const char* kHowToWrite =
    "; write it anew with: build/release/tests/docs/write_cpu_kernel_table docs/kernels/cpu.md\n";

std::string page() {
  std::ifstream file(std::string(SUBBYTE_TEST_DATA) + "/../../docs/kernels/cpu.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The lines of the table about a tier.
std::string rows_in_page(const std::string& tier) {
  const std::string text = page();
  std::istringstream lines(text.substr(std::min(text.find(kTableBegin), text.size())));
  std::string rows;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("|`" + tier + "`|")) rows += line + "\n";
  }
  return rows;
}

TEST(CpuKernelTable, of_the_docs_is_that_of_each_tier_that_is_compiled_in) {
  for (const Kernels* kernels : all_kernels()) {
    EXPECT_EQ(rows_in_page(std::string(kernels->name)), kernel_table_rows(*kernels))
        << "docs/kernels/cpu.md has another table for " << kernels->name << kHowToWrite;
  }
}

// A scalar build cannot see the other tiers' tables.
TEST(CpuKernelTable, is_what_writing_it_anew_would_give) {
  if (all_kernels().size() == 1) GTEST_SKIP() << "this build has one tier only";
  EXPECT_EQ(with_kernel_table(page()), page())
      << "docs/kernels/cpu.md has another table" << kHowToWrite;
}

TEST(CpuKernelTable, of_a_page_without_its_place_is_empty) {
  EXPECT_EQ(with_kernel_table("no table\n"), "");
  const std::string wrong_order[] = {kTableEnd, kTableBegin};
  EXPECT_EQ(with_kernel_table(wrong_order[0] + wrong_order[1]), "");
}

}  // namespace
}  // namespace subbyte::cpu
