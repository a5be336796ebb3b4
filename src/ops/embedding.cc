#include "ops/embedding.h"

#include <cstring>

#include "base/float16.h"

namespace subbyte {
namespace {

template <typename T>
void convert_row(float* y, const std::byte* row, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    T value;
    std::memcpy(&value, row + i * sizeof(T), sizeof(T));
    y[i] = to_float(value);
  }
}

}  // namespace

void embed(std::span<float> y, std::span<const int32_t> ids, const MatrixView& table) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    float* to = y.data() + i * table.cols;
    const std::byte* row = table.codes.data() + ids[i] * table.row_bytes();
    switch (table.format.element) {
      case Format::kF16:
        convert_row<Float16>(to, row, table.cols);
        break;
      case Format::kBF16:
        convert_row<BFloat16>(to, row, table.cols);
        break;
      default:
        convert_row<float>(to, row, table.cols);
        break;
    }
  }
}

}  // namespace subbyte
