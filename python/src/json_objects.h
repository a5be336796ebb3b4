#pragma once
// JSON as objects of Python and back: dict, list, str, int, float, bool and None.

#include <nanobind/nanobind.h>

#include <string_view>

#include "json/strict_json.h"

namespace subbyte::python {

/// The value of an object: numbers, mappings and sequences are what Python's protocols call so.
/// `where` begins messages. Codes: json.type for objects of other types, keys that are no texts,
/// texts that are not Unicode and numbers that are not finite; json.depth.
Result<json::Value> to_json(nanobind::handle object, std::string_view where);

nanobind::object to_object(const json::Value& value);

}  // namespace subbyte::python
