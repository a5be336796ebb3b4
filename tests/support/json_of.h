#pragma once
// JSON that a test writes down.

#include <string_view>

#include "json/strict_json.h"

namespace subbyte {

/// The value of a text that is right.
inline json::Value json_of(std::string_view text) {
  return json::parse(text, "a test", {}, json::kTextMemoryFactor).value();
}

}  // namespace subbyte
