#pragma once
// How commands print for people and for programs. What they print is made here, so that text from
// files and arguments stays in its line (base/quote.h); tools/check_messages.py finds lines that
// are made elsewhere. The text that a model gives is the exception: it is data, printed as it is.

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/quote.h"
#include "base/status.h"
#include "subbyte/json.h"

namespace subbyte::app {

/// One printable line with its end.
template <typename... Args>
std::string line(fmt::format_string<Args...> text, Args&&... args) {
  return printable(fmt::format(text, std::forward<Args>(args)...)) + "\n";
}

/// As it is: lines, JSON, or text of a model.
void print(std::FILE* to, std::string_view text);

/// From now on notes are not printed (--quiet), and errors also as JSON on stdout (--json).
void be_quiet();
bool is_quiet();
void print_errors_as_json();
bool prints_errors_as_json();

/// The lines as `to` shows them: on a terminal broken at blanks, where the rest begins at column
/// `indent`; else as they are, for programs that look for lines.
std::string fitted(std::string_view lines, std::FILE* to, std::size_t indent);

/// Lines for people on stderr, as fitted() has them.
void tell(std::string_view lines, std::size_t indent = 8);
/// The same for what nobody asked for, beside the result: what was done, how fast, what was found
/// on the way. Nothing with --quiet.
void note(std::string_view lines);
/// "subbyte: ..." as a note, in a line of its own.
void print_notice(const std::string& text);
/// "subbyte: error: ... [code]" on stderr: one line, which a terminal has broken at blanks. With
/// --json, {"error": {"code": ..., "message": ...}} on stdout, too, after the members of `beside`.
void print_error(const Error& error);
void print_error(const Error& error, const Json& beside);

enum class Style : uint8_t { kPlain, kBold, kDim, kError, kWarning, kGood };

/// The text in a style, where `to` has colours.
std::string styled(Style style, std::string_view text, std::FILE* to);

/// One object in ASCII, with its end; what is not UTF-8 becomes U+FFFD. `indent`: -1 is one line.
std::string json_text(const Json& object, int indent = 2);

}  // namespace subbyte::app
