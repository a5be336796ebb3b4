// The methods of Python's str. Parts of a text keep their origin.

#include <fmt/format.h>

#include <algorithm>

#include "jinja/characters.h"
#include "jinja/evaluator.h"
#include "jinja/methods.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

using Names = std::span<const std::string_view>;
constexpr std::size_t kNowhere = std::string::npos;

/// strip, lstrip, rstrip.
Value strip(Heap& heap, const String& self, std::string_view name, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"chars"};
  const Bound bound(name, arguments, kNames, 0);
  const bool left = name != "rstrip";
  const bool right = name != "lstrip";
  const Range range = bound.says(0) ? stripped(self.bytes(), bound.text(0).bytes(), left, right)
                                    : stripped(self.bytes(), left, right);
  return heap.part(self, range.begin, range.end);
}

/// split() without a separator: the words.
std::vector<Range> words_of(std::string_view text, int64_t most) {
  std::vector<Range> words;
  std::size_t at = 0;
  while (true) {
    at += stripped(text.substr(at), true, false).begin;
    if (at >= text.size()) return words;
    if (most >= 0 && std::ssize(words) == most) {
      words.push_back({at, text.size()});
      return words;
    }
    std::size_t end = at;
    while (end < text.size() && !is_space(character_at(text, end).value)) {
      end += character_at(text, end).length;
    }
    words.push_back({at, end});
    at = end;
  }
}

std::vector<Range> last_words_of(std::string_view text, int64_t most) {
  std::vector<Range> words;
  std::size_t end = text.size();
  while (true) {
    end = stripped(text.substr(0, end), false, true).end;
    if (end == 0) break;
    if (most >= 0 && std::ssize(words) == most) {
      words.push_back({0, end});
      break;
    }
    std::size_t begin = end;
    while (begin > 0) {
      const std::size_t before = character_before(text, begin);
      if (is_space(character_at(text, before).value)) break;
      begin = before;
    }
    words.push_back({begin, end});
    end = begin;
  }
  std::ranges::reverse(words);
  return words;
}

std::vector<Range> parts_of(std::string_view text, std::string_view separator, int64_t most) {
  std::vector<Range> parts;
  std::size_t begin = 0;
  while (most < 0 || std::ssize(parts) < most) {
    const std::size_t end = text.find(separator, begin);
    if (end == kNowhere) break;
    parts.push_back({begin, end});
    begin = end + separator.size();
  }
  parts.push_back({begin, text.size()});
  return parts;
}

std::vector<Range> last_parts_of(std::string_view text, std::string_view separator, int64_t most) {
  std::vector<Range> parts;
  std::size_t end = text.size();
  while (most < 0 || std::ssize(parts) < most) {
    const std::size_t begin =
        end < separator.size() ? kNowhere : text.rfind(separator, end - separator.size());
    if (begin == kNowhere) break;
    parts.push_back({begin + separator.size(), end});
    end = begin;
  }
  parts.push_back({0, end});
  std::ranges::reverse(parts);
  return parts;
}

Value list_of(Heap& heap, const String& self, const std::vector<Range>& ranges) {
  std::vector<Value> items;
  items.reserve(ranges.size());
  for (const Range& range : ranges) items.push_back(heap.part(self, range.begin, range.end));
  return heap.list(std::move(items));
}

/// split and rsplit.
Value split(Heap& heap, const String& self, std::string_view name, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"sep", "maxsplit"};
  const Bound bound(name, arguments, kNames, 0);
  const int64_t most = bound.integer(1, -1);
  const bool from_end = name == "rsplit";
  if (!bound.says(0)) {
    return list_of(heap, self,
                   from_end ? last_words_of(self.bytes(), most) : words_of(self.bytes(), most));
  }
  const std::string& separator = bound.text(0).bytes();
  if (separator.empty()) refuse(kValue, fmt::format("{}: the separator is empty", name));
  return list_of(heap, self,
                 from_end ? last_parts_of(self.bytes(), separator, most)
                          : parts_of(self.bytes(), separator, most));
}

