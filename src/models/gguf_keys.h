#pragma once
// What keys of the metadata of a GGUF file mean (json/key_rules.h): gguf_keys.def has those that
// the families share, and GgufArchitecture::keys those of one.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "json/key_rules.h"
#include "models/gguf_architecture.h"

namespace subbyte {

/// Keys of all architectures that config.json has, too.
std::span<const GgufKeyRule> shared_gguf_keys();

/// The rule of a key; nothing where none names it.
std::optional<json::KeyRule> find_gguf_key(const GgufArchitecture& architecture,
                                           std::string_view name);

/// Gives `refuse` an error for each key that asks for what is not computed, until that returns one.
/// Code gguf.value.
Status check_gguf_keys(const GgufFile& file, const GgufArchitecture& architecture,
                       const std::function<Status(Status)>& refuse);

/// The keys that no rule names.
std::vector<std::string> unknown_gguf_keys(const GgufFile& file);

}  // namespace subbyte
