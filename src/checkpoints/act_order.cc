#include "checkpoints/act_order.h"

#include <algorithm>
#include <numeric>

#include "checkpoints/code_stream.h"

namespace subbyte {

Result<std::vector<uint32_t>> input_order(const FileTensor& g_idx, int64_t cols, int64_t groups,
                                          int64_t group_size, const GroupIndexCodes& codes) {
  SUBBYTE_CHECK(require_dtype(g_idx, DType::kI32));
  SUBBYTE_CHECK(require_shape(g_idx, {static_cast<uint64_t>(cols)}));
  for (int64_t k = 0; k < cols; ++k) {
    const auto group = static_cast<int32_t>(load_u32(g_idx, k));
    if (group < 0 || group >= groups) {
      return tensor_error(codes.range, g_idx,
                          fmt::format("value {} at index {} is outside [0, {})", group, k, groups));
    }
  }
  std::vector<uint32_t> order(cols);
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, {}, [&](uint32_t k) { return load_u32(g_idx, k); });
  for (int64_t k = 0; k < cols; ++k) {
    const auto expected = group_size == 0 ? 0u : static_cast<uint32_t>(k / group_size);
    if (load_u32(g_idx, order[k]) != expected) {
      return tensor_error(
          codes.counts, g_idx,
          fmt::format("groups are not of {} inputs each: group {} has more or fewer",
                      group_size == 0 ? cols : group_size, expected));
    }
  }
  if (std::ranges::is_sorted(order)) order.clear();
  return order;
}

void reorder_codes(std::byte* codes, const MatrixView& view, std::span<const uint32_t> order,
                   Executor& pool) {
  const int bits = info(view.format.element).bits;
  const int64_t row_bytes = view.row_bytes();
  pool.parallel_for(view.rows, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<std::byte> sorted(row_bytes);
    for (int64_t n = begin; n < end; ++n) {
      std::byte* row = codes + n * row_bytes;
      std::ranges::fill(sorted, std::byte{0});
      for (int64_t k = 0; k < view.cols; ++k) {
        put_code(sorted.data(), k, bits, stream_code(row, order[k], bits));
      }
      std::ranges::copy(sorted, row);
    }
  });
}

void unsort_row(std::byte* row, const MatrixView& matrix, int64_t n) {
  const int bits = info(matrix.format.element).bits;
  std::fill_n(row, matrix.row_bytes(), std::byte{0});
  for (int64_t k = 0; k < matrix.cols; ++k) {
    put_code(row, matrix.input_order[k], bits, code_at(matrix, n, k));
  }
}

void write_group_indices(std::byte* g_idx, const MatrixView& matrix) {
  for (int64_t k = 0; k < matrix.cols; ++k) {
    const int64_t input = matrix.input_order.empty() ? k : matrix.input_order[k];
    const auto group = static_cast<uint32_t>(k / matrix.group_size());
    __builtin_memcpy(g_idx + 4 * input, &group, 4);
  }
}

}  // namespace subbyte
