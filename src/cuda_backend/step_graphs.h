#pragma once
// Steps that repeat their launches, as CUDA graphs: a few sequences that go on by a token each have
// the same launches with the same arguments until some of them need more pages or splits, and only
// what lies in memory differs. One launch then takes the place of some hundreds.
//
//   a key comes   the first time   the second time         later
//                 launches         launches are captured,   the graph is launched
//                                  the graph is launched
//
// Keys (StepShapeKey) hold all that launches follow from. Nothing may be allocated or waited for
// while launches are captured, so a step of the same key must have ended well before. Where memory
// has changed hands (memory_epoch()), keys differ. A step of which no graph can be made, for want
// of memory, say, is launched, and no more graphs are made.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "cuda_backend/step.h"
#include "cuda_backend/steps_in_flight.h"

struct CUgraphExec_st;  // cudaGraphExec_t, without the toolkit's headers

namespace subbyte {

class StepGraphs {
 public:
  explicit StepGraphs(cuda::Stream stream) : stream_(stream) {}
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;
  ~StepGraphs();

  /// Before the first launch of a step. Code cuda.launch.
  Status begin(StepShapeKey key);
  /// Begins a step that has no key.
  void begin_without() {
    mode_ = Mode::kLaunches;
    current_ = nullptr;
  }

  /// Says whether the operations of the step are known, and not to be launched.
  bool replays() const { return mode_ == Mode::kReplays; }
  bool is_graph() const { return mode_ != Mode::kLaunches; }

  /// After the last operation, all of which went well: launches the graph, if the step is one.
  /// `results` are those of the operations; of a step that replays, what they were. Returns whether
  /// the step is launched by now: not where no graph could be made of it. Code cuda.launch.
  Result<bool> end(StepResults& results);
  /// Instead of end() where an operation has failed.
  void abandon();

 private:
  enum class Mode : uint8_t { kLaunches, kCaptures, kReplays };

  struct Known {
    StepShapeKey key;
    uint64_t last_step = 0;
    bool has_run = false;             // as launches, without an error
    CUgraphExec_st* graph = nullptr;  // nullptr: there is none so far
    StepResults results;
  };

  /// In place of the one that was used longest ago.
  Known& add(StepShapeKey key);
  /// Leaves no graph where none can be made, or where memory has changed hands meanwhile.
  void capture();

  cuda::Stream stream_;
  std::vector<Known> known_;
  uint64_t num_steps_ = 0;
  Known* current_ = nullptr;  // of a step with a key
  uint64_t epoch_ = 0;        // when its capture began
  bool is_off_ = false;
  Mode mode_ = Mode::kLaunches;
};

}  // namespace subbyte
