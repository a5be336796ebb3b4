#include "parallel/cut_matrix.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "formats/weight_format.h"
#include "matrix/alternate_rows.h"
#include "parallel/shares.h"

namespace subbyte {
namespace {

constexpr int64_t kLeastUnit = 8;  // products take columns of quantized matrices in multiples of 8

/// Copies ranges of bytes of each row, which follow each other in the rows of the result.
std::span<const std::byte> cut_bytes(std::span<const std::byte> bytes, int64_t rows,
                                     int64_t row_bytes, const Columns& ranges, Matrix& owner) {
  const int64_t cut_row_bytes = size_of(ranges);
  const auto size = static_cast<std::size_t>(rows * cut_row_bytes);
  if (bytes.empty() || size == 0) return {};
  const std::shared_ptr<std::byte[]> made = allocate_bytes(size);
  std::byte* to = made.get();
  for (int64_t row = 0; row < rows; ++row) {
    for (const ColumnRange& range : ranges) {
      const auto count = static_cast<std::size_t>(range.count);
      std::memcpy(to, bytes.data() + row * row_bytes + range.first, count);
      to += count;
    }
  }
  owner.owners.push_back(made);
  return {made.get(), size};
}

/// Bytes of a row that hold the numbers of the groups of these columns: of each group `width`, and
/// after those of all groups two for each superblock, where there are two levels.
Columns number_bytes(const MatrixView& matrix, const Columns& stored, int width, bool two_levels) {
  Columns bytes;
  const int64_t group = matrix.group_size();
  if (matrix.groups() == 1) bytes.push_back({0, width});
  for (const ColumnRange& range : stored) {
    if (matrix.groups() == 1) break;
    const int64_t first = range.first / group;
    bytes.push_back({first * width, ((range.end() - 1) / group + 1 - first) * width});
  }
  if (!two_levels) return bytes;
  const int64_t begin = matrix.groups() * width;
  for (const ColumnRange& range : stored) {
    const int64_t first = range.first / kSuperblock;
    bytes.push_back({begin + first * 2, (num_superblocks(range.end()) - first) * 2});
  }
  return bytes;
}

Columns code_bytes(const MatrixView& matrix, const Columns& stored) {
  Columns bytes;
  const int64_t width = bits(matrix.format.element);
  for (const ColumnRange& range : stored) {
    const int64_t first = range.first * width / 8;
    bytes.push_back({first, (range.end() * width + 7) / 8 - first});
  }
  return bytes;
}

/// One by one, where there is an order.
Columns columns_of_inputs(const MatrixView& matrix, const Columns& inputs) {
  if (matrix.input_order.empty()) return inputs;
  std::vector<int64_t> column_of(matrix.input_order.size());
  for (std::size_t k = 0; k < column_of.size(); ++k) {
    column_of[matrix.input_order[k]] = static_cast<int64_t>(k);
  }
  Columns stored;
  for (const ColumnRange& range : inputs) {
    for (int64_t i = range.first; i < range.end(); ++i) {
      stored.push_back({column_of[static_cast<std::size_t>(i)], 1});
    }
  }
  return stored;
}

template <class Number>
std::span<const Number> copied(std::span<const Number> numbers, Matrix& owner) {
  if (numbers.empty()) return {};
  auto copy = std::make_shared<const std::vector<Number>>(numbers.begin(), numbers.end());
  owner.owners.push_back(copy);
  return *copy;
}

/// The matrix without its bytes, with a codebook and an order of inputs of its own.
Matrix without_bytes(const MatrixView& view) {
  Matrix empty = {view, {}};
  empty.view.codebook = copied(view.codebook, empty);
  empty.view.input_order = copied(view.input_order, empty);
  return empty;
}

Matrix whole_rows(const Matrix& matrix, const ColumnRange& rows) {
  return {rows_of(matrix.view, rows.first, rows.count), matrix.owners};
}

}  // namespace

int64_t column_unit(const MatrixView& matrix) {
  if (is_dense(matrix.format)) return 1;
  int64_t unit = kLeastUnit;
  const int64_t group = matrix.group_size();
  if (group < matrix.cols) unit = std::lcm(unit, group);
  if (matrix.format.rotation > 0) unit = std::lcm(unit, int64_t{matrix.format.rotation});
  return has_two_levels(matrix.format) ? std::lcm(unit, int64_t{kSuperblock}) : unit;
}

std::optional<Columns> stored_columns(const MatrixView& matrix, const Columns& inputs) {
  const Columns stored = joined(columns_of_inputs(matrix, inputs));
  const int64_t unit = column_unit(matrix);
  for (const ColumnRange& range : stored) {
    const bool ends = &range == &stored.back() && range.end() == matrix.cols;
    if (range.first % unit != 0 || (range.count % unit != 0 && !ends)) return std::nullopt;
  }
  return stored;
}

Columns inputs_of(const MatrixView& matrix, const Columns& stored) {
  if (matrix.input_order.empty()) return stored;
  Columns inputs;
  for (const ColumnRange& range : stored) {
    for (int64_t k = range.first; k < range.end(); ++k) {
      inputs.push_back({matrix.input_order[static_cast<std::size_t>(k)], 1});
    }
  }
  return joined(inputs);
}

Matrix cut_rows(const Matrix& matrix, const Columns& rows) {
  const MatrixView& view = matrix.view;
  if (rows.size() == 1) return whole_rows(matrix, rows.front());
  Matrix cut = without_bytes(view);
  cut.view.rows = size_of(rows);
  const auto take = [&](std::span<const std::byte> bytes) {
    const int64_t row = std::ssize(bytes) / view.rows;
    Columns ranges;
    for (const ColumnRange& range : rows) ranges.push_back(columns_of(range, row));
    return cut_bytes(bytes, 1, std::ssize(bytes), ranges, cut);
  };
  cut.view.codes = take(view.codes);
  cut.view.scales = take(view.scales);
  cut.view.zeros = take(view.zeros);
  return cut;
}

Matrix cut_columns(const Matrix& matrix, const Columns& inputs) {
  const MatrixView& view = matrix.view;
  const Columns stored = stored_columns(view, inputs).value_or(Columns());
  Matrix cut = without_bytes(view);
  cut.view.cols = size_of(stored);
  cut.view.input_order = {};
  const auto take = [&](std::span<const std::byte> bytes, int64_t row_bytes,
                        const Columns& ranges) {
    return cut_bytes(bytes, view.rows, row_bytes, ranges, cut);
  };
  cut.view.codes = take(view.codes, view.row_bytes(), code_bytes(view, stored));
  if (is_dense(view.format)) return cut;
  const Format scale = view.format.scale;
  cut.view.scales = take(view.scales, view.scale_row_bytes(),
                         number_bytes(view, stored, scale_bytes(scale), has_two_levels(scale)));
  const Zero zero = view.format.zero;
  cut.view.zeros = take(view.zeros, view.zero_row_bytes(),
                        number_bytes(view, stored, zero_bytes(zero), has_two_levels(zero)));
  return cut;
}

}  // namespace subbyte
