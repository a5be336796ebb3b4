#pragma once
// How the router of a mixture of experts chooses, for the backends and the kernels of all machines.

#include <cstdint>

#include "base/host_device.h"

namespace subbyte {

/// From a token's logits [experts] to its experts and their weights:
///
///   scores    a softmax of all logits, or the sigmoid of each
///   choice    the largest of score + bias, where there are biases, which do nothing else; the
///             lower index on ties. Of several groups, whose experts are neighbours, only the best
///             ones' experts are there to choose.
///   weights   the scores of the chosen ones, divided by what they add up to if they are
///             normalised, times `factor`
struct Routing {
  enum class Scores : uint8_t { kSoftmax, kSigmoid };
  static constexpr int32_t kMaxGroups = 32;

  Scores scores = Scores::kSoftmax;
  bool normalises = true;
  float added = 0;         // to the sum of the scores
  float smallest_sum = 0;  // by which they are divided at least
  float factor = 1;
  int32_t groups = 1;      // divides the experts
  int32_t top_groups = 1;  // that have experts enough
  /// A group is as good as its two best experts together, or as its best one.
  bool groups_by_two = false;
  /// Weights multiply what experts read, not what they return.
  bool weights_inputs = false;

  /// The order of logits is that of what is chosen by.
  SUBBYTE_HOST_DEVICE constexpr bool chooses_by_logits(bool has_biases) const {
    return !has_biases && (groups == 1 || !groups_by_two);
  }
  /// Weights are ratios of scores, so that a softmax need not know what all of them add up to.
  SUBBYTE_HOST_DEVICE constexpr bool has_ratios() const {
    return normalises && added == 0 && smallest_sum == 0;
  }

  bool operator==(const Routing&) const = default;
};

}  // namespace subbyte
