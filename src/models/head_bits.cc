#include "models/head_bits.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/quote.h"
#include "matrix/float_rows.h"
#include "quantize/round_to_nearest.h"

namespace subbyte {
namespace {

constexpr int64_t kGroupOf4Bits = 32;
constexpr int64_t kGroupOf8Bits = 128;
constexpr int64_t kSmallestGroup = 8;                // of the kernels
constexpr int64_t kReleaseBytes = int64_t{4} << 20;  // of the file, after they are read

}  // namespace

Status check_head_bits(int bits) {
  if (bits == 4 || bits == 8 || bits == 16) return {};
  return Error{"model.head_bits",
               fmt::format("expected 4, 8 or 16 bits for embedding and lm_head, found {}", bits)};
}

Result<WeightFormat> head_format(int bits, int64_t cols, const FileTensor& table) {
  int64_t group = bits == 4 ? kGroupOf4Bits : kGroupOf8Bits;
  while (group > kSmallestGroup && cols % group != 0) group /= 2;
  if (cols % group != 0) {
    return Error{"model.head_bits",
                 fmt::format("{}: {} columns are not a multiple of {}, so {} bits need the lm_head "
                             "as it is (16)",
                             quote_name(table.name), cols, kSmallestGroup, bits)};
  }
  if (bits == 4) return WeightFormat{Format::kU4, Format::kF16, Zero::kU8, group};
  return WeightFormat{Format::kU8, Format::kF16, Zero::kU16, group};
}

Result<Matrix> quantize_table(const Matrix& table, const FileTensor& tensor, int bits,
                              Executor& executor) {
  const MatrixView& view = table.view;
  SUBBYTE_TRY(const WeightFormat format, head_format(bits, view.cols, tensor));
  const int64_t row_bytes = view.row_bytes();
  const int64_t rows_at_once = std::max<int64_t>(1, kReleaseBytes / row_bytes);
  const FloatRows rows(view);
  const auto read_row = [&](int64_t row, float* out) {
    rows.row(row, out);
    // What this thread has read is not needed any more. At the first row of a share it is another
    // thread's: then that one reads it again, from the cache of the system.
    if ((row + 1) % rows_at_once != 0) return;
    const int64_t first = (row + 1 - rows_at_once) * row_bytes;
    tensor.file->release(tensor.bytes.subspan(first, rows_at_once * row_bytes));
  };
  auto quantized =
      quantize_min_max(view.rows, view.cols, format.group_size, bits, read_row, executor);
  tensor.file->release(tensor.bytes);
  if (quantized.ok()) return quantized;
  return Error{quantized.error().code,
               fmt::format("{}: {}", quote_name(tensor.name), quantized.error().message)};
}

}  // namespace subbyte
