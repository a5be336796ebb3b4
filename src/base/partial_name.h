#pragma once
// The names of outputs that are not finished: `<target>.partial-<pid>-<n>`.
//
// <n> is eight digits that were drawn and twelve that follow from the rest of the name. Nobody
// gives a file of his own such a name by chance: by it this program knows what it made, and may
// remove.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace subbyte {

/// The name for the output `target`, a name without a directory, by the process `pid` with
/// `number`.
std::string partial_name(std::string_view target, int64_t pid, uint32_t number);
/// The same by this process, with a random number: two containers that share a directory may share
/// pids.
std::string partial_name(std::string_view target);

/// The target of such a name, nullopt for any other name.
std::optional<std::string_view> target_of_partial(std::string_view name);

}  // namespace subbyte
