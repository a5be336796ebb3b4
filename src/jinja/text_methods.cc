// The methods of Python's str. Parts of a text keep their origin.

#include <fmt/format.h>

#include <algorithm>

#include "jinja/characters.h"
#include "jinja/evaluator.h"
#include "jinja/methods.h"
#include "jinja/operations.h"
#include "jinja/search.h"

namespace subbyte::jinja {
namespace {

using Names = std::span<const std::string_view>;
using Ranges = List<Range>;
constexpr std::size_t kNowhere = Search::kNowhere;

/// split() without a separator: the words.
Ranges words_of(Meter& meter, std::string_view text, int64_t most) {
  Ranges words(meter);
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

Ranges last_words_of(Meter& meter, std::string_view text, int64_t most) {
  Ranges words(meter);
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

Ranges parts_of(Meter& meter, std::string_view text, std::string_view separator, int64_t most) {
  Search search(meter, text, separator);
  Ranges parts(meter);
  std::size_t begin = 0;
  while (most < 0 || std::ssize(parts) < most) {
    const std::size_t end = search.next(begin);
    if (end == kNowhere) break;
    parts.push_back({begin, end});
    begin = end + separator.size();
  }
  parts.push_back({begin, text.size()});
  return parts;
}

Ranges last_parts_of(Meter& meter, std::string_view text, std::string_view separator,
                     int64_t most) {
  Search search(meter, text, separator);
  Ranges parts(meter);
  std::size_t end = text.size();
  while (most < 0 || std::ssize(parts) < most) {
    const std::size_t begin = search.last(end);
    if (begin == kNowhere) break;
    parts.push_back({begin + separator.size(), end});
    end = begin;
  }
  parts.push_back({0, end});
  std::ranges::reverse(parts);
  return parts;
}

Value list_of(Heap& heap, const String& self, const Ranges& ranges) {
  Values items(heap);
  items.reserve(ranges.size());
  for (const Range& range : ranges) items.push_back(heap.part(self, range.begin, range.end));
  return heap.list(std::move(items));
}

std::string_view separator_of(Meter& meter, const Bound& bound, std::string_view name) {
  const std::string_view separator = bound.text(0).scan(meter);
  if (separator.empty()) refuse(kValue, fmt::format("{}: the separator is empty", name));
  return separator;
}

/// split and rsplit.
Value split(Heap& heap, const String& self, std::string_view name, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"sep", "maxsplit"};
  const Bound bound(name, arguments, kNames, 0);
  const int64_t most = bound.integer(1, -1);
  const bool from_end = name == "rsplit";
  if (!bound.says(0)) {
    const std::string_view text = self.bytes(heap);
    return list_of(heap, self,
                   from_end ? last_words_of(heap, text, most) : words_of(heap, text, most));
  }
  const std::string_view text = self.scan(heap);
  const std::string_view separator = separator_of(heap, bound, name);
  return list_of(heap, self,
                 from_end ? last_parts_of(heap, text, separator, most)
                          : parts_of(heap, text, separator, most));
}

Value partition(Heap& heap, const String& self, std::string_view name, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"sep"};
  const Bound bound(name, arguments, kNames, 1);
  const std::string_view separator = separator_of(heap, bound, name);
  const bool from_end = name == "rpartition";
  const std::size_t size = self->size();
  Search search(heap, self.scan(heap), separator);
  const std::size_t at = from_end ? search.last(size) : search.next(0);
  if (at == kNowhere) {
    const Value nothing = heap.text("");
    const Value all = heap.part(self, 0, size);
    return from_end ? heap.tuple({nothing, nothing, all}) : heap.tuple({all, nothing, nothing});
  }
  return heap.tuple({heap.part(self, 0, at), heap.part(self, at, at + separator.size()),
                     heap.part(self, at + separator.size(), size)});
}

Value splitlines(Heap& heap, const String& self, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"keepends"};
  const Bound bound("splitlines", arguments, kNames, 0);
  const bool keeps = bound.truth(0, false);
  const std::string_view text = self.bytes(heap);
  Ranges lines = lines_of(heap, text);
  for (Range& line : lines) {
    if (!keeps) line = without_break(text, line);
  }
  return list_of(heap, self, lines);
}

/// The bytes that the characters [start, stop) of a call take; nothing where the start lies after
/// the stop or the end.
std::optional<Range> range_of(Heap& heap, const String& self, const Bound& bound) {
  const std::size_t size = self->length(heap);
  const int64_t start = bound.integer(1, 0);
  const std::size_t stop = bound.says(2) ? place_in(bound.integer(2, 0), size) : size;
  const std::size_t begin = place_in(start, size);
  if (start > static_cast<int64_t>(size) || begin > stop) return std::nullopt;
  return Range{self->byte_of(heap, begin), self->byte_of(heap, stop)};
}

/// find, rfind, index, rindex, count.
Value search(Heap& heap, const String& self, std::string_view name, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"sub", "start", "end"};
  const Bound bound(name, arguments, kNames, 1);
  const std::string_view wanted = bound.text(0).scan(heap);
  const auto range = range_of(heap, self, bound);
  const std::string_view all = self.scan(heap);
  const std::string_view text =
      range ? all.substr(range->begin, range->end - range->begin) : std::string_view();
  if (name == "count") {
    if (!range) return Value(int64_t{0});
    if (wanted.empty()) return Value(static_cast<int64_t>(count_characters(text) + 1));
    return Value(std::ssize(parts_of(heap, text, wanted, -1)) - 1);
  }
  Search search(heap, text, wanted);
  const std::size_t at = !range           ? kNowhere
                         : name[0] == 'r' ? search.last(text.size())
                                          : search.next(0);
  if (at != kNowhere) {
    return Value(static_cast<int64_t>(count_characters(all.substr(0, range->begin + at))));
  }
  if (name.ends_with("find")) return Value(int64_t{-1});
  refuse(kValue, fmt::format("{}: the text is not there", name));
}

