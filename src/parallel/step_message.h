#pragma once
// What the first rank tells ranks in other processes: the caches that they make and the steps that
// they compute. Kinds of session/follower.h come before these.

#include <cstdint>
#include <vector>

#include "exchange/message.h"
#include "ops/batch.h"

namespace subbyte {

enum class StepMessage : uint32_t { kPool = 16, kStep, kMeasure };

/// Finds what the next step of a sequence reads, for one that mirrors it.
SequenceTables tables_of(const Sequence& sequence);

/// Positions of a page that are copied before a step.
struct PageCopy {
  int32_t pool, group, from, to;
  int64_t positions;
};

void write_copies(std::span<const PageCopy> copies, MessageWriter& message);
std::vector<PageCopy> read_copies(MessageReader& message);

/// Parts as all ranks need them: each has logits of some tokens, which choices change.
void write_batch(const Batch& batch, MessageWriter& message);

/// Lists that the choice of a part points to.
struct ChoiceMemory {
  std::vector<int32_t> history;
  std::vector<LogitBias> biases;
};

/// A batch whose sequences another process keeps.
class MirroredBatch {
 public:
  MirroredBatch(MessageReader& message, KvPool& pool);
  MirroredBatch(const MirroredBatch&) = delete;
  MirroredBatch& operator=(const MirroredBatch&) = delete;

  /// Seen by nobody here: a step that another process sees runs in that way on all.
  Batch batch() const { return {.parts = parts_, .observer = observer_}; }

 private:
  std::vector<Sequence> sequences_;
  std::vector<std::vector<int32_t>> tokens_;
  std::vector<ChoiceMemory> choices_;
  std::vector<Part> parts_;
  StepObserver* observer_ = nullptr;
};

}  // namespace subbyte
