#pragma once
// config.json of a checkpoint that is written: what it says of quantized weights, and the type of
// floats, under "dtype" or, older, "torch_dtype", of all of a model and, in wrappers, of each part:
//
//   {"text_config": {"dtype": "float16", ...}, "vision_config": {...}}

#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/exporter.h"
#include "json/strict_json.h"

namespace subbyte {

/// "float16": what the whole says or, where it is silent, the text model of a wrapper. Empty if
/// neither does.
std::string dtype_of(const json::Value& config);

/// Names `dtype` wherever `config` names one, and for the whole in any case.
void set_dtype(json::Value& config, std::string_view dtype);

/// config.json with its keys in their order and what an exporter says of the weights, and the file
/// beside it that other readers look for.
std::vector<TextFile> config_texts(json::Value config, const Exporter& exporter,
                                   const ExportedModel& exported);

}  // namespace subbyte
