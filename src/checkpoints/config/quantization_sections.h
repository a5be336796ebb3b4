#pragma once
// Where a checkpoint says how its weights are quantized: a section of config.json, or of the text
// model in a wrapper, or a file beside it. The first that there is counts; the others must not say
// anything else.

#include <optional>
#include <string>
#include <vector>

#include "checkpoints/config/agreement.h"
#include "json/side_files.h"

namespace subbyte {

struct Flavour;  // flavour.h

struct FoundSection {
  std::string name;  // "text_config.quantization_config"
  json::Object section;
};

/// The section of a config, or that of the text model in a wrapper, where some software has it.
/// Code json.type.
Result<std::optional<FoundSection>> find_quantization_section(const json::Object& config);

/// Whose file beside config.json says how weights are quantized; nullptr where there is none.
const Flavour* flavour_of_side_file(const SideFiles& files);

/// Compares the section that counts with all others, and with the files. Codes: those of
/// compare_sections().
Status compare_other_sections(const json::Object& config, const json::Object& section,
                              const SideFiles& files, std::vector<Disagreement>& found);

}  // namespace subbyte