Value partition(Heap& heap, const String& self, std::string_view name, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"sep"};
  const Bound bound(name, arguments, kNames, 1);
  const std::string& separator = bound.text(0).bytes();
  if (separator.empty()) refuse(kValue, fmt::format("{}: the separator is empty", name));
  const bool from_end = name == "rpartition";
  const std::size_t at = from_end ? self.bytes().rfind(separator) : self.bytes().find(separator);
  const std::size_t size = self.bytes().size();
  if (at == kNowhere) {
    const Value nothing = heap.text("");
    const Value all = heap.part(self, 0, size);
    return heap.tuple(from_end ? std::vector<Value>{nothing, nothing, all}
                               : std::vector<Value>{all, nothing, nothing});
  }
  return heap.tuple({heap.part(self, 0, at), heap.part(self, at, at + separator.size()),
                     heap.part(self, at + separator.size(), size)});
}

Value splitlines(Heap& heap, const String& self, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"keepends"};
  const Bound bound("splitlines", arguments, kNames, 0);
  const bool keeps = bound.truth(0, false);
  std::vector<Range> lines;
  for (const Range& range : lines_of(self.bytes())) {
    std::size_t end = range.end;
    while (!keeps && end > range.begin) {
      const std::size_t last = character_before(self.bytes(), end);
      if (!is_line_break(character_at(self.bytes(), last).value)) break;
      end = last;
    }
    lines.push_back({range.begin, end});
  }
  return list_of(heap, self, lines);
}

/// The bytes that the characters [start, stop) of a call take.
Range range_of(const String& self, const Bound& bound, bool& is_outside) {
  const auto size = static_cast<int64_t>(count_characters(self.bytes()));
  const auto place = [&](std::size_t index, int64_t otherwise) {
    const int64_t at = bound.integer(index, otherwise);
    return std::max<int64_t>(at < 0 ? at + size : at, 0);
  };
  const int64_t start = place(1, 0);
  const int64_t stop = std::min(place(2, size), size);
  is_outside = start > stop;
  return {byte_of_character(self.bytes(), static_cast<std::size_t>(std::min(start, size))),
          byte_of_character(self.bytes(), static_cast<std::size_t>(stop))};
}

/// find, rfind, index, rindex, count.
Value search(Heap& heap, const String& self, std::string_view name, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"sub", "start", "end"};
  const Bound bound(name, arguments, kNames, 1);
  const std::string& wanted = bound.text(0).bytes();
  bool is_outside = false;
  const Range range = range_of(self, bound, is_outside);
  heap.step(1 + static_cast<int64_t>(self.bytes().size() / 16));
  const std::string_view text =
      std::string_view(self.bytes()).substr(range.begin, is_outside ? 0 : range.end - range.begin);
  if (name == "count") {
    if (is_outside) return Value(int64_t{0});
    if (wanted.empty()) return Value(static_cast<int64_t>(count_characters(text) + 1));
    return Value(static_cast<int64_t>(parts_of(text, wanted, -1).size()) - 1);
  }
  const std::size_t at = is_outside       ? kNowhere
                         : name[0] == 'r' ? text.rfind(wanted)
                                          : text.find(wanted);
  if (at != kNowhere) {
    return Value(static_cast<int64_t>(
        count_characters(std::string_view(self.bytes()).substr(0, range.begin + at))));
  }
  if (name.ends_with("find")) return Value(int64_t{-1});
  refuse(kValue, fmt::format("{}: the text is not there", name));
}

