// Filters whose value is taken as a text.

#include <fmt/format.h>

#include <algorithm>

#include "jinja/evaluator.h"
#include "jinja/filters.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

Value run_string(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("string", arguments, {}, 0);
  if (value.string() != nullptr) return value;
  return evaluator.heap().text(to_text(evaluator.heap(), value));
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
  const OriginText text = to_text(heap, value);
  heap.take_bytes(static_cast<int64_t>(2 * text.size()));
  const std::string& bytes = text.bytes();
  OriginText result;
  const auto add_word = [&](std::size_t begin, std::size_t end) {
    if (begin == end) return;
    const std::size_t rest = begin + character_at(bytes, begin).length;
    const std::string_view all = bytes;
    result.append(upper(all.substr(begin, rest - begin)), text.part(begin, rest).origin());
    result.append(lower(all.substr(rest, end - rest)), text.part(rest, end).origin());
  };
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const Character c = character_at(bytes, at);
    const bool is_border =
        is_space(c.value) ||
        (c.value < 0x80 &&
         std::string_view("-({[<").find(static_cast<char>(c.value)) != std::string_view::npos);
    if (is_border) {
      add_word(begin, at);
      result.append(text, at, at + c.length);
      begin = at + c.length;
    }
    at += c.length;
  }
  add_word(begin, bytes.size());
  return heap.text(std::move(result));
}

Value run_trim(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"chars"};
  const Bound bound("trim", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  const OriginText text = to_text(heap, value);
  const Range range = bound.says(0) ? stripped(text.bytes(), bound.text(0).bytes(), true, true)
                                    : stripped(text.bytes(), true, true);
  return heap.text(text.part(range.begin, range.end));
}

Value run_replace(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"old", "new", "count"};
  const Bound bound("replace", arguments, kNames, 2);
  Heap& heap = evaluator.heap();
  return replaced(heap, to_text(heap, value), to_text(heap, *bound[0]), to_text(heap, *bound[1]),
                  bound.integer(2, -1));
}

Value run_indent(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"width", "first", "blank"};
  const Bound bound("indent", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  if (value.string() == nullptr) {
    refuse(kType, fmt::format("indent takes a text, found {}", type_name(value)));
  }
  const bool has_text = bound.has(0) && bound[0]->string() != nullptr;
  const int64_t width = has_text ? 0 : std::max<int64_t>(bound.integer(0, 4), 0);
  heap.take_bytes(width);
  const OriginText space =
      has_text ? *bound.text(0).text
               : OriginText(std::string(static_cast<std::size_t>(width), ' '), Origin::kTemplate);
  OriginText text = *value.string()->text;
  text.append("\n", Origin::kTemplate);
  OriginText result;
  bool is_first = true;
  for (const Range& line : lines_of(text.bytes())) {
    std::size_t end = line.end;
    while (end > line.begin &&
           is_line_break(character_at(text.bytes(), character_before(text.bytes(), end)).value)) {
      end = character_before(text.bytes(), end);
    }
    if (!is_first) result.append("\n", Origin::kTemplate);
    const bool indents =
        is_first ? bound.truth(1, false) : bound.truth(2, false) || end > line.begin;
    is_first = false;
    heap.take_bytes(static_cast<int64_t>(end - line.begin + space.size()));
    if (indents) result.append(space);
    result.append(text, line.begin, end);
  }
  return heap.text(std::move(result));
}

Value run_center(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"width"};
  const Bound bound("center", arguments, kNames, 0);
  const Arguments width = {{Value(bound.integer(0, 80))}, {}};
  const Value text = evaluator.heap().text(to_text(evaluator.heap(), value));
  return call_method(evaluator, text, "center", width);
}

Value run_format(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Heap& heap = evaluator.heap();
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    refuse(kType, "format takes values or names, not both");
  }
  const Value text = heap.text(to_text(heap, value));
  if (arguments.named.empty()) {
    return percent_format(heap, *text.string(), heap.tuple(arguments.positional));
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, item] : arguments.named) entries.emplace_back(heap.text(name), item);
  return percent_format(heap, *text.string(), heap.dictionary(std::move(entries)));
}

