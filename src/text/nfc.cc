// Text below U+0300 is NFC already: nothing there has a combining class, and nothing there joins
// what stands before it. So only the ranges above are worked on, each together with the one
// character in front, which an accent may join:
//
//   a b c e U+0301 d ...        copied: a b c    worked on: e U+0301    copied: d ...
//
// utf8proc's own decomposition orders accents by exchanging neighbours, which takes minutes for a
// megabyte of accents in the wrong order; here they are sorted. Its composition is linear, but
// takes U+11A7 for a final consonant of Hangul (they begin at U+11A8) and drops it after a
// syllable. Nothing composes with U+11A7, on either side, so what lies between is composed by
// itself.

#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <span>
#include <vector>

#include "text/utf8.h"

namespace subbyte {
namespace {

constexpr char32_t kFirstThatJoins = 0x300;
constexpr utf8proc_int32_t kBeforeFinals = 0x11A7;
constexpr unsigned char kLeadOfFirst = 0xCC;  // U+0300 is CC 80

struct Scratch {
  std::vector<utf8proc_int32_t> points;
};

utf8proc_propval_t combining_class(utf8proc_int32_t point) {
  return utf8proc_get_property(point)->combining_class;
}

void decompose(std::string_view text, std::vector<utf8proc_int32_t>& points) {
  while (!text.empty()) {
    const utf8::Decoded c = utf8::decode_one(text);
    text.remove_prefix(c.length);
    utf8proc_int32_t parts[32];  // the longest canonical decomposition has 4
    int last_class = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), parts, std::size(parts),
                                static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE), &last_class);
    if (count < 1 || count > static_cast<utf8proc_ssize_t>(std::size(parts))) {
      points.push_back(static_cast<utf8proc_int32_t>(c.value));
    } else {
      points.insert(points.end(), parts, parts + count);
    }
  }
}

/// Canonical order: a stable sort by combining class between characters of class 0.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  auto run = points.begin();
  while (run != points.end()) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto end =
        std::find_if(run, points.end(), [](auto point) { return combining_class(point) == 0; });
    std::stable_sort(run, end,
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
}

/// Composes `points`, which are in canonical order, in place.
void append_composed(std::span<utf8proc_int32_t> points, std::string& out) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const auto count = utf8proc_normalize_utf32(
      points.data(), static_cast<utf8proc_ssize_t>(points.size()), options);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    utf8::append(out, static_cast<char32_t>(points[static_cast<std::size_t>(i)]));
  }
}

void append_nfc(std::string_view text, Scratch& scratch, std::string& out) {
  auto& points = scratch.points;
  points.clear();
  decompose(text, points);
  order_marks(points);
  std::size_t begin = 0;
  while (begin < points.size()) {
    const auto barrier =
        std::find(points.begin() + static_cast<std::ptrdiff_t>(begin), points.end(), kBeforeFinals);
    const auto end = static_cast<std::size_t>(barrier - points.begin());
    append_composed({points.data() + begin, end - begin}, out);
    if (end < points.size()) utf8::append(out, char32_t{kBeforeFinals});
    begin = end + 1;
  }
}

bool is_low(std::string_view text, std::size_t pos) {
  return static_cast<unsigned char>(text[pos]) < kLeadOfFirst;
}

/// Start of the character that ends before `pos`.
std::size_t previous(std::string_view text, std::size_t pos) {
  do {
    --pos;
  } while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80);
  return pos;
}

}  // namespace

std::string to_nfc(std::string_view text) {
  static_assert(kFirstThatJoins == 0x300);
  std::string out;
  out.reserve(text.size());
  Scratch scratch;
  std::size_t copied = 0;
  std::size_t pos = 0;
  while (pos < text.size()) {
    if (is_low(text, pos)) {
      ++pos;
      continue;
    }
    const std::size_t start = pos > copied ? previous(text, pos) : pos;
    out.append(text.substr(copied, start - copied));
    while (pos < text.size() && !is_low(text, pos))
      pos += utf8::decode_one(text.substr(pos)).length;
    append_nfc(text.substr(start, pos - start), scratch, out);
    copied = pos;
  }
  out.append(text.substr(copied));
  return out;
}

}  // namespace subbyte