/// startswith and endswith: a text, or a tuple of them.
Value begins_or_ends(Heap& heap, const String& self, std::string_view name,
                     const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"prefix", "start", "end"};
  const Bound bound(name, arguments, kNames, 1);
  const auto range = range_of(heap, self, bound);
  if (!range) return Value(false);
  const auto fits = [&](const String& part) {
    const std::size_t size = part->size();
    if (size > range->end - range->begin) return false;
    const std::size_t begin = name == "startswith" ? range->begin : range->end - size;
    return self->scan(heap, begin, begin + size) == part.scan(heap);
  };
  const Sequence* const several = bound[0]->sequence();
  if (several == nullptr || several->kind() != SequenceKind::kTuple) {
    return Value(fits(bound.text(0)));
  }
  return Value(std::ranges::any_of(several->items(heap), [&](const Value& item) {
    if (item.string() == nullptr) refuse(kType, fmt::format("{} takes texts", name));
    return fits(*item.string());
  }));
}

Value join(Heap& heap, const String& self, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"iterable"};
  const Bound bound("join", arguments, kNames, 1);
  TextBuilder result(heap);
  bool is_first = true;
  for (const Value& item : items_of(heap, *bound[0])) {
    if (item.string() == nullptr) {
      refuse(kType, fmt::format("join takes texts, found {}", type_name(item)));
    }
    if (!is_first) result.append(*self);
    is_first = false;
    result.append(**item.string());
  }
  return heap.text(result);
}

Value justify(Heap& heap, const String& self, std::string_view name, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"width", "fillchar"};
  const bool fills_zeros = name == "zfill";
  const Bound bound(name, arguments, Names(kNames).first(fills_zeros ? 1 : 2), 1);
  const std::string_view fill = fills_zeros    ? "0"
                                : bound.has(1) ? bound.text(1).bytes(heap)
                                               : std::string_view(" ");
  return padded(heap, self, name, bound.integer(0, 0), fill);
}

Value without_end(Heap& heap, const String& self, std::string_view name,
                  const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"part"};
  const Bound bound(name, arguments, kNames, 1);
  const std::string_view part = bound.text(0).scan(heap);
  const std::string_view text = self.scan(heap);
  if (name == "removeprefix") {
    return heap.part(self, text.starts_with(part) ? part.size() : 0, text.size());
  }
  return heap.part(self, 0, text.size() - (text.ends_with(part) ? part.size() : 0));
}

Value expandtabs(Heap& heap, const String& self, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"tabsize"};
  const Bound bound("expandtabs", arguments, kNames, 0);
  const int64_t size = bound.integer(0, 8);
  const std::string_view text = self.letters(heap);
  TextBuilder result(heap);
  int64_t column = 0;  // of what is made, which is bounded
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.value == '\t') {
      const int64_t blanks = size > 0 ? size - column % size : 0;
      result.repeat(" ", blanks, Origin::kTemplate);
      column += blanks;
    } else {
      result.append(*self, at, at + c.length);
      column = c.value == '\n' || c.value == '\r' ? 0 : column + 1;
    }
    at += c.length;
  }
  return heap.text(result);
}

}  // namespace

Value call_text_method(Evaluator& evaluator, const String& self, std::string_view name,
                       const Arguments& arguments) {
  Heap& heap = evaluator.heap();
  if (name.ends_with("strip")) {
    constexpr std::string_view kNames[] = {"chars"};
    const Bound bound(name, arguments, kNames, 0);
    return stripped(heap, self, bound.says(0) ? &bound.text(0) : nullptr, name != "rstrip",
                    name != "lstrip");
  }
  if (name == "split" || name == "rsplit") return split(heap, self, name, arguments);
  if (name == "startswith" || name == "endswith") {
    return begins_or_ends(heap, self, name, arguments);
  }
  if (name == "replace") {
    constexpr std::string_view kNames[] = {"old", "new", "count"};
    const Bound bound(name, arguments, kNames, 2);
    return replaced(heap, self, bound.text(0), bound.text(1), bound.integer(2, -1));
  }
  if (name == "join") return join(heap, self, arguments);
  if (name == "format") return brace_format(evaluator, self, arguments);
  if (name.ends_with("find") || name.ends_with("index") || name == "count") {
    return search(heap, self, name, arguments);
  }
  if (name == "splitlines") return splitlines(heap, self, arguments);
  if (name.ends_with("partition")) return partition(heap, self, name, arguments);
  if (name.ends_with("just") || name == "center" || name == "zfill") {
    return justify(heap, self, name, arguments);
  }
  if (name.starts_with("remove")) return without_end(heap, self, name, arguments);
  if (name == "expandtabs") return expandtabs(heap, self, arguments);
  if (changes_letters(name)) {
    const Bound bound(name, arguments, {}, 0);
    return with_letters(heap, self, name);
  }
  if (const auto answer = answer_of_text(name, self.letters(heap))) {
    const Bound bound(name, arguments, {}, 0);
    return Value(*answer);
  }
  refuse(kUnsupported, fmt::format("the method {} of texts is not supported", name));
}

}  // namespace subbyte::jinja
