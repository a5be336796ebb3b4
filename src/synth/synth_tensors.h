#pragma once
// Which tensors a synthetic checkpoint has and what they are filled with.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoints/containers/safetensors.h"
#include "formats/format.h"
#include "synth/synth.h"
#include "synth/synth_shapes.h"

namespace subbyte {

struct SynthTensor {
  /// Kind of the elements. Weights are `center` plus or minus `deviation` (the standard one); for
  /// codes and scales `deviation` is that of the weights that they stand for.
  enum class Contents : uint8_t {
    kCodes,      // any bits: every 4-bit code equally often
    kAwqZeros,   // 7 or 8, as they are
    kGptqZeros,  // 7 or 8, stored as 6 or 7 (version 1)
    kScales,     // F16
    kExponents,  // E8M0
    kE4M3,       // every code but those of NaN equally often
    kFactors,    // F32, of E4M3
    kE4M4,       // 1 or 17/16
    kFactor,     // F32, one for all of a matrix: deviation / center
    kCodebook,  // F32 values of the element, or F16 vectors of deviation `center`, the same for all
    kDense,     // F16 or BF16, bell-shaped
    kGroups,    // g_idx: index / group_size
  };

  TensorDeclaration declaration;
  Contents contents = Contents::kDense;
  double center = 0;
  double deviation = 0;
  int64_t group_size = 0;          // kGroups
  Format element = Format::kNone;  // kCodebook

  /// Fills `bytes`, which lie at byte `offset` (a multiple of 8) of the tensor. What is there
  /// depends on the seed, the tensor's name and the place alone.
  void fill(std::span<std::byte> bytes, uint64_t offset, uint64_t seed) const;
};

/// All tensors that the list of the family names, in its order. Code synth.group_size when the
/// group does not divide the inputs of some layer.
Result<std::vector<SynthTensor>> synthetic_tensors(const ModelShape& shape, int64_t layers,
                                                   const SynthOptions& options);

}  // namespace subbyte
