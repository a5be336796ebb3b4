// Filters whose value is taken as a text.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "jinja/evaluator.h"
#include "jinja/filters.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

Value run_string(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("string", arguments, {}, 0);
  return value.string() != nullptr ? value : Value(to_text(evaluator.heap(), value));
}

bool begins_word_after(char32_t c) {
  constexpr std::string_view kBrackets = "-({[<";
  return is_space(c) || (c < 0x80 && kBrackets.find(static_cast<char>(c)) != kBrackets.npos);
}

template <const std::string_view& method>
Value run_letters(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound(method, arguments, {}, 0);
  return with_letters(evaluator.heap(), to_text(evaluator.heap(), value), method);
}

constexpr std::string_view kUpper = "upper";
constexpr std::string_view kLower = "lower";
constexpr std::string_view kCapitalize = "capitalize";

/// Words begin after white space and some brackets, unlike those of str.title().
Value run_title(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("title", arguments, {}, 0);
  Heap& heap = evaluator.heap();
  const String text = to_text(heap, value);
  const std::string_view bytes = text.letters(heap);
  TextBuilder result(heap);
  bool inside = false;
  std::size_t rest = 0;  // of a word, after its first letter
  std::size_t at = 0;
  for (const Text::Run& run : text->runs()) {
    while (at < run.end) {
      const std::size_t begin = at;
      const Character c = character_at(bytes, at);
      at += c.length;
      char32_t one = 0;
      const bool is_inside = std::exchange(inside, !begins_word_after(c.value));
      if (!is_inside) rest = at;
      const Letters letters = is_inside ? small(bytes.substr(rest), begin - rest, at - rest, one)
                                        : titled(c.value, one);
      for (const char32_t letter : letters) {
        result.append_character(letter, run.origin);
      }
    }
  }
  return heap.text(result);
}

Value run_trim(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"chars"};
  const Bound bound("trim", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  return stripped(heap, to_text(heap, value), bound.says(0) ? &bound.text(0) : nullptr, true, true);
}

Value run_replace(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"old", "new", "count"};
  const Bound bound("replace", arguments, kNames, 2);
  Heap& heap = evaluator.heap();
  return replaced(heap, to_text(heap, value), to_text(heap, *bound[0]), to_text(heap, *bound[1]),
                  bound.integer(2, -1));
}

/// An argument that is a text, or a number of blanks.
String indentation(Heap& heap, const Bound& bound, std::size_t index, int64_t otherwise) {
  if (bound.has(index) && bound[index]->string() != nullptr) return bound.text(index);
  TextBuilder blanks(heap);
  blanks.repeat(" ", bound.integer(index, otherwise), Origin::kTemplate);
  return {blanks.finish()};
}

Value run_indent(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"width", "first", "blank"};
  const Bound bound("indent", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  if (value.string() == nullptr) {
    refuse(kType, fmt::format("indent takes a text, found {}", type_name(value)));
  }
  const String space = indentation(heap, bound, 0, 4);
  TextBuilder copy(heap);
  copy.append(**value.string());
  copy.append("\n", Origin::kTemplate);
  const Value with_end = heap.text(copy);
  const String& text = *with_end.string();
  const std::string_view bytes = text.bytes(heap);
  TextBuilder result(heap);
  bool is_first = true;
  for (const Range& whole : lines_of(heap, bytes)) {
    const Range line = without_break(bytes, whole);
    if (!is_first) result.append("\n", Origin::kTemplate);
    const bool indents =
        is_first ? bound.truth(1, false) : bound.truth(2, false) || line.end > line.begin;
    is_first = false;
    if (indents) result.append(*space);
    result.append(*text, line.begin, line.end);
  }
  return heap.text(result);
}

Value run_center(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"width"};
  const Bound bound("center", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  return padded(heap, to_text(heap, value), "center", bound.integer(0, 80), " ");
}

Value run_format(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Heap& heap = evaluator.heap();
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    refuse(kType, "format takes values or names, not both");
  }
  const String text = to_text(heap, value);
  if (arguments.named.empty()) {
    return percent_format(heap, text, heap.tuple(Values(arguments.positional)));
  }
  Entries entries(heap);
  for (const auto& [name, item] : arguments.named) entries.emplace_back(heap.text(name), item);
  return percent_format(heap, text, heap.dictionary(std::move(entries)));
}