/// startswith and endswith: a text, or a tuple of them.
Value begins_or_ends(const String& self, std::string_view name, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"prefix", "start", "end"};
  const Bound bound(name, arguments, kNames, 1);
  bool is_outside = false;
  const Range range = range_of(self, bound, is_outside);
  if (is_outside) return Value(false);
  const std::string_view text =
      std::string_view(self.bytes()).substr(range.begin, range.end - range.begin);
  const auto fits = [&](const String& part) {
    return name == "startswith" ? text.starts_with(part.bytes()) : text.ends_with(part.bytes());
  };
  const Sequence* const several = bound[0]->sequence();
  if (several == nullptr || several->kind != SequenceKind::kTuple) {
    return Value(fits(bound.text(0)));
  }
  return Value(std::ranges::any_of(several->items, [&](const Value& item) {
    if (item.string() == nullptr) refuse(kType, fmt::format("{} takes texts", name));
    return fits(*item.string());
  }));
}

Value join(Heap& heap, const String& self, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"iterable"};
  const Bound bound("join", arguments, kNames, 1);
  OriginText result;
  bool is_first = true;
  for (const Value& item : items_of(heap, *bound[0])) {
    if (item.string() == nullptr) {
      refuse(kType, fmt::format("join takes texts, found {}", type_name(item)));
    }
    if (!is_first) result.append(*self.text);
    is_first = false;
    heap.take_bytes(static_cast<int64_t>(item.string()->text->size() + self.text->size()));
    result.append(*item.string()->text);
  }
  return heap.text(std::move(result));
}

/// ljust, rjust, center, zfill.
Value padded(Heap& heap, const String& self, std::string_view name, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"width", "fillchar"};
  const bool fills_zeros = name == "zfill";
  const Bound bound(name, arguments, Names(kNames).first(fills_zeros ? 1 : 2), 1);
  const int64_t missing =
      bound.integer(0, 0) - static_cast<int64_t>(count_characters(self.bytes()));
  if (missing <= 0) return heap.part(self, 0, self.bytes().size());
  const std::string fill = fills_zeros ? "0" : bound.has(1) ? bound.text(1).bytes() : " ";
  if (count_characters(fill) != 1) refuse(kType, fmt::format("{} fills with one character", name));
  heap.take_bytes(missing * static_cast<int64_t>(fill.size()));
  const int64_t width = bound.integer(0, 0);
  // Of an odd number of blanks the width decides on which side one more stands, as in CPython.
  const int64_t before = name == "ljust"    ? 0
                         : name == "center" ? missing / 2 + (missing & width & 1)
                                            : missing;
  OriginText result;
  std::size_t from = 0;
  if (fills_zeros && !self.bytes().empty() && (self.bytes()[0] == '+' || self.bytes()[0] == '-')) {
    from = 1;
    result.append(*self.text, 0, 1);
  }
  for (int64_t i = 0; i < missing; ++i) {
    if (i == before) result.append(*self.text, from, self.bytes().size());
    result.append(fill, Origin::kTemplate);
  }
  if (before == missing) result.append(*self.text, from, self.bytes().size());
  return heap.text(std::move(result));
}

Value without_end(Heap& heap, const String& self, std::string_view name,
                  const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"part"};
  const Bound bound(name, arguments, kNames, 1);
  const std::string& part = bound.text(0).bytes();
  const std::size_t size = self.bytes().size();
  if (name == "removeprefix") {
    return heap.part(self, self.bytes().starts_with(part) ? part.size() : 0, size);
  }
  return heap.part(self, 0, size - (self.bytes().ends_with(part) ? part.size() : 0));
}

Value expandtabs(Heap& heap, const String& self, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"tabsize"};
  const Bound bound("expandtabs", arguments, kNames, 0);
  const int64_t size = bound.integer(0, 8);
  OriginText result;
  int64_t column = 0;
  for (std::size_t at = 0; at < self.bytes().size();) {
    const Character c = character_at(self.bytes(), at);
    if (c.value == '\t') {
      const int64_t blanks = size > 0 ? size - column % size : 0;
      heap.take_bytes(blanks);
      result.append(std::string(static_cast<std::size_t>(blanks), ' '), Origin::kTemplate);
      column += blanks;
    } else {
      result.append(*self.text, at, at + c.length);
      column = c.value == '\n' || c.value == '\r' ? 0 : column + 1;
    }
    at += c.length;
  }
  return heap.text(std::move(result));
}

