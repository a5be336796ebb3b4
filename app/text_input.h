#pragma once
// Texts and token ids that a person gives to a command.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace subbyte::app {

/// Reads a file, a pipe or a device to the end, "-" is standard input; at most 64 MiB. Codes: those
/// of file_error(), usage.text_too_long.
Result<std::string> read_text(const std::string& path_or_dash);

/// The same without the newline that ends the last line: `echo` and editors put it there, and
/// nobody means it.
Result<std::string> read_prompt(const std::string& path_or_dash);

/// Puts what is left of standard input into a file without a name that becomes standard input, so
/// that it can be read more than once, from its beginning. Codes: those of file_error().
Status keep_standard_input();

/// The text with \n, \t, \r, \\, \", \' and \xHH replaced by what they stand for. Code usage.escape
/// for others.
Result<std::string> unescaped(const std::string& text);

/// Token ids as this program and others write them: "1,2,3", "1 2 3", "[1, 2, 3]", or an object
/// with a list "ids" or "tokens". Code usage.ids.
Result<std::vector<TokenId>> parse_ids(const std::string& text);

}  // namespace subbyte::app
