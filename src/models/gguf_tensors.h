#pragma once
// Tensors of a model in GGUF under the names of transformers.

#include "checkpoints/containers/tensor_source.h"
#include "models/gguf_architecture.h"

namespace subbyte {

/// Undoes what was changed: rows by the order in which they are read (FileTensor::rows), small
/// vectors in memory. Codes: gguf.tensor for tensors that the architecture does not have, or has
/// otherwise. With `problems`, these are added there and left out.
Result<TensorSource> gguf_tensors(const GgufModel& model, const GgufArchitecture& architecture,
                                  std::vector<Error>* problems = nullptr);

}  // namespace subbyte
