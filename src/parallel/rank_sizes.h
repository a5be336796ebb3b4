#pragma once
// Sizes of what each rank of a group has of a model, and what every rank has as a whole: found by
// dividing the model as a group does, without cutting any bytes.

#include <string>
#include <vector>

#include "ops/forwarding_backend.h"

namespace subbyte {

struct RankSizes {
  int64_t weight_bytes = 0;  // in the form of the file
  int64_t whole_bytes = 0;   // of these: what all ranks have
  CacheLayout cache;
};

/// Matrices that every rank has as a whole, of one name but for the numbers in it.
struct WholeMatrices {
  std::string name;  // "layers.*.mlp.gate"
  int64_t count = 0;
  int64_t bytes = 0;
};

struct GroupSizes {
  std::vector<RankSizes> ranks;
  std::vector<WholeMatrices> whole;  // in the order of a step
};

/// Takes the outlines of a model (check_loading) on a machine of the host that keeps nothing.
class SizingBackend : public ForwardingBackend {
 public:
  SizingBackend(Backend& host, int ranks) : ForwardingBackend(host), num_ranks_(ranks) {}

  /// Sizes of the plan that was compiled last.
  const GroupSizes& sizes() const { return sizes_; }

  using ForwardingBackend::upload;
  Result<Weight> upload(Matrix matrix, std::vector<float> bias) override;
  Result<Weight> upload_joined(std::vector<Matrix> matrices, std::vector<float> bias) override;
  Result<Weight> upload_far(Matrix table) override;
  Result<Experts> upload(ExpertMatrices experts) override;
  Result<Vector> upload(std::vector<float> numbers) override;
  Result<std::unique_ptr<CompiledStep>> compile(StepPlan plan) override;

 private:
  int num_ranks_;
  GroupSizes sizes_;
};

}  // namespace subbyte
