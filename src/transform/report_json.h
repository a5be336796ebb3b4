#pragma once
// What became of a checkpoint as JSON: what --json of `convert`, `quantize` and `diff` prints.

#include "json/strict_json.h"
#include "transform/transform.h"

namespace subbyte {

json::Value to_json(const ConvertReport& report);
json::Value to_json(const QuantizeReport& report);
json::Value to_json(const ModelDiff& diff);

/// "same bytes", "same values" or "different".
const char* summary_of(const ModelDiff& diff);

}  // namespace subbyte
