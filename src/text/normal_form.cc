// Most characters are in every form already and join nothing that stands before them. So only the
// others are worked on, each run of them with the one character in front, which they may join:
//
//   a b c e U+0301 d ...        copied: a b c    worked on: e U+0301    copied: d ...
//
// Accents in the wrong order are sorted, not exchanged with their neighbours: a megabyte of them
// takes no minutes.

#include "text/normal_form.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "unicode/unicode.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

bool is_composed(NormalForm form) {
  return form == NormalForm::kNfc || form == NormalForm::kNfkc;
}
bool is_compatible(NormalForm form) {
  return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
}

/// A bit for each code point that is worked on.
const std::vector<bool>& worked_on(NormalForm form) {
  switch (form) {
    case NormalForm::kNfd: {
      static const std::vector<bool> nfd = unicode::changed_by_form(false, false);
      return nfd;
    }
    case NormalForm::kNfkc: {
      static const std::vector<bool> nfkc = unicode::changed_by_form(true, true);
      return nfkc;
    }
    case NormalForm::kNfkd: {
      static const std::vector<bool> nfkd = unicode::changed_by_form(false, true);
      return nfkd;
    }
    case NormalForm::kNfc:
      break;
  }
  static const std::vector<bool> nfc = unicode::changed_by_form(true, false);
  return nfc;
}

/// Canonical order: a stable sort by combining class between characters of class 0.
void order_marks(std::vector<char32_t>& points) {
  auto run = points.begin();
  while (run != points.end()) {
    if (unicode::combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(
        run, points.end(), [](char32_t point) { return unicode::combining_class(point) == 0; });
    std::stable_sort(run, end, [](char32_t a, char32_t b) {
      return unicode::combining_class(a) < unicode::combining_class(b);
    });
    run = end;
  }
}

/// Composes what is in canonical order, in place.
void compose(std::vector<char32_t>& points) {
  std::size_t size = 0;
  std::optional<std::size_t> starter;
  uint8_t last_class = 0;  // of what was kept since the starter; 0: nothing
  for (const char32_t point : points) {
    const uint8_t own_class = unicode::combining_class(point);
    const bool is_next = starter && *starter + 1 == size;
    // What stands between two that compose has a lower class than the second one.
    if (starter && (is_next || (last_class != 0 && last_class < own_class))) {
      if (const auto made = unicode::compose(points[*starter], point)) {
        points[*starter] = *made;
        continue;
      }
    }
    if (own_class == 0) starter = size;
    last_class = own_class;
    points[size++] = point;
  }
  points.resize(size);
}

void append_normalized(std::string_view text, NormalForm form, std::vector<char32_t>& points,
                       std::string& out) {
  points.clear();
  while (!text.empty()) {
    const utf8::Decoded c = utf8::decode_one(text);
    text.remove_prefix(c.length);
    unicode::decompose(c.value, is_compatible(form), points);
  }
  order_marks(points);
  if (is_composed(form)) compose(points);
  for (const char32_t point : points) utf8::append(out, point);
}

/// Start of the character that ends before `pos`.
std::size_t previous(std::string_view text, std::size_t pos) {
  do {
    --pos;
  } while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80);
  return pos;
}

/// Where the run of characters that are worked on, or of those that are not, ends.
std::size_t run_end(std::string_view text, std::size_t pos, const std::vector<bool>& table,
                    bool wanted) {
  while (pos < text.size()) {
    const auto byte = static_cast<unsigned char>(text[pos]);
    if (byte < 0x80) {  // is never worked on
      if (wanted) return pos;
      ++pos;
      continue;
    }
    const utf8::Decoded c = utf8::decode_one(text.substr(pos));
    if (table[c.value] != wanted) return pos;
    pos += c.length;
  }
  return pos;
}

}  // namespace

std::string to_normal_form(std::string_view text, NormalForm form) {
  const std::vector<bool>& table = worked_on(form);
  std::string out;
  out.reserve(text.size());
  std::vector<char32_t> points;
  std::size_t copied = 0;
  while (copied < text.size()) {
    const std::size_t first = run_end(text, copied, table, false);
    if (first == text.size()) break;
    const std::size_t start = first > copied ? previous(text, first) : first;
    out.append(text.substr(copied, start - copied));
    const std::size_t end = run_end(text, first, table, true);
    append_normalized(text.substr(start, end - start), form, points, out);
    copied = end;
  }
  out.append(text.substr(copied));
  return out;
}

}  // namespace subbyte
