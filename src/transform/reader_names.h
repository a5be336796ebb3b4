#pragma once
// Names of modules in the quantization_config of a checkpoint. Readers compare them with the
// modules of the class that config.json names, whatever prefix the tensors have in the files:
//
//   config.json                     modules
//   of a text model                 model.layers.0.mlp.up_proj
//   of a wrapper (text_config)      model.language_model.layers.0.mlp.up_proj
//
// Tools write the text model of a wrapper under a config of its own and keep the names of the
// wrapper; older wrappers have language_model.model. in front.

#include "checkpoints/exporter.h"
#include "json/strict_json.h"

namespace subbyte {

/// Gives all modules of `model` the names that readers of `config` know.
ExportedModel named_for_readers(ExportedModel model, const json::Value& config);

}  // namespace subbyte
