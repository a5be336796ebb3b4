#pragma once
// The type of the floats of a model, as a config.json says it: under "dtype" or, older,
// "torch_dtype", of all of a model and, in wrappers, of each part as well:
//
//   {"text_config": {"dtype": "float16", ...}, "vision_config": {...}}

#include <string>
#include <string_view>

#include "json/strict_json.h"

namespace subbyte {

/// "float16": what the whole says or, where it is silent, the text model of a wrapper. Empty if
/// neither does.
std::string dtype_of(const json::Value& config);

/// Names `dtype` wherever `config` names one, and for the whole in any case.
void set_dtype(json::Value& config, std::string_view dtype);

}  // namespace subbyte
