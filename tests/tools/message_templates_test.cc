// Every template of a message, a list or a page in the program (tools/check_messages.py finds them)
// with hostile text in all of its places: one printable line comes out of the two doors, Error and
// app::line().

#include <fmt/args.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/output.h"
#include "base/quote.h"
#include "base/status.h"

namespace subbyte {
namespace {

/// Forged lines, escape sequences, C1, the other direction, tags, what is no UTF-8, ends of quotes.
const std::string kHostile =
    "a\nsubbyte: error: b\r\x1b[2J\x07\x7f\u009b31m\u0085\u202e\u2028\u2066\U000E0041\u200b"
    "\xff\xc3\xf5{}{0}%s%n'\"\\";

std::vector<std::string> templates() {
  std::string text;
  FILE* const pipe = ::popen(SUBBYTE_TEMPLATES_COMMAND, "r");
  if (pipe == nullptr) return {};
  char buffer[4096];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) {
    text.append(buffer, count);
  }
  EXPECT_EQ(::pclose(pipe), 0);
  return nlohmann::json::parse(text);
}

/// The format specifications of the places, "" for a plain one. A width that is a value, as in
/// "{:<{}}", is a place after the one that it belongs to.
std::vector<std::string> places_in(const std::string& text) {
  std::vector<std::string> places;
  for (std::size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at)) {
    const std::size_t end = text.find('}', at);
    const std::string place = text.substr(at + 1, end - at - 1);
    if (place.empty() || place.front() == ':')
      places.push_back(place.substr(place.empty() ? 0 : 1));
    if (place.ends_with('{')) places.push_back("d");
    at = end;
  }
  return places;
}

/// Hostile text where the place takes text, else a number or a date.
std::string filled(const std::string& text, const std::string& value) {
  fmt::dynamic_format_arg_store<fmt::format_context> arguments;
  for (const std::string& place : places_in(text)) {
    const bool is_real = place.ends_with('f') || place.ends_with('g') || place.ends_with('e');
    const bool is_text = place.empty() || (place.find_first_of("<>") == 0 && !is_real);
    if (place.starts_with('%')) {
      std::tm day = {};
      day.tm_mday = 1;
      arguments.push_back(day);
    } else if (is_text) {
      arguments.push_back(value);
    } else if (is_real || place == ".{") {
      arguments.push_back(0.5);
    } else {
      arguments.push_back(7);
    }
  }
  return fmt::vformat(text, arguments);
}

/// By the ranges of Unicode's own tables: no control (Cc), format (Cf) or separator of lines (Zl,
/// Zp) is in it, and all of it is UTF-8.
bool is_printable_line(const std::string& text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  }
  for (const char* bad : {"\xc2\x80", "\xc2\x85", "\xc2\x9b", "\xe2\x80\xae", "\xe2\x80\xa8",
                          "\xe2\x81\xa6", "\xf3\xa0", "\xe2\x80\x8b", "\xff", "\xf5"}) {
    if (text.find(bad) != std::string::npos) return false;
  }
  return !text.empty();
}

TEST(MessageTemplates, stay_one_printable_line_whatever_is_put_into_them) {
  int num_hostile = 0;
  for (const std::string& text : templates()) {
    std::string made;
    ASSERT_NO_THROW(made = filled(text, kHostile)) << text;
    num_hostile += made.find(kHostile) != std::string::npos ? 1 : 0;
    EXPECT_TRUE(is_printable_line(Error("a.b", made).message)) << text;
    EXPECT_TRUE(is_printable_line(Error("a.b", filled(text, quote(kHostile))).message)) << text;
    std::string line = app::line("{}", made);
    ASSERT_TRUE(line.ends_with('\n')) << text;
    line.pop_back();
    EXPECT_TRUE(is_printable_line(line)) << text;
  }
  EXPECT_GT(num_hostile, 250);
}

TEST(MessageTemplates, would_be_seen_without_the_doors) {
  EXPECT_FALSE(is_printable_line(filled("{}: expected {:.1f}", kHostile)));
  EXPECT_TRUE(is_printable_line(filled("{}: expected {:.1f}", "model")));
}

}  // namespace
}  // namespace subbyte
