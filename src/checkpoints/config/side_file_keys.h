#pragma once
// Keys of the files that have a quantization config where config.json has none.

#include <string>
#include <vector>

#include "json/side_files.h"

namespace subbyte {

/// Keys that no rule names, after the name of the file: "quant_config.json: key". There are none
/// where `config` has a section of its own, as the files do not count then.
std::vector<std::string> unknown_side_file_keys(const json::Object& config, const SideFiles& files);

}  // namespace subbyte
