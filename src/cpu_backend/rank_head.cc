#include "cpu_backend/rank_head.h"

#include <algorithm>

namespace subbyte {
namespace {

// Of all ranks: so much of a prompt's logits is on the way at once.
constexpr int64_t kGatheredFloats = int64_t{4} << 20;

/// Tokens whose logits a rank has.
ColumnRange tokens_of(const Columns& columns) {
  return columns.front();
}

int64_t count_of(const Columns& columns) {
  return tokens_of(columns).count;
}

}  // namespace

Status RankHead::run(const AllGatherOp& parts, std::span<const float> own, const Batch& batch,
                     const HeadResults& results) {
  list_rows(batch);
  results.tokens.assign(is_first() ? of_whole_.size() + of_candidates_.size() : 0, kNoToken);
  results.logits.clear();
  if (!of_candidates_.empty()) {
    SUBBYTE_CHECK(choose_of_candidates(parts, own, results.tokens));
  }
  if (whole_.empty()) return {};
  SUBBYTE_CHECK(gather_rows(parts, own, results.logits));
  if (!is_first()) return {};
  choosers_.run(execution_, std::ssize(of_whole_), [&](int64_t i, RowChooser& chooser) {
    const Chosen& one = of_whole_[i];
    results.tokens[one.place] = choose_of_row(one.of, results.logits, parts.cols, chooser.of_all);
  });
  auto to = results.logits.begin();
  for (std::size_t i = 0; i < whole_.size(); ++i) {
    if (!is_wanted_[i]) continue;
    const auto from = results.logits.begin() + static_cast<std::ptrdiff_t>(i) * parts.cols;
    to = from == to ? from + parts.cols : std::copy_n(from, parts.cols, to);
  }
  results.logits.resize(to - results.logits.begin());
  return {};
}

/// The same on all ranks.
void RankHead::list_rows(const Batch& batch) {
  whole_.clear();
  is_wanted_.clear();
  of_whole_.clear();
  of_candidates_.clear();
  int64_t row = 0;
  int64_t first = 0;
  std::size_t place = 0;
  for (const Part& part : batch.parts) {
    for (int64_t i = 0; i < part.num_logits; ++i) {
      whole_.push_back(row + i);
      is_wanted_.push_back(true);
    }
    row += part.num_head_rows();
    if (!part.choice) continue;
    const int64_t candidates = candidates_of_part(*part.choice);
    if (part.num_logits == 0 && candidates > 0) {
      of_candidates_.push_back({{&*part.choice, row - 1}, place++, candidates, first});
      first += candidates;
      continue;
    }
    if (part.num_logits == 0) {
      whole_.push_back(row - 1);
      is_wanted_.push_back(false);
    }
    of_whole_.push_back({{&*part.choice, std::ssize(whole_) - 1}, place++});
  }
}

/// Candidates of all rows lie one after the other.
///
///   all   [ranks][rows][candidates of the row]
Status RankHead::choose_of_candidates(const AllGatherOp& parts, std::span<const float> own,
                                      std::vector<int32_t>& tokens) {
  const ColumnRange columns = tokens_of(parts.parts[exchange_->rank()]);
  const Chosen& last = of_candidates_.back();
  const int64_t count = last.first + last.candidates;
  mine_.resize(count);
  choosers_.run(execution_, std::ssize(of_candidates_), [&](int64_t i, RowChooser& chooser) {
    const Chosen& one = of_candidates_[i];
    chooser.of_part.find(own.subspan(one.of.row * columns.count, columns.count), columns.first,
                         *one.of.choice, std::span(mine_).subspan(one.first, one.candidates));
  });
  all_.resize(is_first() ? count * exchange_->size() : 0);
  SUBBYTE_CHECK(
      exchange_->gather(std::as_bytes(std::span(mine_)), std::as_writable_bytes(std::span(all_))));
  if (!is_first()) return {};
  choosers_.run(execution_, std::ssize(of_candidates_), [&](int64_t i, RowChooser& chooser) {
    const Chosen& one = of_candidates_[i];
    std::vector<PartCandidate> candidates;
    for (int rank = 0; rank < exchange_->size(); ++rank) {
      const auto of_rank = std::span(all_).subspan(rank * count + one.first, one.candidates);
      candidates.insert(candidates.end(), of_rank.begin(), of_rank.end());
    }
    tokens[one.place] = choose_of_parts(chooser.of_all, *one.of.choice, candidates);
  });
  return {};
}

/// Some rows at a time. Ranks give as much as the one with the most columns.
///
///   gathered   [ranks][rows][most columns]   ->   logits [rows][vocabulary]
Status RankHead::gather_rows(const AllGatherOp& parts, std::span<const float> own,
                             std::vector<float>& logits) {
  const int64_t ranks = exchange_->size();
  const int64_t cols = count_of(parts.parts[exchange_->rank()]);
  const int64_t most = count_of(*std::ranges::max_element(parts.parts, {}, count_of));
  const int64_t block = std::max<int64_t>(1, kGatheredFloats / (ranks * most));
  if (is_first()) logits.resize(whole_.size() * parts.cols);
  for (int64_t first = 0; first < std::ssize(whole_); first += block) {
    const int64_t rows = std::min(block, std::ssize(whole_) - first);
    const std::span<float> mine = sent_.take(rows * most);
    for (int64_t i = 0; i < rows; ++i) {
      std::copy_n(own.data() + whole_[first + i] * cols, cols, mine.data() + i * most);
    }
    const std::span<float> all = gathered_.take(is_first() ? ranks * rows * most : 0);
    SUBBYTE_CHECK(exchange_->gather(std::as_bytes(mine), std::as_writable_bytes(all)));
    if (is_first()) put(parts, all, most, rows, logits.data() + first * parts.cols);
  }
  return {};
}

void RankHead::put(const AllGatherOp& parts, std::span<const float> gathered, int64_t most,
                   int64_t rows, float* to) const {
  const float* from = gathered.data();
  for (const Columns& columns : parts.parts) {
    const ColumnRange tokens = tokens_of(columns);
    for (int64_t row = 0; row < rows; ++row, from += most) {
      std::copy_n(from, tokens.count, to + row * parts.cols + tokens.first);
    }
  }
}

}  // namespace subbyte
