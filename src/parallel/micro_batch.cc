#include "parallel/micro_batch.h"

#include <algorithm>

#include "parallel/step_message.h"

namespace subbyte {
namespace {

/// Of the last `rows` tokens of a part those that the piece has.
int64_t rows_of(const PieceOfPart& piece, int64_t tokens, int64_t rows) {
  const auto first = static_cast<int64_t>(piece.first);
  const auto end = first + static_cast<int64_t>(piece.count);
  return std::max<int64_t>(end - std::max(first, tokens - rows), 0);
}

}  // namespace

std::size_t num_tokens(const MicroBatch& piece) {
  std::size_t sum = 0;
  for (const PieceOfPart& one : piece) sum += one.count;
  return sum;
}

std::vector<MicroBatch> micro_batches(const Batch& batch, std::size_t tokens, bool cuts_parts) {
  std::vector<MicroBatch> pieces(1);
  std::size_t room = tokens;
  for (std::size_t part = 0; part < batch.parts.size(); ++part) {
    const std::size_t count = batch.parts[part].tokens.size();
    for (std::size_t first = 0; first < count;) {
      const std::size_t wanted = cuts_parts ? 1 : count;
      if (room < wanted && !pieces.back().empty()) {
        pieces.emplace_back();
        room = tokens;
      }
      const std::size_t taken = cuts_parts ? std::min(count - first, room) : count;
      pieces.back().push_back({part, first, taken});
      room -= std::min(room, taken);
      first += taken;
    }
  }
  return pieces;
}

StageBatch::StageBatch(const Batch& whole, const MicroBatch& piece, KvPool& pool, bool is_last,
                       std::span<const float> received)
    : observer_(whole.observer), received_(received) {
  sequences_.reserve(piece.size());
  for (const PieceOfPart& one : piece) {
    const Part& part = whole.parts[one.part];
    SequenceTables tables = tables_of(*part.sequence);
    tables.length += static_cast<int64_t>(one.first);
    sequences_.push_back(Sequence::mirror(pool, tables));
    Part& own = parts_.emplace_back();
    own.sequence = &sequences_.back();
    own.tokens = part.tokens.subspan(one.first, one.count);
    own.num_logits = 0;
    if (!is_last) continue;
    const auto tokens = std::ssize(part.tokens);
    own.num_logits = rows_of(one, tokens, part.num_logits);
    if (one.first + one.count == part.tokens.size()) own.choice = part.choice;
  }
}

}  // namespace subbyte
