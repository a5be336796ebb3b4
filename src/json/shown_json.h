#pragma once
// Values for people and for programs that take ASCII alone.

#include <string>

#include "json/strict_json.h"

namespace subbyte::json {

/// to_text() with escapes for all that is not ASCII.
std::string to_ascii(const Value& value, int indent = -1);

/// A value that was not expected as messages have it: a number or a text itself, "an array".
std::string describe(const Value& value);

}  // namespace subbyte::json
