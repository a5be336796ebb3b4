#pragma once
// How commands print for people and for programs. What they print is made here, so that text from
// files and arguments stays in its line (base/quote.h); tools/check_messages.py finds lines that
// are made elsewhere. The text that a model gives is the exception: it is data, printed as it is.

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/quote.h"

namespace subbyte::app {

/// One printable line with its end.
template <typename... Args>
std::string line(fmt::format_string<Args...> text, Args&&... args) {
  return printable(fmt::format(text, std::forward<Args>(args)...)) + "\n";
}

/// As it is: lines, JSON, or text of a model.
void print(std::FILE* to, std::string_view text);

/// One object in ASCII, with its end; what is not UTF-8 becomes U+FFFD. `indent`: -1 is one line.
std::string json_text(const nlohmann::ordered_json& object, int indent = 2);

}  // namespace subbyte::app
