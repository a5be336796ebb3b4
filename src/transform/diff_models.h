#pragma once
// Whether two model directories hold the same weights, however they store them.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoints/containers/checkpoint_writer.h"
#include "subbyte/executor.h"
#include "transform/difference.h"

namespace subbyte {

struct ComparedWeight {
  enum class Verdict : uint8_t {
    kSameBytes,   // the same tensors
    kSameValues,  // stored differently, the same numbers
    kDifferent,   // `difference` says how far, unless the tensors are no floats
    kShape,       // not comparable: sizes or types differ
    kOnlyFirst,
    kOnlySecond
  };
  static constexpr Verdict kVerdicts[] = {Verdict::kSameBytes, Verdict::kSameValues,
                                          Verdict::kDifferent, Verdict::kShape,
                                          Verdict::kOnlyFirst, Verdict::kOnlySecond};

  std::string name;  // of a module, of one expert of a stack, or of another tensor
  Verdict verdict = Verdict::kSameBytes;
  std::string first;  // how it is stored: "awq [64, 32]", "BF16 [32]"; empty when missing
  std::string second;
  Difference difference;  // all zeros for kSameBytes
};

std::string_view name_of(ComparedWeight::Verdict verdict);  // "same bytes"

struct ModelDiff {
  std::vector<ComparedWeight> weights;  // by name, experts of a stack by their number

  bool same_values() const;  // bytes or values, nothing missing and nothing else
  bool same_bytes() const;
  int64_t count(ComparedWeight::Verdict verdict) const;
  /// Worst of those that differ and have a difference: the one whose weights are furthest apart.
  WorstLoss worst() const;
};

/// Compares what importers make of `first` and `second`, module by module, and the other tensors by
/// name; floats of different types by value. Configs and side files are only used for reading.
/// Memory: one module or tensor of each. `progress` counts the bytes of `first`.
/// Codes: those of config.json, of TensorSource and of importers.
Result<ModelDiff> diff_models(const std::filesystem::path& first,
                              const std::filesystem::path& second, Executor& pool,
                              const ByteProgress& progress = nullptr);

}  // namespace subbyte
