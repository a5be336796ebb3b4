#pragma once
// The normalization forms of Unicode, in linear time but for a sort of accents.

#include <cstdint>
#include <string>
#include <string_view>

namespace subbyte {

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

/// The form of valid UTF-8, by the tables of Unicode 16 (unicode/unicode.h). The tables of Hugging
/// Face's `tokenizers` are those of Unicode 11 or so: it leaves alone what was added since then.
std::string to_normal_form(std::string_view text, NormalForm form);

inline std::string to_nfc(std::string_view text) {
  return to_normal_form(text, NormalForm::kNfc);
}

}  // namespace subbyte
