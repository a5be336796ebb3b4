#pragma once
// Where a checkpoint says how its weights are quantized: a section of config.json, or of the text
// model in a wrapper, or a file beside it. The first that there is counts; the others must not say
// anything else.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/config/agreement.h"
#include "json/strict_json.h"

namespace subbyte {

inline constexpr uint64_t kMaxSideFileBytes = 1 << 20;

struct FoundSection {
  std::string name;  // "text_config.quantization_config"
  json::Object section;
};

/// The section of a config, or that of the text model in a wrapper, where some software has it.
/// Code json.type.
Result<std::optional<FoundSection>> find_quantization_section(const json::Object& config);

/// Files that say how weights are quantized where config.json does not, and whose they are.
struct SideFile {
  std::string_view name;
  std::string_view method;
};

/// The first that there is; nullptr without one.
const SideFile* find_side_file(const std::filesystem::path& directory);

/// Compares the section that counts with all others, and with the files. Codes: those of
/// compare_sections().
Status compare_other_sections(const json::Object& config, const json::Object& section,
                              const std::filesystem::path& directory,
                              std::vector<Disagreement>& found);

}  // namespace subbyte
