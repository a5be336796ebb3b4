#pragma once
// Unicode 16: one version for patterns and normal forms of tokenizers, for chat templates and all
// else.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace subbyte::unicode {

inline constexpr char32_t kEnd = 0x110000;  // of code points

struct Range {
  char32_t first;
  char32_t last;  // included
};

/// The bits that a general category stands for ("L" is all that begin with L); 0 when there is
/// none of that name.
uint32_t category_bits(std::string_view name);
inline constexpr uint32_t kAllCategories = (uint32_t{1} << 30) - 1;

/// The number of the bit of a code point's general category.
unsigned category(char32_t point);
inline bool is_in(char32_t point, uint32_t categories) {
  return (categories >> category(point) & 1) != 0;
}

/// First code points of the runs that share a general category.
const std::vector<char32_t>& category_starts();

/// The code points of a script by its name ("Han") or code ("Hani"), in any case, where '_', '-'
/// and ' ' do not count; nullopt when there is none.
std::optional<std::vector<Range>> script(std::string_view name);

/// Columns that it takes on a terminal: 0 to 2.
int width(char32_t point);

/// White_Space, which is that of patterns and of Rust's char::is_whitespace, too.
bool is_space(char32_t point);

/// The only symbols that are Alphabetic: letters in circles and squares.
bool is_alphabetic_symbol(char32_t point);

enum class LetterCase : uint8_t { kLower, kUpper, kTitle, kFolded };
/// The letters that one becomes, without regard to its neighbours: several for some; empty where it
/// stays what it is.
std::u32string_view in_case(char32_t point, LetterCase letter_case);

/// Uppercase and Lowercase, which some symbols are, too.
bool is_upper(char32_t point);
bool is_lower(char32_t point);

/// Numeric_Type: 7 is decimal, a raised 2 is a digit, a half is numeric alone.
enum class NumericType : uint8_t { kNone, kDecimal, kDigit, kNumeric };
NumericType numeric_type(char32_t point);

/// XID_Start and XID_Continue.
bool begins_identifier(char32_t point);
bool continues_identifier(char32_t point);

uint8_t combining_class(char32_t point);

/// Appends the full decomposition, canonical or compatible, not yet in canonical order.
void decompose(char32_t point, bool compatible, std::vector<char32_t>& out);

/// The primary composite of two code points, if there is one.
std::optional<char32_t> compose(char32_t first, char32_t second);

/// A bit for each code point that a normalization form changes, or that may change or join what
/// stands before it. `composed`: NFC and NFKC; `compatible`: NFKC and NFKD.
std::vector<bool> changed_by_form(bool composed, bool compatible);

}  // namespace subbyte::unicode