Value run_truncate(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"length", "killwords", "end", "leeway"};
  const Bound bound("truncate", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  if (value.string() == nullptr) refuse(kType, "truncate takes a text");
  const String& text = *value.string();
  const String end = bound.has(2) ? bound.text(2) : *heap.text("...").string();
  const int64_t length = bound.integer(0, 255);
  const auto end_length = static_cast<int64_t>(end->length(heap));
  if (length < end_length) refuse(kValue, "truncate has less room than its end");
  const int64_t most = clamped_sum(length, bound.integer(3, 5));
  if (static_cast<int64_t>(text->length(heap)) <= most) return value;
  std::size_t cut = text->byte_of(heap, static_cast<std::size_t>(length - end_length));
  if (!bound.truth(1, false)) {
    const std::size_t blank = text->scan(heap, 0, cut).rfind(' ');
    if (blank != std::string_view::npos) cut = blank;
  }
  TextBuilder result(heap);
  result.append(*text, 0, cut);
  result.append(*end);
  return heap.text(result);
}

Value run_wordcount(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("wordcount", arguments, {}, 0);
  const String held = to_text(evaluator.heap(), value);
  const std::string_view text = held.letters(evaluator.heap());
  int64_t count = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    const bool is_word = c.value == '_' || is_alpha(c.value) || is_number(c.value);
    if (is_word && !inside) ++count;
    inside = is_word;
    at += c.length;
  }
  return Value(count);
}

Value run_striptags(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("striptags", arguments, {}, 0);
  Heap& heap = evaluator.heap();
  const String text = to_text(heap, value);
  const std::string_view bytes = text.scan(heap);
  TextBuilder result(heap);
  for (std::size_t at = 0; at < bytes.size();) {
    heap.step();
    const std::size_t open = std::min(bytes.find('<', at), bytes.size());
    const std::size_t close = bytes.find('>', open);
    const std::size_t stop = close == std::string_view::npos ? bytes.size() : open;
    result.append(*text, at, stop);
    at = close == std::string_view::npos ? bytes.size() : close + 1;
  }
  const Value words = call_method(evaluator, heap.text(result), "split", Arguments(heap));
  return call_method(evaluator, heap.text(" "), "join", {heap, words});
}

Value run_urlencode(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("urlencode", arguments, {}, 0);
  const bool is_text = value.string() != nullptr || !is_iterable(value);
  if (!is_text) refuse(kUnsupported, "urlencode of a list or dict is not supported");
  Heap& heap = evaluator.heap();
  const String text = to_text(heap, value);
  TextBuilder result(heap);
  for (const char c : text.letters(heap)) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const auto code = static_cast<unsigned char>(c);
    const char quoted[] = {'%', kDigits[code >> 4], kDigits[code & 15]};
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') ||
                          std::string_view("_.-~/").find(c) != std::string_view::npos;
    result.append(is_plain ? std::string_view(&c, 1) : std::string_view(quoted, 3), text->origin());
  }
  return heap.text(result);
}

Value run_safe(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("safe", arguments, {}, 0);
  return Value(String{to_text(evaluator.heap(), value).text, /*is_markup=*/true});
}

Value run_escape(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("escape", arguments, {}, 0);
  return escaped(evaluator.heap(), to_text(evaluator.heap(), value));
}

Value run_forceescape(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("forceescape", arguments, {}, 0);
  return escaped(evaluator.heap(), {to_text(evaluator.heap(), value).text});
}

/// json.dumps() with the arguments that transformers lets through.
Value run_tojson(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
  const Bound bound("tojson", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  JsonStyle style;
  style.ascii = bound.truth(0, false);
  if (bound.says(1)) {
    style.item_separator = *heap.text(",").string();
    style.indent = indentation(heap, bound, 1, 0);
  }
  if (bound.says(2)) {
    const Values separators = items_of(heap, *bound[2]);
    if (separators.size() != 2 || !separators[0].string() || !separators[1].string()) {
      refuse(kType, "tojson takes two texts as separators");
    }
    style.item_separator = *separators[0].string();
    style.key_separator = *separators[1].string();
  }
  style.sort_keys = bound.truth(3, false);
  return to_json(heap, value, style);
}

constexpr Filter kFilters[] = {{"string", run_string},
                               {"upper", run_letters<kUpper>},
                               {"lower", run_letters<kLower>},
                               {"capitalize", run_letters<kCapitalize>},
                               {"title", run_title},
                               {"trim", run_trim},
                               {"replace", run_replace},
                               {"indent", run_indent},
                               {"center", run_center},
                               {"format", run_format},
                               {"truncate", run_truncate},
                               {"wordcount", run_wordcount},
                               {"striptags", run_striptags},
                               {"urlencode", run_urlencode},
                               {"safe", run_safe},
                               {"e", run_escape},
                               {"escape", run_escape},
                               {"forceescape", run_forceescape},
                               {"tojson", run_tojson}};

}  // namespace

std::span<const Filter> text_filters() {
  return kFilters;
}

}  // namespace subbyte::jinja
