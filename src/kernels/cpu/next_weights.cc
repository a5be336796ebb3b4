#include "kernels/cpu/next_weights.h"

#include <algorithm>
#include <span>

#include "base/coming_reads.h"

namespace subbyte {
namespace {

// What the second level of a core's cache keeps beside what the loop that runs reads.
constexpr int64_t kMostBytes = 256 << 10;

int64_t row_bytes(const MatrixView& matrix) {
  return matrix.row_bytes() + matrix.scale_row_bytes() + matrix.zero_row_bytes();
}

void add_rows(const MatrixView& matrix, int64_t first, int64_t count) {
  const auto add = [&](std::span<const std::byte> rows, int64_t bytes) {
    coming_reads.add(rows.data() + first * bytes, count * bytes);
  };
  if (matrix.scale_row_bytes() > 0) add(matrix.scales, matrix.scale_row_bytes());
  if (matrix.zero_row_bytes() > 0) add(matrix.zeros, matrix.zero_row_bytes());
  add(matrix.codes, matrix.row_bytes());
}

}  // namespace

void expect_reads(const NextWeights& next, int64_t thread, int64_t threads) {
  if (!coming_reads.begin(&next)) return;
  int64_t rows = 0;
  for (std::size_t i = 0; i < next.matrices.size(); i += next.set_size) {
    rows += next.matrices[i]->rows;
  }
  int64_t begin = rows * thread / threads;
  int64_t end = rows * (thread + 1) / threads;
  int64_t left = kMostBytes;
  for (std::size_t i = 0; i < next.matrices.size() && end > 0; i += next.set_size) {
    const auto set = std::span(next.matrices).subspan(i, next.set_size);
    const int64_t first = std::max<int64_t>(begin, 0);
    int64_t bytes = 0;
    for (const MatrixView* matrix : set) bytes += row_bytes(*matrix);
    const int64_t count = std::min(std::min(end, set.front()->rows) - first, left / bytes);
    begin -= set.front()->rows;
    end -= set.front()->rows;
    if (count <= 0) continue;
    for (const MatrixView* matrix : set) add_rows(*matrix, first, count);
    left -= count * bytes;
  }
}

}  // namespace subbyte
