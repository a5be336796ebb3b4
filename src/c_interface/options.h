#pragma once
// Options that callers hand over as JSON.

#include <initializer_list>
#include <string_view>

#include "json/strict_json.h"

namespace subbyte::c {

/// The object of a text; an empty one of NULL. Codes: json.*, c.option for a key that is none of
/// `known`.
Result<json::Value> read_options(const char* text, std::initializer_list<std::string_view> known);

}  // namespace subbyte::c
