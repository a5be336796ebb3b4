#pragma once
// Columns of a value, or rows of the matrix that gives it.

#include <cstdint>
#include <vector>

namespace subbyte {

struct ColumnRange {
  int64_t first = 0;
  int64_t count = 0;

  int64_t end() const { return first + count; }
  bool operator==(const ColumnRange&) const = default;
};

/// Range after range, in the order in which they lie where somebody has these alone.
using Columns = std::vector<ColumnRange>;

}  // namespace subbyte
