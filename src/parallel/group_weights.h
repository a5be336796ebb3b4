#pragma once
// Weights of a whole model while they wait for the plan that says what each rank has of them, and
// the parts that one rank is given.

#include <map>
#include <span>
#include <vector>

#include "ops/backend.h"
#include "parallel/weight_cutter.h"

namespace subbyte {

/// The weight that a handle of a group refers to; empty once all ranks have their parts.
struct GroupWeight {
  std::vector<Matrix> matrices;
  std::vector<float> bias;
  bool is_far = false;
};

/// Stored columns of a matrix by rank; empty where it cannot be divided.
Parts stored_parts(const MatrixView& matrix, int ranks);

/// Those of `rows` that the matrix has whose rows begin at `first`, as rows of its own.
Columns rows_within(const Columns& rows, int64_t first, int64_t count);

/// Handles without storage, of plans before weights are loaded, may be cut anywhere.
class GroupBorders : public WeightBorders {
 public:
  Parts input_parts(const Weight& weight, int ranks) const override;
  bool can_cut(const Weight& weight, const Columns& inputs) const override;
  bool can_divide(const Experts& experts, int ranks) const override;
};

/// Uploads the parts of one rank; nothing of handles without storage, for which there need be no
/// backend. What a rank has as a whole is uploaded once, however many
/// operations read it.
class RankCutter : public WeightCutter {
 public:
  RankCutter(Backend* backend, int rank, int ranks)
      : backend_(backend), rank_(rank), ranks_(ranks) {}

  Weight whole(const Weight& weight) override;
  Vector whole(const Vector& numbers) override;
  Experts whole(const Experts& experts) override;
  Weight outputs(const Weight& weight, const Columns& rows) override;
  Weight inputs(const Weight& weight, const Columns& cols) override;
  Vector part(const Vector& numbers, const Columns& columns) override;
  Experts part(const Experts& experts) override;

  /// The first error of an upload.
  const Status& status() const { return status_; }
  /// The largest matrix that this rank was given, to measure how fast it is read.
  const Weight& largest() const { return largest_; }

 private:
  Weight upload(std::vector<Matrix> matrices, std::vector<float> bias, bool is_far);
  Vector upload(std::vector<float> numbers);
  Experts upload(ExpertMatrices experts);
  template <class T>
  T kept(Result<T> uploaded) {
    if (uploaded.ok()) return std::move(uploaded).value();
    if (status_.ok()) status_ = uploaded.error();
    return {};
  }

  Backend* backend_;
  const int rank_;
  const int ranks_;
  std::map<const void*, Weight> wholes_;
  Weight largest_;
  Status status_;
};

}  // namespace subbyte
