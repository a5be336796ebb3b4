#include "parallel/rank_sizes.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "parallel/group_weights.h"
#include "parallel/rank_plan.h"

namespace subbyte {
namespace {

const GroupWeight& open(const Weight& weight) {
  return *static_cast<const GroupWeight*>(weight.storage.get());
}

/// Bytes of a matrix like this one, of another size.
int64_t bytes_of(MatrixView view, int64_t rows, int64_t cols) {
  view.cols = cols;
  const int64_t numbers =
      is_dense(view.format) ? 0 : view.scale_row_bytes() + view.zero_row_bytes();
  return rows * (view.row_bytes() + numbers);
}

/// Counts what one rank is given. Handles of what it has as a whole keep their storage.
class SizingCutter : public WeightCutter {
 public:
  SizingCutter(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  Weight whole(const Weight& weight) override {
    if (weight.storage != nullptr && wholes_.insert(weight.storage.get()).second) {
      add_whole(weight.bytes);
    }
    return weight;
  }
  Vector whole(const Vector& numbers) override {
    add_whole(numbers.size * 4);
    return numbers;
  }
  Experts whole(const Experts& experts) override {
    add_whole(bytes_of(*static_cast<const ExpertMatrices*>(experts.storage.get())));
    return experts;
  }
  Weight outputs(const Weight& weight, const Columns& rows) override {
    if (weight.storage == nullptr) return weight;
    int64_t first = 0;
    for (const Matrix& matrix : open(weight).matrices) {
      const MatrixView& view = matrix.view;
      sizes_.weight_bytes +=
          bytes_of(view, size_of(rows_within(rows, first, view.rows)), view.cols);
      first += view.rows;
    }
    return {size_of(rows), weight.cols, 0, nullptr};
  }
  Weight inputs(const Weight& weight, const Columns& cols) override {
    for (const Matrix& matrix : open(weight).matrices) {
      sizes_.weight_bytes += bytes_of(matrix.view, matrix.view.rows, size_of(cols));
    }
    return {weight.rows, size_of(cols), 0, nullptr};
  }
  Vector part(const Vector& numbers, const Columns& columns) override {
    if (numbers.size == 0) return numbers;
    sizes_.weight_bytes += size_of(columns) * 4;
    return {size_of(columns), nullptr};
  }
  Experts part(const Experts& experts) override {
    const auto& all = *static_cast<const ExpertMatrices*>(experts.storage.get());
    const int64_t inner = size_of(stored_parts(all.down.front().view, ranks_)[rank_]);
    for (const Matrix& one : all.gate_up) {
      sizes_.weight_bytes += one.view.bytes() * inner / experts.inner;
    }
    for (const Matrix& one : all.down) {
      sizes_.weight_bytes += bytes_of(one.view, one.view.rows, inner);
    }
    Experts part = experts;
    part.inner = inner;
    part.storage = nullptr;
    return part;
  }

  const RankSizes& sizes() const { return sizes_; }

 private:
  void add_whole(int64_t bytes) {
    sizes_.weight_bytes += bytes;
    sizes_.whole_bytes += bytes;
  }

  const int rank_;
  const int ranks_;
  RankSizes sizes_;
  std::set<const void*> wholes_;
};

/// Each number in a name as "*".
std::string without_numbers(const std::string& name) {
  std::string result;
  for (const char letter : name) {
    if (std::isdigit(static_cast<unsigned char>(letter)) == 0) {
      result += letter;
    } else if (result.empty() || result.back() != '*') {
      result += '*';
    }
  }
  return result;
}

/// Lists the matrices of the plan of a rank that it has as a whole.
class WholeList {
 public:
  void add(const Op& op) {
    if (const auto* const embed = std::get_if<EmbedOp>(&op.what)) add(op, embed->table);
    if (const auto* const linear = std::get_if<LinearOp>(&op.what)) add(op, linear->weight);
    if (const auto* const gated = std::get_if<GatedLinearOp>(&op.what)) add(op, gated->gate_up);
    if (const auto* const heads = std::get_if<HeadsLinearOp>(&op.what)) add(op, heads->weight);
    const auto* const experts = std::get_if<ExpertsOp>(&op.what);
    if (experts == nullptr || experts->experts.storage == nullptr) return;
    add(op.name, bytes_of(*static_cast<const ExpertMatrices*>(experts->experts.storage.get())));
  }

  std::vector<WholeMatrices> take() && { return std::move(list_); }

 private:
  void add(const Op& op, const Weight& weight) {
    if (weight.storage == nullptr || !seen_.insert(weight.storage.get()).second) return;
    add(op.name, weight.bytes);
  }
  void add(const std::string& op, int64_t bytes) {
    const std::string name = without_numbers(op);
    auto found = std::ranges::find(list_, name, &WholeMatrices::name);
    if (found == list_.end()) found = list_.insert(found, {name, 0, 0});
    ++found->count;
    found->bytes += bytes;
  }

  std::vector<WholeMatrices> list_;
  std::set<const void*> seen_;
};

}  // namespace

Result<Weight> SizingBackend::upload(Matrix matrix, std::vector<float> bias) {
  std::vector<Matrix> one;
  one.push_back(std::move(matrix));
  return upload_joined(std::move(one), std::move(bias));
}

Result<Weight> SizingBackend::upload_joined(std::vector<Matrix> matrices, std::vector<float> bias) {
  SUBBYTE_TRY(Weight weight, joined_sizes(matrices, bias));
  for (const Matrix& matrix : matrices) weight.bytes += matrix.view.bytes();
  weight.storage =
      std::make_shared<const GroupWeight>(GroupWeight{std::move(matrices), std::move(bias)});
  return weight;
}

Result<Weight> SizingBackend::upload_far(Matrix table) {
  return upload(std::move(table), {});
}

Result<Experts> SizingBackend::upload(ExpertMatrices experts) {
  SUBBYTE_CHECK(check_shapes(experts));
  const MatrixView& down = experts.down.front().view;
  Experts uploaded = {std::ssize(experts.down), experts.top_k, down.rows, down.cols, nullptr};
  uploaded.storage = std::make_shared<const ExpertMatrices>(std::move(experts));
  return uploaded;
}

Result<Vector> SizingBackend::upload(std::vector<float> numbers) {
  const auto size = std::ssize(numbers);
  return Vector{size, std::make_shared<const std::vector<float>>(std::move(numbers))};
}

Result<std::unique_ptr<CompiledStep>> SizingBackend::compile(StepPlan plan) {
  const Division division = divide(plan, num_ranks_, GroupBorders());
  sizes_ = {};
  for (int rank = 0; rank < num_ranks_; ++rank) {
    SizingCutter cutter(rank, num_ranks_);
    SUBBYTE_TRY(const StepPlan own, plan_of_rank(plan, division, rank, cutter));
    sizes_.ranks.push_back(cutter.sizes());
    sizes_.ranks.back().cache = own.cache;
    if (rank > 0) continue;
    WholeList whole;
    for (const Op& op : own.ops) whole.add(op);
    sizes_.whole = std::move(whole).take();
  }
  return std::make_unique<CompiledStep>(std::move(plan));
}

}  // namespace subbyte
