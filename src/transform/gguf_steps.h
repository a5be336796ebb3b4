#pragma once
// The tensors of a model as those of a GGUF file, with what its converter changes
// (models/gguf_architecture.h).

#include <vector>

#include "checkpoints/importer.h"
#include "models/checkpoint_names.h"
#include "models/gguf_writing.h"
#include "transform/convert_plan.h"

namespace subbyte {

/// The steps that make the tensors of a file: blocks where a matrix is quantized, else its floats.
/// Adds to `loss` when they run. What is passed must outlive them. Codes: export.format for what no
/// type of GGUF holds, gguf.tensor; of the steps recast.* and those of importers.
Result<std::vector<WriteStep>> plan_gguf_steps(const ImportContext& context,
                                               const ModelConfig& model,
                                               const GgufArchitecture& architecture,
                                               const std::vector<FoundTensor>& tensors,
                                               ConvertLoss& loss);

}  // namespace subbyte
