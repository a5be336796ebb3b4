#pragma once
// A second opinion on safetensors files: the rules of docs/safetensors.md once more, in the
// plainest way, with a JSON parser of its own. Shares no code with the reader under test.

#include <string_view>

namespace subbyte::conformance {

/// Whether `file`, of at most some thousand bytes, is valid.
bool oracle_accepts(std::string_view file);

}  // namespace subbyte::conformance
