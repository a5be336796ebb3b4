#pragma once
// Values as Python writes them, which models copy from earlier calls: ['a', 1], {'b': (True,)}.

#include <optional>
#include <string>
#include <string_view>

namespace subbyte {

/// The same value in JSON; a tuple is a list. nullopt for what is no such literal, or has no form
/// in JSON: sets, keys that are no texts, halves of surrogate pairs, numbers that JSON writes
/// otherwise.
std::optional<std::string> python_literal_as_json(std::string_view text);

}  // namespace subbyte
