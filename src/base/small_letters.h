#pragma once
// Words of tools, which each writes in a case of its own: "FP8_PB_WO", "fp8_pb_wo".

#include <algorithm>
#include <string>
#include <string_view>

namespace subbyte {

/// The letters A to Z as a to z; everything else stays.
inline std::string small_letters(std::string_view text) {
  std::string word(text);
  std::ranges::transform(word, word.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return word;
}

}  // namespace subbyte
