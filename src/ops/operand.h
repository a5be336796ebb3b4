#pragma once
// What an operation of a step says of itself: its operands, and how files have what it reads.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/weights.h"

namespace subbyte {

/// The index of a value of a plan.
using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

enum class ValueType : uint8_t {
  kFloat,       // float32 on every machine: the residual stream, what decides something, logits
  kActivation,  // the type in which the machine's products read: float32 on the CPU, 16 bits on a
                // GPU
};

/// The rows of a value: one for each token of the batch in the order of its parts, or one for each
/// token whose logits are computed (Batch::num_head_rows()).
enum class ValueRows : uint8_t { kTokens, kHeadRows };

struct StepValue {
  int64_t cols = 0;
  ValueType type = ValueType::kActivation;
  ValueRows rows = ValueRows::kTokens;
  ValueId in_place_of = kNoValue;  // the value whose memory this one takes over
};

/// An operand or a result, as an operation lists it.
struct Operand {
  enum class Use : uint8_t {
    kRead,
    kTakenOver,  // read, and written over: by the result in its place, or with nothing
    kWritten,
    kWrittenInPlace,  // of the value that is taken over
    kWeight,          // no value of the plan
  };
  static constexpr int64_t kAnyCols = -1;  // of a result: as many as the first operand has

  Use use = Use::kRead;
  ValueId value = kNoValue;
  int64_t cols = kAnyCols;             // that it has to have
  std::optional<ValueType> type = {};  // of a value; none: either is read
  std::optional<ValueRows> rows = {};  // of a result; none: those of what is read
  std::string_view what = {};          // has `cols`, in messages
  int64_t found = 0;                   // numbers of a weight

  bool is_read() const { return use == Use::kRead || use == Use::kTakenOver; }
};

/// In the order in which people read them.
using Operands = std::vector<Operand>;

inline Operand reads(ValueId value, int64_t cols, std::string_view what = "inputs") {
  return {.value = value, .cols = cols, .type = ValueType::kActivation, .what = what};
}
inline Operand reads_floats(ValueId value, int64_t cols, std::string_view what = "inputs") {
  return {.value = value, .cols = cols, .type = ValueType::kFloat, .what = what};
}
inline Operand taken_over(Operand operand) {
  operand.use = Operand::Use::kTakenOver;
  return operand;
}
inline Operand writes(ValueId value, int64_t cols, ValueType type = ValueType::kActivation) {
  return {.use = Operand::Use::kWritten, .value = value, .cols = cols, .type = type};
}
inline Operand in_place(Operand result) {
  result.use = Operand::Use::kWrittenInPlace;
  return result;
}
inline Operand holds(std::string_view what, int64_t expected, int64_t found) {
  return {.use = Operand::Use::kWeight, .cols = expected, .what = what, .found = found};
}
/// Refuses more than `most`.
inline Operand holds_at_most(std::string_view what, int64_t most, int64_t found) {
  return holds(what, std::min(most, found), found);
}
/// Refuses less than 1.
inline Operand holds_some(std::string_view what, int64_t found) {
  return holds(what, std::max<int64_t>(found, 1), found);
}

// A mixer is an operation that a layer has between two kinds of products: of what it reads, and of
// what it gives. How files have it follows from lists of its own: inputs(), numbers() and sizes().

/// A product whose results a mixer reads.
struct MixerInput {
  std::string_view name;  // under that of the mixer
  int64_t rows = 0;
  ValueId* value = nullptr;
  bool may_be_quantized = true;
  /// Matrices that files may have instead, one after the other.
  std::vector<std::pair<std::string_view, int64_t>> parts = {};
};

/// Numbers of a mixer; `V` is Vector, or const.
template <class V>
struct MixerNumbers {
  std::string_view name;
  TensorRole role = TensorRole::kVector;
  V* numbers = nullptr;
  int64_t rows = 0;  // 0: it has none of them
  int64_t taps = 1;  // of each row
};
template <class V>
MixerNumbers(std::string_view, TensorRole, V*, int64_t, int64_t = 1) -> MixerNumbers<V>;

/// A number of its shape, and the key of GGUF for it, after that of the architecture.
struct MixerSize {
  std::string_view key;
  int64_t size = 0;
};

/// Adds the numbers of a mixer to its operands.
template <class Mixer>
void add_numbers(Operands& all, const Mixer& mixer) {
  for (const auto& row : Mixer::numbers(mixer)) {
    all.push_back(holds(row.name, row.rows * row.taps, row.numbers->size));
  }
}

}  // namespace subbyte
