#pragma once
// A batch in pieces that go through the stages of a pipeline one after the other, so that a stage
// has work while the next one computes the piece before:
//
//   stage 0   piece 0 | piece 1 | piece 2 |
//   stage 1           | piece 0 | piece 1 | piece 2 |

#include <vector>

#include "ops/batch.h"

namespace subbyte {

/// Tokens of a part that follow each other.
struct PieceOfPart {
  std::size_t part = 0;
  std::size_t first = 0;
  std::size_t count = 0;
};
using MicroBatch = std::vector<PieceOfPart>;

std::size_t num_tokens(const MicroBatch& piece);

/// All tokens of a batch in its order. A piece has `tokens` of them at most, but where `cuts_parts`
/// is false a part as a whole.
std::vector<MicroBatch> micro_batches(const Batch& batch, std::size_t tokens, bool cuts_parts);

/// A piece as a stage computes it: on sequences that mirror those of the batch, in the pool of the
/// stage. The last stage has the logits and the choices, and the others none.
class StageBatch {
 public:
  /// `whole` and `received` must outlive it.
  StageBatch(const Batch& whole, const MicroBatch& piece, KvPool& pool, bool is_last,
             std::span<const float> received);
  StageBatch(const StageBatch&) = delete;
  StageBatch& operator=(const StageBatch&) = delete;

  Batch batch() const { return {parts_, observer_, received_}; }

 private:
  std::vector<Sequence> sequences_;
  std::vector<Part> parts_;
  StepObserver* observer_;
  std::span<const float> received_;
};

}  // namespace subbyte
