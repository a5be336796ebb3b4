#pragma once
// What somebody may have meant who typed something else.

#include <span>
#include <string>
#include <string_view>

namespace subbyte {

/// Letters that have to be typed, left out, replaced or swapped with their neighbour to make one
/// word of the other. Case does not count.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// "; did you mean --prompt?" with the words that are nearest, at most three; empty where none is
/// near.
std::string did_you_mean(std::string_view typed, std::span<const std::string> words);

}  // namespace subbyte
