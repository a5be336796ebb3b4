#pragma once
// Act-order: files keep the inputs in their own order and say in g_idx which group each is of.
// Canonical matrices keep groups contiguous and say in input_order which input each column is.
//
//   g_idx        1 0 0 1      input 0 is of group 1, inputs 1 and 2 of group 0
//   input_order  1 2 0 3      a stable sort by group: columns 0 and 1 are group 0

#include <string_view>
#include <vector>

#include "checkpoints/import_parts.h"

namespace subbyte {

struct GroupIndexCodes {
  std::string_view range;   // a group that does not exist
  std::string_view counts;  // groups that are not of group_size inputs each
};

/// Inputs in the order of their groups, empty when that is their own order. `g_idx` is I32 [cols];
/// `group_size` 0 means that all inputs share one group. Codes: import.dtype, import.shape and
/// `codes`.
Result<std::vector<uint32_t>> input_order(const FileTensor& g_idx, int64_t cols, int64_t groups,
                                          int64_t group_size, const GroupIndexCodes& codes);

/// Puts the codes of each row, which are in the order of the inputs, into `order`.
void reorder_codes(std::byte* codes, const MatrixView& view, std::span<const uint32_t> order,
                   Executor& pool);

/// Row `n` of an act-order matrix in the order of the inputs; `row` has view.row_bytes().
void unsort_row(std::byte* row, const MatrixView& matrix, int64_t n);

/// g_idx, I32 [cols], of any matrix.
void write_group_indices(std::byte* g_idx, const MatrixView& matrix);

}  // namespace subbyte
