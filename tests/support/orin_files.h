#pragma once
// Model files of OrinMLLM with the tensors of a checkpoint.

#include <filesystem>
#include <vector>

#include "checkpoints/containers/orin_model.h"

namespace subbyte {

/// Writes kOrinFileName into `directory`.
inline Status write_orin_checkpoint(const std::filesystem::path& directory,
                                    const OrinHeader& header, const TensorSource& tensors) {
  std::vector<WriteStep> steps;
  for (const auto& [name, tensor] : tensors.tensors()) steps.push_back(keep(tensor));
  SUBBYTE_TRY(const WeightFiles weights, lay_out_orin(header, steps));
  return write_checkpoint(directory, weights, steps);
}

}  // namespace subbyte
