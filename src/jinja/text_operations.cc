// What filters and methods of texts share.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "jinja/methods.h"
#include "jinja/operations.h"
#include "jinja/search.h"

namespace subbyte::jinja {
namespace {

/// The characters of a text, which is asked for many.
class CharacterSet {
 public:
  CharacterSet(Meter& meter, std::string_view text) : others_(meter) {
    for (std::size_t at = 0; at < text.size();) {
      const Character c = character_at(text, at);
      if (c.value < kAscii) {
        ascii_[c.value] = true;
      } else {
        others_.push_back(c.value);
      }
      at += c.length;
    }
    std::ranges::sort(others_);
    others_.erase(std::unique(others_.begin(), others_.end()), others_.end());
  }

  bool contains(char32_t c) const {
    return c < kAscii ? ascii_[c] : std::ranges::binary_search(others_, c);
  }

 private:
  static constexpr char32_t kAscii = 128;

  bool ascii_[kAscii] = {};
  List<char32_t> others_;
};

/// Changes letters one after the other.
class Recasing {
 public:
  explicit Recasing(std::string_view method)
      : uppers_(method == "upper"),
        swaps_(method == "swapcase"),
        folds_(method == "casefold"),
        has_words_(method == "title"),
        has_title_(has_words_ || method == "capitalize") {}

  /// Of the character text[begin, end).
  Letters change(std::string_view text, std::size_t begin, std::size_t end, char32_t& one) {
    const char32_t c = character_at(text, begin).value;
    const bool is_first = !std::exchange(inside_, has_words_ ? is_cased(c) : true);
    if (uppers_ || (swaps_ && is_lower(c))) return upper(c, one);
    if (is_first && has_title_) return titled(c, one);
    if (folds_) return folded(c, one);
    if (!swaps_ || is_upper(c)) return small(text, begin, end, one);
    one = c;
    return {&one, 1};
  }

 private:
  bool uppers_;
  bool swaps_;
  bool folds_;
  bool has_words_;
  bool has_title_;
  bool inside_ = false;  // of a word, or of the text
};

}  // namespace

List<Range> lines_of(Meter& meter, std::string_view text) {
  List<Range> lines(meter);
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    at += c.length;
    if (!is_line_break(c.value)) continue;
    if (c.value == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back({begin, at});
    begin = at;
  }
  if (begin < text.size()) lines.push_back({begin, text.size()});
  return lines;
}

Range without_break(std::string_view text, Range line) {
  while (line.end > line.begin) {
    const std::size_t last = character_before(text, line.end);
    if (!is_line_break(character_at(text, last).value)) break;
    line.end = last;
  }
  return line;
}

Value stripped(Heap& heap, const String& text, const String* set, bool left, bool right) {
  Range range = {0, 0};
  if (set == nullptr) {
    range = stripped(text.bytes(heap), left, right);
  } else {
    const CharacterSet drops(heap, set->letters(heap));
    range =
        stripped_by(text.letters(heap), left, right, [&](char32_t c) { return drops.contains(c); });
  }
  return heap.part(text, range.begin, range.end);
}

Value replaced(Heap& heap, const String& text, const String& old, const String& replacement,
               int64_t most) {
  const std::string_view bytes = old->empty() ? text.bytes(heap) : text.scan(heap);
  Search search(heap, bytes, old.scan(heap));
  TextBuilder result(heap);
  std::size_t begin = 0;
  for (int64_t count = 0; most < 0 || count < most; ++count) {
    heap.step();
    const std::size_t at = old->empty() ? begin : search.next(begin);
    if (at == Search::kNowhere) break;
    result.append(*text, begin, at);
    result.append(*replacement);
    begin = at + old->size();
    if (!old->empty()) continue;  // nothing stands between all characters
    if (at == bytes.size()) break;
    begin = at + character_at(bytes, at).length;
    result.append(*text, at, begin);
  }
  result.append(*text, begin, bytes.size());
  return heap.text(result);
}

Value padded(Heap& heap, const String& text, std::string_view method, int64_t width,
             std::string_view fill) {
  if (count_characters(fill) != 1) {
    refuse(kType, fmt::format("{} fills with one character", method));
  }
  const int64_t missing = clamped_difference(width, static_cast<int64_t>(text->length(heap)));
  if (missing <= 0) return heap.part(text, 0, text->size());
  // Of an odd number of blanks the width decides on which side one more stands, as in CPython.
  const int64_t before = method == "ljust"    ? 0
                         : method == "center" ? missing / 2 + (missing & width & 1)
                                              : missing;
  const std::string_view head = text->bytes(heap, 0, std::min<std::size_t>(1, text->size()));
  const std::size_t sign = method == "zfill" && (head == "+" || head == "-") ? 1 : 0;
  TextBuilder result(heap);
  result.append(*text, 0, sign);
  result.repeat(fill, before, Origin::kTemplate);
  result.append(*text, sign, text->size());
  result.repeat(fill, missing - before, Origin::kTemplate);
  return heap.text(result);
}

bool changes_letters(std::string_view method) {
  constexpr std::string_view kMethods[] = {"upper", "lower",      "casefold",
                                           "title", "capitalize", "swapcase"};
  return std::ranges::find(kMethods, method) != std::end(kMethods);
}

Value with_letters(Heap& heap, const String& text, std::string_view method) {
  const std::string_view bytes = text.letters(heap);
  Recasing recasing(method);
  TextBuilder result(heap);
  result.reserve(bytes.size());
  std::size_t at = 0;
  for (const Text::Run& run : text->runs()) {
    while (at < run.end) {
      const std::size_t begin = at;
      at += character_at(bytes, at).length;
      char32_t one = 0;
      for (const char32_t letter : recasing.change(bytes, begin, at, one)) {
        result.append_character(letter, run.origin);
      }
    }
  }
  return heap.text(result);
}

}  // namespace subbyte::jinja
