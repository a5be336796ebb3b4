#include "quantize/format_hints.h"

#include <algorithm>

#include "base/near_words.h"
#include "base/quote.h"

namespace subbyte {
namespace {

struct Hint {
  std::string_view names;
  std::string_view meant;
};
constexpr Hint kHints[] = {
#define SUBBYTE_FORMAT_HINT(names, meant) {names, meant},
#include "quantize/format_hints.def"
#undef SUBBYTE_FORMAT_HINT
};

std::string spelled(std::string_view name) {
  std::string usual(name);
  std::ranges::transform(usual, usual.begin(), [](char c) {
    return c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return usual;
}

bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find(' ', begin), words.size());
    if (words.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

/// "q4_k_m", "iq2_xs": a type of llama.cpp.
bool is_gguf_type(std::string_view usual) {
  for (const std::string_view begin : {"q", "iq", "tq"}) {
    const bool begins = usual.starts_with(begin) && usual.size() > begin.size() + 1;
    const char digit = begins ? usual[begin.size()] : '\0';
    if (digit >= '1' && digit <= '8' && usual[begin.size() + 1] == '_') return true;
  }
  return false;
}

std::string meaning_of(std::string_view name, ElsewhereFormat elsewhere) {
  const std::string usual = spelled(name);
  const auto hint =
      std::ranges::find_if(kHints, [&](const Hint& row) { return has_word(row.names, usual); });
  if (hint != std::end(kHints)) return std::string(hint->meant);
  if (is_gguf_type(usual)) {
    return "types of GGUF are not written; of 4 bits there are awq, gptq, w4a16, nf4, mxfp4 "
           "and nvfp4";
  }
  return elsewhere == nullptr ? std::string() : elsewhere(name);
}

}  // namespace

Error unknown_format(std::string_view code, std::string_view name,
                     std::span<const std::string> known, ElsewhereFormat elsewhere) {
  const std::string meant = meaning_of(name, elsewhere);
  if (!meant.empty()) return {code, "no format " + quote(name) + " here: " + meant};
  std::string line = "unknown format " + quote(name) + ", expected one of ";
  for (std::size_t i = 0; i < known.size(); ++i) line += (i == 0 ? "" : ", ") + known[i];
  return {code, line + did_you_mean(name, known)};
}

}  // namespace subbyte
