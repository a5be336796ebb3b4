#pragma once
// Unicode normalization form C, in linear time but for a sort.

#include <string>
#include <string_view>

namespace subbyte {

/// NFC of valid UTF-8, by the tables of the installed utf8proc (Unicode 15 in utf8proc 2.8).
/// Hugging Face's tables are older, so characters that are newer than those may differ; no
/// character that both know does.
std::string to_nfc(std::string_view text);

}  // namespace subbyte
