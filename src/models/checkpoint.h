#pragma once
// A checkpoint as every command opens it: what is read before weights are, in one order, and what
// this version makes of it. Commands differ in what they need of it, not in what they take it for.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoints/config/model_files.h"
#include "checkpoints/config/quantization_config.h"
#include "checkpoints/containers/tensor_source.h"
#include "checkpoints/modules.h"
#include "models/checkpoint_names.h"
#include "models/model_config.h"

namespace subbyte {

/// Each part is read for itself, so that who reports what is wrong has all of it. Of a lone
/// safetensors file there are tensors alone: the config is model.not_found.
struct CheckpointParts {
  ModelFiles files;
  Status beside;  // what would change the model and is not computed (check_model_files)
  Result<SideFile> config;
  Result<ModelConfig> model;  // of a family that this version does not run: why
  Result<QuantizationConfig> quantization;
  Result<TensorSource> tensors;

  /// model_type; "unknown" where no config.json names one.
  std::string kind() const;
  /// The first of what keeps commands from its weights that need no family: model.adapter, and
  /// codes of config.json, of the quantization config and of TensorSource.
  Status check_weights() const;
  /// The same of commands that run it: besides, codes of read_model_config.
  Status check_model() const;

  /// Needs check_weights(), and this as long as it is used.
  ImportContext context(Executor& pool) const { return {*tensors, *quantization, pool}; }
  /// Codes: those of check_model and of find_tensors().
  Result<std::vector<FoundTensor>> find_tensors(const ImportContext& context) const;
  /// Modules that importers know, and stacks of floats, which the list of the family knows. Needs
  /// check_weights().
  std::vector<FoundModule> find_modules(const ImportContext& context) const;
};

/// Opens what there is; nothing is an error yet. With `problems` as TensorSource::open has them.
CheckpointParts open_checkpoint(const ModelFiles& files, std::vector<Error>* problems = nullptr);

/// The same where check_weights() is ok. Codes: its own.
Result<CheckpointParts> open_weights(const ModelFiles& files);

/// The same for who reads matrices alone: beside a lone file, and in a directory without
/// config.json, nothing says that they are quantized.
Result<CheckpointParts> open_matrices(const ModelFiles& files);

/// Says what a checkpoint is, by its headers; the same for all commands.
struct CheckpointSummary {
  std::string kind;                        // CheckpointParts::kind()
  std::map<std::string, int64_t> formats;  // matrices of the model by format; experts count each
  Status verdict;                          // what run refuses of it before it reads weights
};
CheckpointSummary summarize(const CheckpointParts& checkpoint, Executor& pool);

/// {"kind": "qwen3", "formats": [{"format": "bf16", "matrices": 2}, ...], "verdict": "ok"}, or the
/// code of what is refused.
json::Value to_json(const CheckpointSummary& summary);

}  // namespace subbyte
