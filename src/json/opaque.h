#pragma once
// Values of JSON in public headers, which name no library of others.

#include "json/strict_json.h"
#include "subbyte/json.h"

namespace subbyte::json {

Json opaque(Value value);
/// null where there is none; it lives as long as `json` or a copy.
const Value& value_of(const Json& json);

}  // namespace subbyte::json
