#pragma once
// The tokens that the parts of a step let choose: from the batch to kernels/cuda/sampling/sample.h.
//
//   one GPU               run
//   ranks of a group      give, the sum over ranks of exchanged(), choose_of_all
//                         where all choices are among candidates, and no logits are asked for; else
//                         ranks put all logits together, and each does as one GPU

#include <span>
#include <vector>

#include "cuda_backend/device_memory.h"
#include "cuda_backend/step.h"
#include "kernels/cuda/exchange/peer_sum.h"
#include "kernels/cuda/sampling/sample.h"
#include "ops/columns.h"

namespace subbyte {

class CudaChoices {
 public:
  /// Takes the choices that the next run() makes, of logits that lie in parts on so many ranks.
  /// `is_observed`: logits are shown.
  void begin(const Batch& batch, int ranks, bool is_observed);

  /// Bytes that run() finds at CudaStep::choices().
  std::span<const std::byte> packet() const { return packet_; }
  /// Numbers that launches follow from besides the size of the packet.
  StepShapeKey shape_key() const {
    return {std::ssize(rows_), has_changes_ ? 1 : 0, largest_top_k_, candidates_};
  }
  /// Says whether ranks exchange candidates and not logits.
  bool has_candidates() const { return candidates_ > 0; }

  /// Takes memory for the choices. `own`: tokens whose logits this rank has, of `vocabulary`. Code
  /// cuda.memory.
  Status prepare(CudaStep& step, int64_t vocabulary, const ColumnRange& own, int rank);

  /// Enqueues the choices, if there are any. `logits` [Batch::num_head_rows()][vocabulary] in
  /// device memory.
  void run(const float* logits, cuda::Stream stream);
  /// The same of `logits` [Batch::num_head_rows()][own tokens], up to the candidates of this rank:
  /// numbers of which each rank has some and zeros, so that their sum has those of all. Code
  /// cuda.launch.
  Status give(const float* logits, cuda::Stream stream);
  /// The sum of these, in place.
  cuda::PeerSumCall exchanged() const;
  void choose_of_all(cuda::Stream stream);

  /// In device memory: a token for each choice of the last step that ran.
  const int32_t* chosen() const { return reinterpret_cast<const int32_t*>(chosen_.data()); }

 private:
  void add_to_packet(std::span<const std::byte> bytes);
  void add_rows_of_candidates();
  Status prepare_candidates(CudaStep& step, const ColumnRange& own, int rank);
  int64_t exchanged_floats() const;

  std::vector<cuda::ChoiceRow> rows_;
  std::vector<int32_t> tokens_of_rows_;  // histories and biases of all choices
  std::vector<std::byte> packet_;        // both
  bool has_changes_ = false;             // some choice has
  int ranks_ = 1;
  int64_t candidates_ = 0;     // of each rank and choice; 0: logits are put together
  int64_t largest_top_k_ = 0;  // of those that are drawn
  CudaBuffer chosen_;
  // Of the step that runs.
  cuda::SampleCall all_;        // of all logits, or of all candidates
  cuda::CandidatesCall given_;  // of this rank
  float* numbers_ = nullptr;    // [2][choices][ranks][candidates]: logits and tokens
};

}  // namespace subbyte
