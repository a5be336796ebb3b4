#include "matrix/alternate_rows.h"

#include <algorithm>
#include <string>

namespace subbyte {
namespace {

/// Rows of both in turns, in a buffer of their own; empty for what neither has.
std::span<const std::byte> merge(std::span<const std::byte> first,
                                 std::span<const std::byte> second, int64_t rows, Matrix& result) {
  if (first.empty()) return {};
  const std::size_t size = first.size() + second.size();
  const auto bytes = allocate_bytes(size);
  const std::size_t row = first.size() / static_cast<std::size_t>(rows);
  for (std::size_t i = 0; i < first.size(); i += row) {
    std::copy_n(first.data() + i, row, bytes.get() + 2 * i);
    std::copy_n(second.data() + i, row, bytes.get() + 2 * i + row);
  }
  result.owners.push_back(bytes);
  return {bytes.get(), size};
}

/// Every second row from `first` on, in a buffer of their own; empty for what there is none of.
std::span<const std::byte> take(std::span<const std::byte> both, int64_t rows, int first,
                                Matrix& result) {
  if (both.empty()) return {};
  const std::size_t row = both.size() / static_cast<std::size_t>(rows);
  const std::size_t size = both.size() / 2;
  const auto bytes = allocate_bytes(size);
  for (std::size_t i = 0; i < size; i += row) {
    std::copy_n(both.data() + 2 * i + static_cast<std::size_t>(first) * row, row, bytes.get() + i);
  }
  result.owners.push_back(bytes);
  return {bytes.get(), size};
}

/// The same numbers in a buffer of the matrix.
template <typename Number>
void own(std::span<const Number>& numbers, Matrix& result) {
  if (numbers.empty()) return;
  const auto bytes = allocate_bytes(numbers.size_bytes());
  std::ranges::copy(std::as_bytes(numbers), bytes.get());
  result.owners.push_back(bytes);
  numbers = {reinterpret_cast<const Number*>(bytes.get()), numbers.size()};
}

/// What rows have in common.
void own_common(Matrix& result) {
  own(result.view.input_order, result);
  own(result.view.codebook, result);
}

std::string describe(const MatrixView& view) {
  return to_string(view.format) + " of " + std::to_string(view.rows) + " x " +
         std::to_string(view.cols);
}

}  // namespace

Result<Matrix> alternate_rows(const MatrixView& first, const MatrixView& second) {
  if (first.format != second.format || first.rows != second.rows || first.cols != second.cols) {
    return Error{"layout.format", "rows of " + describe(first) + " and of " + describe(second) +
                                      " do not alternate"};
  }
  if (first.tensor_scale != second.tensor_scale) {
    return Error{"layout.format", "rows of matrices with the factors " +
                                      std::to_string(first.tensor_scale) + " and " +
                                      std::to_string(second.tensor_scale) + " do not alternate"};
  }
  if (!std::ranges::equal(first.codebook, second.codebook)) {
    return Error{"layout.format", "rows of matrices with two codebooks do not alternate"};
  }
  if (!std::ranges::equal(first.input_order, second.input_order)) {
    return Error{"layout.format", "rows of matrices with two orders of inputs do not alternate"};
  }
  Matrix result;
  result.view = first;
  result.view.rows = 2 * first.rows;
  result.view.codes = merge(first.codes, second.codes, first.rows, result);
  result.view.scales = merge(first.scales, second.scales, first.rows, result);
  result.view.zeros = merge(first.zeros, second.zeros, first.rows, result);
  own_common(result);
  return result;
}

Matrix every_second_row(const MatrixView& both, int first) {
  Matrix result;
  result.view = both;
  result.view.rows = both.rows / 2;
  result.view.codes = take(both.codes, both.rows, first, result);
  result.view.scales = take(both.scales, both.rows, first, result);
  result.view.zeros = take(both.zeros, both.rows, first, result);
  own_common(result);
  return result;
}

MatrixView rows_of(const MatrixView& matrix, int64_t first, int64_t count) {
  const auto part = [&](std::span<const std::byte> all) {
    const std::size_t row = all.size() / static_cast<std::size_t>(matrix.rows);
    return all.subspan(static_cast<std::size_t>(first) * row,
                       static_cast<std::size_t>(count) * row);
  };
  MatrixView result = matrix;
  result.rows = count;
  result.codes = part(matrix.codes);
  result.scales = part(matrix.scales);
  result.zeros = part(matrix.zeros);
  return result;
}

}  // namespace subbyte
