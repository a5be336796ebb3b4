#pragma once
// The part of a conversion to ak48 (checkpoints/containers/orin_model.h) that is not as with
// safetensors: one file, whose header stands for config.json.

#include <filesystem>
#include <span>

#include "checkpoints/config/model_files.h"
#include "checkpoints/containers/checkpoint_writer.h"

namespace subbyte {

/// The file for a model with that config, which has the quantization_config of AWQ. `model` is
/// where it comes from: readers of the file must see the same ModelConfig. Where the model has no
/// generation_config.json, one beside the file has the tokens of end that it does not name.
/// Codes: those of orin_header, lay_out_orin and read_model_config; export.format when config.json
/// says what the file cannot.
Result<WeightFiles> lay_out_orin_model(const ModelFiles& model, const SideFile& config,
                                       std::span<const WriteStep> steps);

}  // namespace subbyte
