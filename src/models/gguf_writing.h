#pragma once
// A model in the words of GGUF: the inverse of gguf_config.h and gguf_tensors.h, by their tables.

#include <string>
#include <vector>

#include "checkpoints/config/model_files.h"
#include "models/gguf_architecture.h"
#include "models/model_config.h"

namespace subbyte {

/// The architecture that files of such a model have. Code gguf.architecture.
Result<const GgufArchitecture*> gguf_architecture_for(const ModelConfig& model);

/// "blk.3.attn_q.weight", and what is changed of the tensor on its way there.
struct GgufName {
  std::string name;
  GgufChange change = GgufChange::kNone;
};
/// The name of "layers.3.self_attn.q_proj" with an ending; of a parameter the ending is its own.
/// Code gguf.tensor where the architecture has no such tensor.
Result<GgufName> gguf_name_of(const GgufArchitecture& architecture, std::string_view module,
                              std::string_view ending);

/// A tensor that stands for a part of config.json.
struct GgufConfigTensor {
  std::string name;
  std::vector<float> numbers;
};

/// Adds what config.json says to `keys` and `tensors`. Codes: those of read_rope().
Status add_gguf_config(const GgufArchitecture& architecture, const ModelConfig& model,
                       const json::Object& config, GgufKeys& keys,
                       std::vector<GgufConfigTensor>& tensors);

/// Checks that the beginning of a file, which has all keys and the tensors of add_gguf_config(),
/// says the model that it is written of. Code gguf.value for what it has no words for.
Status check_gguf_config(const GgufFile& beginning, const GgufArchitecture& architecture,
                         const ModelConfig& model, const json::Object& config);

}  // namespace subbyte
