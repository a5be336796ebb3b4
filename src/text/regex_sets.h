#pragma once
// The sets of characters that patterns have names for, with the meaning of Oniguruma.

#include <optional>
#include <string_view>

#include "text/character_set.h"

namespace subbyte {

CharacterSet one_character(char32_t point);
CharacterSet any_set();
/// \s, or `other`: \S.
CharacterSet space_set(bool other);
/// \w, or `other`: \W.
CharacterSet word_set(bool other);
CharacterSet category_set(std::string_view name, bool other);
/// \p{NAME}, or `other`: \P{NAME}, of a general category or a script; nullopt for other names.
std::optional<CharacterSet> property_set(std::string_view name, bool other);

}  // namespace subbyte
