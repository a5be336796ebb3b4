#pragma once
// What the plan of a rank asks of the weights of the whole plan: where they may be cut, and parts
// of them.

#include <span>

#include "ops/weights.h"
#include "parallel/shares.h"

namespace subbyte {

/// Where weights may be cut along their inputs. Along their outputs they may be cut anywhere.
class WeightBorders {
 public:
  virtual ~WeightBorders() = default;

  /// The inputs of each rank, as even as the weight allows; empty where it cannot be divided.
  virtual Parts input_parts(const Weight& weight, int ranks) const = 0;
  virtual bool can_cut(const Weight& weight, const Columns& inputs) const = 0;
  /// Says whether each expert can be divided along its inner numbers.
  virtual bool can_divide(const Experts& experts, int ranks) const = 0;
};

/// Makes the weights of one rank. What cannot be made is an error that who made this has.
class WeightCutter {
 public:
  virtual ~WeightCutter() = default;

  virtual Weight whole(const Weight& weight) = 0;
  virtual Vector whole(const Vector& numbers) = 0;
  virtual Experts whole(const Experts& experts) = 0;
  /// Outputs of each joined matrix after those of the one before it, with their biases.
  virtual Weight outputs(const Weight& weight, const Columns& rows) = 0;
  /// Inputs, with the biases of rank 0 alone, as the sums of all ranks are added.
  virtual Weight inputs(const Weight& weight, const Columns& cols) = 0;
  virtual Vector part(const Vector& numbers, const Columns& columns) = 0;
  /// Some inner numbers of each expert; biases of what follows them are those of rank 0 alone.
  virtual Experts part(const Experts& experts) = 0;
};

}  // namespace subbyte