/// Changes of letters; nullopt for other names.
std::optional<std::string> with_other_letters(std::string_view name, std::string_view text) {
  if (name == "upper") return upper(text);
  if (name == "lower" || name == "casefold") return lower(text);
  if (name == "title") return title(text);
  if (name == "capitalize") return capitalized(text);
  if (name == "swapcase") return swapped_case(text);
  return std::nullopt;
}

}  // namespace

std::vector<Range> lines_of(std::string_view text) {
  std::vector<Range> lines;
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

Value replaced(Heap& heap, const OriginText& text, const OriginText& old,
               const OriginText& replacement, int64_t most) {
  const std::string& bytes = text.bytes();
  OriginText result;
  std::size_t begin = 0;
  while (most-- != 0) {
    const std::size_t at = old.size() > 0 ? bytes.find(old.bytes(), begin) : begin;
    if (at == kNowhere) break;
    heap.take_bytes(static_cast<int64_t>(at - begin + replacement.size()));
    result.append(text, begin, at);
    result.append(replacement);
    begin = at + old.size();
    if (old.size() > 0) continue;  // nothing stands between all characters
    if (at == bytes.size()) break;
    begin = at + character_at(bytes, at).length;
    result.append(text, at, begin);
  }
  result.append(text, begin, bytes.size());
  return heap.text(std::move(result));
}

Value with_letters(Heap& heap, const OriginText& text, std::string_view method) {
  OriginText result;
  // Words may go over a border of origins, so the whole is changed where the lengths agree.
  const auto whole = with_other_letters(method, text.bytes());
  if (text.runs().size() <= 1 || whole->size() != text.size()) {
    return heap.text(*whole, text.origin());
  }
  std::size_t begin = 0;
  for (const OriginText::Run& run : text.runs()) {
    result.append(std::string_view(*whole).substr(begin, run.end - begin), run.origin);
    begin = run.end;
  }
  return heap.text(std::move(result));
}

Value call_text_method(Evaluator& evaluator, const String& self, std::string_view name,
                       const Arguments& arguments) {
  Heap& heap = evaluator.heap();
  heap.step(1 + static_cast<int64_t>(self.bytes().size() / 32));
  if (name.ends_with("strip")) return strip(heap, self, name, arguments);
  if (name == "split" || name == "rsplit") return split(heap, self, name, arguments);
  if (name == "startswith" || name == "endswith") return begins_or_ends(self, name, arguments);
  if (name == "replace") {
    constexpr std::string_view kNames[] = {"old", "new", "count"};
    const Bound bound(name, arguments, kNames, 2);
    return replaced(heap, *self.text, *bound.text(0).text, *bound.text(1).text,
                    bound.integer(2, -1));
  }
  if (name == "join") return join(heap, self, arguments);
  if (name == "format") return brace_format(evaluator, self, arguments);
  if (name.ends_with("find") || name.ends_with("index") || name == "count") {
    return search(heap, self, name, arguments);
  }
  if (name == "splitlines") return splitlines(heap, self, arguments);
  if (name.ends_with("partition")) return partition(heap, self, name, arguments);
  if (name.ends_with("just") || name == "center" || name == "zfill") {
    return padded(heap, self, name, arguments);
  }
  if (name.starts_with("remove")) return without_end(heap, self, name, arguments);
  if (name == "expandtabs") return expandtabs(heap, self, arguments);
  if (with_other_letters(name, "")) {
    const Bound bound(name, arguments, {}, 0);
    return with_letters(heap, *self.text, name);
  }
  if (const auto answer = answer_of_text(name, self.bytes())) {
    const Bound bound(name, arguments, {}, 0);
    return Value(*answer);
  }
  refuse(kUnsupported, fmt::format("the method {} of texts is not supported", name));
}

}  // namespace subbyte::jinja
