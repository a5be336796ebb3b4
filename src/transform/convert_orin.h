#pragma once
// The part of a conversion to ak48 (checkpoints/containers/orin_model.h) that is not as with
// safetensors: one file, whose header stands for config.json.

#include <filesystem>
#include <vector>

#include "checkpoints/config/config_file.h"
#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/containers/orin_model.h"

namespace subbyte {

struct OrinPlan {
  OrinHeader header;
  std::vector<TensorEntry> entries;  // where each tensor lies
};

/// The file for a model with that config, which has the quantization_config of AWQ, and these
/// tensors. `model` is where it comes from: readers of the file must see the same ModelConfig.
/// Codes: those of orin_header and orin_tensors; export.format when config.json says what the file
/// cannot; import.missing, import.dtype, import.shape, export.surplus for tensors.
Result<OrinPlan> plan_orin_model(const std::filesystem::path& model, const ConfigFile& config,
                                 const std::vector<TensorGroup>& groups);

/// Writes the file, unless it is there already (OutputDirectory::resume) with this header and
/// length. Codes: those of check_free_space, OutputFile and of `write`.
Status write_orin_checkpoint(const std::filesystem::path& path, const OrinPlan& plan,
                             const std::vector<TensorGroup>& groups, const WriteGroup& write,
                             const ByteProgress& progress);

/// generation_config.json for `directory` when `model` has none: the tokens of end that config.json
/// names and the file does not. Codes: those of read_model_config and OutputFile.
Status write_end_tokens(const std::filesystem::path& model, const OrinPlan& plan,
                        const std::filesystem::path& directory);

}  // namespace subbyte
