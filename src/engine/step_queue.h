#pragma once
// Steps of a model on their way: one, or two on a machine that takes the second before the first is
// waited for (Backend::steps_in_flight()), so that it has work while the host looks at tokens; or
// several of different sequences (Backend::steps_at_once()).
//
//   host      push 1   push 2   pop 1    push 3   pop 2 ...
//   machine     | step 1 ........ | step 2 ........ | step 3 ...
//
// Tokens of step 2 that step 1 chooses are pending_token() then. What a step turns out to be in
// vain, because a token before it was the last one, clear() takes back.

#include <deque>
#include <vector>

#include "models/model.h"

namespace subbyte {

class StepQueue {
 public:
  /// Both must outlive this; nothing else uses the backend while there are steps.
  StepQueue(const Model& model, Backend& backend) : model_(model), backend_(backend) {}
  StepQueue(const StepQueue&) = delete;
  StepQueue& operator=(const StepQueue&) = delete;
  ~StepQueue() { clear(); }

  bool empty() const { return steps_.empty(); }
  bool has_room() const { return std::ssize(steps_) < backend_.steps_in_flight(); }
  /// The same, or for a step of sequences that no other one has.
  bool takes_more() const { return has_room() || std::ssize(steps_) < backend_.steps_at_once(); }
  /// Parts of the step that was pushed last.
  const std::vector<Part>& last() const { return steps_.back(); }

  /// Submits a step, for which there is room; its sequences are as long as after it. What the
  /// parts point to may change afterwards. Codes: those of Model::submit; then nothing has
  /// happened.
  Status push(std::vector<Part> parts);

  /// Waits for the oldest step; its parts, which are not settled. Where it fails, all steps are
  /// taken back. Codes: those of Backend::wait.
  Result<std::vector<Part>> pop(Logits& logits);
  /// Positions of a sequence that no step on its way is to compute.
  int64_t finished_length(const Sequence& sequence) const;
  /// Those will not be taken back (Sequence::settle).
  void settle(Sequence& sequence) const { sequence.settle(finished_length(sequence)); }

  /// Waits for all steps and takes them back: sequences are as long as before them.
  void clear();

  /// The sequence ends before its steps do.
  void forget(const Sequence& sequence);

 private:
  void take_back_all();

  const Model& model_;
  Backend& backend_;
  std::deque<std::vector<Part>> steps_;  // the oldest first; parts without a sequence: forgotten
};

}  // namespace subbyte
