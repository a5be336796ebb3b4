#pragma once
// Which tensors a synthetic checkpoint has and what they are filled with.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoints/containers/safetensors.h"
#include "checkpoints/synthetic_format.h"
#include "formats/format.h"
#include "models/model_config.h"
#include "synth/synth.h"
#include "synth/synth_shapes.h"

namespace subbyte {

struct SynthTensor {
  TensorDeclaration declaration;
  RandomElements elements = RandomElements::kDense;
  /// Weights are `center` plus or minus `deviation` (the standard one); for codes and scales
  /// `deviation` is that of the weights that they stand for. A factor is deviation / center, and
  /// vectors of a codebook have the deviation `center`.
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
/// The same of any config of a family.
Result<std::vector<SynthTensor>> synthetic_tensors(const ModelConfig& config,
                                                   const SynthOptions& options);

}  // namespace subbyte
