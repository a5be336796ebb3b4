#pragma once
// What the members of a group tell each other in a step (src/parallel/). The plan of a rank has
// sums and columns of all where a value of which each rank has a part is read as a whole; that of a
// stage begins with what the stage before has made, and ends with what the next one reads.

#include <cstdint>
#include <string>
#include <vector>

#include "ops/columns.h"
#include "ops/operand.h"

namespace subbyte {

/// y = the sum of the x of all ranks, added in the order of ranks, in the memory of x.
struct AllReduceOp {
  ValueId y = kNoValue;
  ValueId x = kNoValue;

  Operands operands() const {
    return {taken_over(reads(x, Operand::kAnyCols)), in_place(writes(y, Operand::kAnyCols))};
  }
  std::string text() const { return "sum over the ranks"; }
};

/// y = the columns of all ranks, of which x has those of its own, in their places.
struct AllGatherOp {
  ValueId y = kNoValue;
  ValueId x = kNoValue;
  int64_t cols = 0;            // of y
  std::vector<Columns> parts;  // of y, by rank: together all of them
  ValueType type = ValueType::kActivation;

  Operands operands() const {
    return {{.value = x, .type = type, .what = "inputs"}, writes(y, cols, type)};
  }
  std::string text() const { return "columns of " + std::to_string(parts.size()) + " ranks"; }
};

/// y = a value of the stage before: the columns from `before` on of Batch::received.
struct ReceiveOp {
  ValueId y = kNoValue;
  int64_t cols = 0;
  ValueType type = ValueType::kFloat;
  int64_t before = 0;

  Operands operands() const { return {writes(y, cols, type)}; }
  std::string text() const { return "receive"; }
};

/// The columns from `before` on of Logits::sent are those of x: for the next stage. Such operations
/// end the plan of a stage after which there is another one.
struct SendOp {
  ValueId x = kNoValue;
  int64_t before = 0;

  Operands operands() const { return {{.value = x}}; }
  std::string text() const { return "send"; }
};

}  // namespace subbyte
