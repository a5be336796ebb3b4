#pragma once
// What --json says of a checkpoint, in every command that opens one: with a result and with an
// error.

#include <string>

#include "json/strict_json.h"

namespace subbyte::app {

/// {"kind": ..., "formats": [...], "verdict": ...} (models/checkpoint.h) of a directory, a file or
/// org/name; null where there is none.
json::Value checkpoint_as_json(const std::string& name);

/// {"checkpoint": ...} and after it the members of `rest`.
json::Value with_checkpoint(const std::string& name,
                            const json::Value& rest = json::Value::object());

}  // namespace subbyte::app