Value run_truncate(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"length", "killwords", "end", "leeway"};
  const Bound bound("truncate", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  if (value.string() == nullptr) refuse(kType, "truncate takes a text");
  const OriginText& text = *value.string()->text;
  const OriginText end = bound.has(2) ? *bound.text(2).text : OriginText("...", Origin::kTemplate);
  const int64_t length = bound.integer(0, 255);
  const auto end_length = static_cast<int64_t>(count_characters(end.bytes()));
  if (length < end_length) refuse(kValue, "truncate has less room than its end");
  if (static_cast<int64_t>(count_characters(text.bytes())) <= length + bound.integer(3, 5)) {
    return value;
  }
  std::size_t cut = byte_of_character(text.bytes(), static_cast<std::size_t>(length - end_length));
  if (!bound.truth(1, false)) {
    const std::size_t blank = std::string_view(text.bytes()).substr(0, cut).rfind(' ');
    if (blank != std::string_view::npos) cut = blank;
  }
  OriginText result = text.part(0, cut);
  result.append(end);
  return heap.text(std::move(result));
}

Value run_wordcount(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("wordcount", arguments, {}, 0);
  const OriginText text = to_text(evaluator.heap(), value);
  int64_t count = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text.bytes(), at);
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
  const OriginText text = to_text(heap, value);
  OriginText result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = std::min(text.bytes().find('<', at), text.size());
    const std::size_t close = text.bytes().find('>', open);
    const std::size_t stop = close == std::string::npos ? text.size() : open;
    result.append(text, at, stop);
    at = close == std::string::npos ? text.size() : close + 1;
  }
  const Value whole = heap.text(std::move(result));
  const Value words = call_method(evaluator, whole, "split", {});
  return call_method(evaluator, heap.text(" "), "join", {{words}, {}});
}

Value run_urlencode(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("urlencode", arguments, {}, 0);
  const bool is_text = value.string() != nullptr || !is_iterable(value);
  if (!is_text) refuse(kUnsupported, "urlencode of a list or dict is not supported");
  const OriginText text = to_text(evaluator.heap(), value);
  std::string result;
  for (const char c : text.bytes()) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') ||
                          std::string_view("_.-~/").find(c) != std::string_view::npos;
    if (is_plain) {
      result += c;
    } else {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return evaluator.heap().text(result, text.origin());
}

Value run_safe(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("safe", arguments, {}, 0);
  return evaluator.heap().text(to_text(evaluator.heap(), value), /*is_markup=*/true);
}

Value run_escape(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("escape", arguments, {}, 0);
  if (value.string() != nullptr && value.string()->is_markup) return value;
  return evaluator.heap().text(escaped(to_text(evaluator.heap(), value)), /*is_markup=*/true);
}

Value run_forceescape(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("forceescape", arguments, {}, 0);
  return evaluator.heap().text(escaped(to_text(evaluator.heap(), value)), /*is_markup=*/true);
}

/// json.dumps() with the arguments that transformers lets through.
Value run_tojson(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
  const Bound bound("tojson", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  JsonStyle style;
  style.ascii = bound.truth(0, false);
  if (bound.says(1)) {
    style.item_separator = ",";
    const bool has_text = bound[1]->string() != nullptr;
    const int64_t width = has_text ? 0 : std::max<int64_t>(bound.integer(1, 0), 0);
    heap.take_bytes(width);
    style.indent =
        has_text ? bound.text(1).bytes() : std::string(static_cast<std::size_t>(width), ' ');
  }
  if (bound.says(2)) {
    const std::vector<Value> separators = items_of(heap, *bound[2]);
    if (separators.size() != 2 || !separators[0].string() || !separators[1].string()) {
      refuse(kType, "tojson takes two texts as separators");
    }
    style.item_separator = separators[0].string()->bytes();
    style.key_separator = separators[1].string()->bytes();
  }
  style.sort_keys = bound.truth(3, false);
  return heap.text(to_json(heap, value, style));
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
