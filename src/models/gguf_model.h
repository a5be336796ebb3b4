#pragma once
// A model in GGUF in the words of transformers: config.json by the table of its architecture
// (models/gguf_architecture.h), tensors under the names and in the order that other checkpoints of
// the family have.

#include <vector>

#include "checkpoints/config/model_files.h"
#include "checkpoints/containers/tensor_source.h"

namespace subbyte {

/// Puts in the config of a GGUF file, where it was not read, for all copies of `files`. Codes that
/// reading it may have: gguf.*. With `problems` as gguf_config() has them.
void fill_config(const ModelFiles& files, std::vector<Error>* problems = nullptr);

/// TensorSource::open(), or the tensors of a GGUF file. Codes: gguf.* beside those.
Result<TensorSource> open_tensors(const ModelFiles& files, std::vector<Error>* problems = nullptr);

}  // namespace subbyte
