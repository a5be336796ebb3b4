#pragma once
// The table of docs/kernels/cpu.md that says which kernel variant serves which tier, format and M,
// made of the dispatch tables that are compiled in. None of the kernels runs.

#include <string>

#include "kernels/cpu/cpu_kernels.h"

namespace subbyte::cpu {

/// The rows of one tier, each with its newline. Formats with equal entries share a row.
std::string kernel_table_rows(const Kernels& kernels);

/// `page` with the rows between kTableBegin and kTableEnd of all tiers that are compiled in; those
/// of others stay, and a tier that has none yet comes first. Empty without these two lines.
std::string with_kernel_table(const std::string& page);

inline constexpr const char* kTableBegin = "<!-- made by write_cpu_kernel_table: begin -->\n";
inline constexpr const char* kTableEnd = "<!-- end -->\n";

}  // namespace subbyte::cpu
