#include "docs/cpu_kernel_table.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include "formats/weight_format.h"

namespace subbyte::cpu {
namespace {

constexpr const char* kPrecisionNames[] = {"f32", "bf16", "int8"};

/// What the table shows of one format and one kind of groups.
struct Row {
  std::string formats;
  std::string groups;
  std::string variants[kPrecisions];
  std::string invariant;

  bool same_variants(const Row& other) const {
    return std::ranges::equal(variants, other.variants) && invariant == other.invariant;
  }
};

std::string format_of(const MatmulKernel& kernel) {
  if (kernel.element == Format::kE2M1) {
    return kernel.scale == Format::kE8M0 ? "mxfp4" : "nvfp4";
  }
  return std::string(info(kernel.element).name);
}

/// "1-2 gemv/f32, 3-8 ..., 9- gemm/f32".
std::string variants_of(const auto& list) {
  std::string text;
  int64_t first = 1;
  for (const auto& [variant, max_m] : list.entries) {
    if (!text.empty()) text += ", ";
    text += std::to_string(first) + "-";
    if (max_m != INT64_MAX) text += std::to_string(max_m);
    text += std::string(" ") + variant.name;
    if (max_m == INT64_MAX) break;
    first = max_m + 1;
  }
  return text;
}

Row row_of(const MatmulKernel& kernel, GroupKind groups) {
  Row row;
  row.formats = format_of(kernel);
  for (int i = 0; i < kPrecisions; ++i) {
    const auto& list = kernel.list(groups, static_cast<Precision>(i));
    row.variants[i] = variants_of(list);
    const std::string name = list.invariant.name;
    if (i > 0 && name == kernel.list(groups, static_cast<Precision>(i - 1)).invariant.name)
      continue;
    if (i > 0) row.invariant += std::string(", ") + kPrecisionNames[i] + " ";
    row.invariant += name;
  }
  for (int i = kPrecisions - 1; i > 0; --i) {
    if (row.variants[i] == row.variants[i - 1]) {
      row.variants[i] = std::string("as ") + kPrecisionNames[i - 1];
    }
  }
  return row;
}

/// One row for each set of groups with variants of its own.
std::vector<Row> rows_of(const Kernels& kernels, const MatmulKernel& kernel) {
  const std::string names[] = {std::to_string(8 * kernels.lanes) + "s, rows", "32s", "8s"};
  std::vector<Row> rows;
  for (int i = 0; i < kGroupKinds; ++i) {
    Row row = row_of(kernel, static_cast<GroupKind>(i));
    if (!rows.empty() && rows.back().same_variants(row)) {
      rows.back().groups += ", " + names[i];
    } else {
      row.groups = names[i];
      rows.push_back(row);
    }
  }
  if (rows.size() == 1) rows.front().groups = "any";
  return rows;
}

bool holds(const std::string& list, const std::string& word) {
  return (", " + list + ",").find(", " + word + ",") != std::string::npos;
}

struct Tier {
  std::string name;
  std::string rows;
};

const Tier* find_tier(const std::vector<Tier>& tiers, std::string_view name) {
  const auto found = std::ranges::find(tiers, name, &Tier::name);
  return found == tiers.end() ? nullptr : &*found;
}

/// The tiers that the lines "|`tier`|..." of a table are about, in its order.
std::vector<Tier> tiers_of(const std::string& table) {
  std::vector<Tier> tiers;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("|`")) continue;
    const std::string name = line.substr(2, line.find('`', 2) - 2);
    if (tiers.empty() || tiers.back().name != name) tiers.push_back({name, ""});
    tiers.back().rows += line + "\n";
  }
  return tiers;
}

}  // namespace

std::string kernel_table_rows(const Kernels& kernels) {
  std::vector<Row> table;
  for (const MatmulKernel& kernel : kernels.matmuls) {
    if (is_offset(kernel.zero)) continue;  // the page says which variants they have
    for (const Row& row : rows_of(kernels, kernel)) {
      const auto same = std::ranges::find_if(table, [&](const Row& other) {
        return other.groups == row.groups && other.same_variants(row);
      });
      if (same == table.end()) {
        table.push_back(row);
      } else if (!holds(same->formats, row.formats)) {
        same->formats += ", " + row.formats;
      }
    }
  }
  std::string text;
  for (const Row& row : table) {
    text += "|`" + std::string(kernels.name) + "`|" + row.formats + "|" + row.groups;
    for (const std::string& variants : row.variants) text += "|" + variants;
    text += "|" + row.invariant + "|\n";
  }
  return text;
}

std::string with_kernel_table(const std::string& page) {
  const std::size_t begin = page.find(kTableBegin);
  const std::size_t end = page.find(kTableEnd);
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  const std::size_t first = begin + std::string_view(kTableBegin).size();
  const std::vector<Tier> stated = tiers_of(page.substr(first, end - first));
  std::string made =
      "|tier|weights|groups|`f32`: M, variant|`bf16`|`int8`|batch-invariant|\n"
      "|---|---|---|---|---|---|---|\n";
  for (const Kernels* kernels : all_kernels()) {
    if (!find_tier(stated, kernels->name)) made += kernel_table_rows(*kernels);
  }
  for (const Tier& tier : stated) {
    const auto built = std::ranges::find(all_kernels(), tier.name, &Kernels::name);
    made += built == all_kernels().end() ? tier.rows : kernel_table_rows(**built);
  }
  return page.substr(0, first) + made + page.substr(end);
}

}  // namespace subbyte::cpu
