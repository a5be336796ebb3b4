#include "parallel/group_weights.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "parallel/cut_matrix.h"

namespace subbyte {
namespace {

const GroupWeight& open(const Weight& weight) {
  return *static_cast<const GroupWeight*>(weight.storage.get());
}
const ExpertMatrices& open(const Experts& experts) {
  return *static_cast<const ExpertMatrices*>(experts.storage.get());
}
const std::vector<float>& open(const Vector& numbers) {
  return *static_cast<const std::vector<float>*>(numbers.storage.get());
}

/// Multiples of `unit` that suit kernels, where they divide the columns as evenly, or nearly so.
int64_t coarse_unit(int64_t cols, int64_t unit, int ranks) {
  constexpr int64_t kManyUnits = 8;  // of a rank: one more or less does not matter
  for (const int64_t tile : {128, 64, 32, 16}) {
    const int64_t coarse = std::lcm(unit, tile);
    const bool is_even = cols % (coarse * ranks) == 0;
    if (is_even || cols >= kManyUnits * ranks * coarse) return coarse;
  }
  return unit;
}

std::vector<float> part_of(std::span<const float> numbers, const Columns& columns) {
  std::vector<float> part;
  for (const ColumnRange& range : columns) {
    const auto found = numbers.subspan(static_cast<std::size_t>(range.first),
                                       static_cast<std::size_t>(range.count));
    part.insert(part.end(), found.begin(), found.end());
  }
  return part;
}

/// Rows of gate and up that give these inner numbers, in a matrix that has both in turns.
Columns in_turns(const Columns& inner) {
  Columns rows;
  for (const ColumnRange& range : inner) rows.push_back(columns_of(range, 2));
  return rows;
}

/// Bytes of a part of a matrix, of which only the sizes are there.
int64_t scaled(int64_t bytes, int64_t part, int64_t whole) {
  return whole == 0 ? 0 : bytes * part / whole;
}

}  // namespace

// ---- borders

Parts stored_parts(const MatrixView& matrix, int ranks) {
  return even_parts(matrix.cols, coarse_unit(matrix.cols, column_unit(matrix), ranks), ranks);
}

Columns rows_within(const Columns& rows, int64_t first, int64_t count) {
  Columns found;
  for (const ColumnRange& range : rows) {
    const int64_t begin = std::max(range.first, first);
    const int64_t end = std::min(range.end(), first + count);
    if (begin < end) found.push_back({begin - first, end - begin});
  }
  return found;
}

Parts GroupBorders::input_parts(const Weight& weight, int ranks) const {
  if (weight.storage == nullptr) return even_parts(weight.cols, 1, ranks);
  const MatrixView& first = open(weight).matrices.front().view;
  Parts parts = stored_parts(first, ranks);
  for (Columns& part : parts) {
    part = inputs_of(first, part);
    if (!can_cut(weight, part)) return {};
  }
  return parts;
}

bool GroupBorders::can_cut(const Weight& weight, const Columns& inputs) const {
  if (weight.storage == nullptr) return true;
  return std::ranges::all_of(open(weight).matrices, [&](const Matrix& matrix) {
    return stored_columns(matrix.view, inputs).has_value();
  });
}

bool GroupBorders::can_divide(const Experts& experts, int ranks) const {
  if (experts.storage == nullptr) return experts.inner >= ranks;
  const ExpertMatrices& matrices = open(experts);
  const int64_t unit = column_unit(matrices.down.front().view);
  const auto is_alike = [&](const Matrix& down) { return column_unit(down.view) == unit; };
  return std::ranges::all_of(matrices.down, is_alike) &&
         !stored_parts(matrices.down.front().view, ranks).empty();
}

// ---- parts

Weight RankCutter::upload(std::vector<Matrix> matrices, std::vector<float> bias, bool is_far) {
  Weight weight =
      kept(is_far                 ? backend_->upload_far(std::move(matrices.front()))
           : matrices.size() == 1 ? backend_->upload(std::move(matrices.front()), std::move(bias))
                                  : backend_->upload_joined(std::move(matrices), std::move(bias)));
  if (weight.bytes > largest_.bytes) largest_ = weight;
  return weight;
}

Vector RankCutter::upload(std::vector<float> numbers) {
  return kept(backend_->upload(std::move(numbers)));
}

Experts RankCutter::upload(ExpertMatrices experts) {
  return kept(backend_->upload(std::move(experts)));
}

Weight RankCutter::whole(const Weight& weight) {
  if (weight.storage == nullptr) return weight;
  const auto known = wholes_.find(weight.storage.get());
  if (known != wholes_.end()) return known->second;
  const GroupWeight& all = open(weight);
  return wholes_[weight.storage.get()] = upload(all.matrices, all.bias, all.is_far);
}

Vector RankCutter::whole(const Vector& numbers) {
  return numbers.storage == nullptr ? numbers : upload(open(numbers));
}

Experts RankCutter::whole(const Experts& experts) {
  return experts.storage == nullptr ? experts : upload(open(experts));
}

Weight RankCutter::outputs(const Weight& weight, const Columns& rows) {
  if (weight.storage == nullptr) {
    const int64_t mine = weight.rows == 0 ? 0 : size_of(rows);
    return {mine, weight.cols, scaled(weight.bytes, mine, weight.rows), nullptr};
  }
  std::vector<Matrix> parts;
  int64_t first = 0;
  for (const Matrix& matrix : open(weight).matrices) {
    const Columns mine = rows_within(rows, first, matrix.view.rows);
    if (!mine.empty()) parts.push_back(cut_rows(matrix, mine));
    first += matrix.view.rows;
  }
  const std::vector<float>& bias = open(weight).bias;
  return upload(std::move(parts), bias.empty() ? bias : part_of(bias, rows), false);
}

Weight RankCutter::inputs(const Weight& weight, const Columns& cols) {
  if (weight.storage == nullptr) {
    const int64_t mine = size_of(cols);
    return {weight.rows, mine, scaled(weight.bytes, mine, weight.cols), nullptr};
  }
  std::vector<Matrix> parts;
  for (const Matrix& matrix : open(weight).matrices) parts.push_back(cut_columns(matrix, cols));
  return upload(std::move(parts), rank_ == 0 ? open(weight).bias : std::vector<float>(), false);
}

Vector RankCutter::part(const Vector& numbers, const Columns& columns) {
  if (numbers.size == 0) return numbers;
  if (numbers.storage == nullptr) return {size_of(columns), nullptr};
  return upload(part_of(open(numbers), columns));
}

Experts RankCutter::part(const Experts& experts) {
  if (experts.storage == nullptr) {
    Experts part = experts;
    part.inner = share_of(experts.inner, rank_, ranks_).count;
    part.bytes = scaled(experts.bytes, part.inner, experts.inner);
    return part;
  }
  const ExpertMatrices& all = open(experts);
  ExpertMatrices part;
  part.top_k = all.top_k;
  part.gate = all.gate;
  part.swiglu = all.swiglu;
  const auto matrices_of_one = std::ssize(all.gate_up) / std::ssize(all.down);
  const bool are_in_turns = !all.is_apart() && is_gated(all.gate);
  std::size_t i = 0;
  int64_t row = 0;  // of all experts
  for (const Matrix& down : all.down) {
    const Columns inner = inputs_of(down.view, stored_parts(down.view, ranks_)[rank_]);
    const Columns rows = are_in_turns ? in_turns(inner) : inner;
    for (int64_t one = 0; one < matrices_of_one; ++one, ++i) {
      part.gate_up.push_back(cut_rows(all.gate_up[i], rows));
      Columns biased;
      for (const ColumnRange& range : rows) biased.push_back({range.first + row, range.count});
      if (all.gate_up_bias.empty()) biased.clear();
      const std::vector<float> bias = part_of(all.gate_up_bias, biased);
      part.gate_up_bias.insert(part.gate_up_bias.end(), bias.begin(), bias.end());
      row += all.gate_up[i].view.rows;
    }
    part.down.push_back(cut_columns(down, inner));
  }
  if (rank_ == 0) part.down_bias = all.down_bias;
  return upload(std::move(part));
}

}  // namespace subbyte
