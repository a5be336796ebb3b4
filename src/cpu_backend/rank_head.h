#pragma once
// The end of a step whose logits lie in parts, by rank: the first rank gets what the results of the
// step are made of, and the others get nothing.
//
//   rows whose logits are asked for, and rows of draws without top-k   all logits
//   rows of other choices                           the best of each rank (ops/part_choice.h)

#include <vector>

#include "cpu_backend/float_buffer.h"
#include "cpu_backend/row_choosers.h"
#include "exchange/exchange.h"
#include "ops/batch.h"
#include "ops/exchange.h"

namespace subbyte {

/// Results of a step, where they go.
struct HeadResults {
  std::vector<float>& logits;    // [Batch::num_logits()][vocabulary]
  std::vector<int32_t>& tokens;  // [Batch::num_choices()], or kNoToken
};

/// Keeps its memory from step to step.
class RankHead {
 public:
  RankHead(Execution& execution, Exchange* exchange) : execution_(execution), exchange_(exchange) {}

  /// `own` [Batch::num_head_rows()][columns] has the columns that `parts` says of this rank, which
  /// follow each other. Of the first rank `results` are filled, of others emptied. Codes: those of
  /// Exchange.
  Status run(const AllGatherOp& parts, std::span<const float> own, const Batch& batch,
             const HeadResults& results);

 private:
  /// A choice, the row of the head or of `whole_` that it is made of, and its place among all.
  struct Chosen {
    RowChoice of;
    std::size_t place = 0;
    int64_t candidates = 0;  // of a part
    int64_t first = 0;       // of these among those of all rows
  };

  void list_rows(const Batch& batch);
  Status choose_of_candidates(const AllGatherOp& parts, std::span<const float> own,
                              std::vector<int32_t>& tokens);
  Status gather_rows(const AllGatherOp& parts, std::span<const float> own,
                     std::vector<float>& logits);
  void put(const AllGatherOp& parts, std::span<const float> gathered, int64_t most, int64_t rows,
           float* to) const;
  bool is_first() const { return exchange_->rank() == 0; }

  Execution& execution_;
  Exchange* exchange_;
  RowChoosers choosers_;
  FloatBuffer sent_, gathered_;
  std::vector<PartCandidate> mine_, all_;
  // Of a step.
  std::vector<int64_t> whole_;   // rows of the head of which the first rank gets all logits
  std::vector<bool> is_wanted_;  // by row of whole_: its logits are a result
  std::vector<Chosen> of_whole_, of_candidates_;
};

}  // namespace subbyte
