#pragma once
// Several machines as one: each is a stage that has some layers of the model, and each token goes
// through all of them, one after the other (pipeline parallelism). Stages compute at once where
// long steps go in pieces (micro_batch.h), and where there are several steps of different sequences
// (Backend::steps_at_once):
//
//   stage 0   step 1 | step 2 | step 3, of the sequences of 1 |
//   stage 1          | step 1 | step 2                        | step 3 ...
//
// stages.h says what each has of a step. A stage that fails ends its group.

#include <memory>
#include <optional>
#include <vector>

#include "exchange/exchange.h"
#include "ops/backend.h"

namespace subbyte {

/// The layers of stages: as many bytes of weights each, or of two stages the last `last` layers are
/// the second one's, the head among them, or as many as its memory has room for.
struct StageSizes {
  std::optional<int64_t> last = {};
  bool fills_last = false;
};

/// The rank of a stage among as many: the last one is rank 0, which has the results of a step.
constexpr int rank_of_stage(int stage, int stages) {
  return (stage + 1) % stages;
}

/// A machine of any kind, and what it has of the others (rank_of_stage).
struct StageMember {
  std::unique_ptr<Backend> machine;
  std::shared_ptr<Exchange> exchange;
};

/// `stages` are all stages in their order, or that of this process alone. `host` is for work beside
/// the operations. Code device.stages where there are no threads for them.
Result<std::unique_ptr<Backend>> make_stage_backend(std::vector<StageMember> stages,
                                                    const StageSizes& sizes,
                                                    std::shared_ptr<Executor> host);

}  // namespace subbyte
