#pragma once
// Patterns of tokenizer.json are written for Oniguruma; PCRE2 runs them here. This rewrites the
// part of the language that both share into a form that means the same in both, and refuses the
// rest by name instead of guessing.

#include <string>
#include <string_view>

#include "base/status.h"

namespace subbyte {

/// The pattern for PCRE2 with PCRE2_UTF. `pattern` is valid UTF-8.
/// Codes: tokenizer.unsupported, tokenizer.bad_regex, tokenizer.regex_too_long.
Result<std::string> translate_regex(std::string_view pattern);

}  // namespace subbyte
