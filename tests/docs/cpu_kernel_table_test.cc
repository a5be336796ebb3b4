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

TEST(CpuKernelTable, is_what_writing_it_anew_would_give) {
  EXPECT_EQ(with_kernel_table(page()), page())
      << "docs/kernels/cpu.md has another table" << kHowToWrite;
}

TEST(CpuKernelTable, keeps_the_rows_of_tiers_that_this_build_lacks) {
  const std::string lacking = "|`none`|u4|any|1- gemv/f32|as f32|as f32|gemv/f32|\n";
  const std::string begin = kTableBegin;
  const std::string text = with_kernel_table(begin + lacking + "|`scalar`|old|\n" + kTableEnd);
  const std::size_t kept = text.find(lacking);
  ASSERT_NE(kept, std::string::npos) << text;
  EXPECT_EQ(text.substr(kept + lacking.size()),
            kernel_table_rows(*all_kernels().back()) + kTableEnd);
}

TEST(CpuKernelTable, of_a_page_without_its_place_is_empty) {
  EXPECT_EQ(with_kernel_table("no table\n"), "");
  const std::string wrong_order[] = {kTableEnd, kTableBegin};
  EXPECT_EQ(with_kernel_table(wrong_order[0] + wrong_order[1]), "");
}

}  // namespace
}  // namespace subbyte::cpu
