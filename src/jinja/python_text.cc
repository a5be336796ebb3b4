// Values as Python prints them, and as its json writes them.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jinja/characters.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

/// A text that is of an input as soon as something of an input stands in it.
class Writer {
 public:
  explicit Writer(Heap& heap) : heap_(heap), text_(heap) {}

  void add(std::string_view text) { text_.append(text, Origin::kTemplate); }
  void add(const Text& text) {
    note(text);
    add(text.bytes(heap_));
  }
  /// \x41, \u0041, \U00000041
  void add_code(char letter, int digits, uint32_t code) {
    char text[10] = {'\\', letter};
    for (int i = digits - 1; i >= 0; --i, code >>= 4) text[2 + i] = "0123456789abcdef"[code & 15];
    add({text, static_cast<std::size_t>(2 + digits)});
  }
  void note(const Text& text) { has_input_ = has_input_ || text.origin() == Origin::kInput; }
  String finish() {
    if (has_input_) text_.mark_input();
    return {text_.finish()};
  }
  Heap& heap() { return heap_; }

 private:
  Heap& heap_;
  TextBuilder text_;
  bool has_input_ = false;
};

void write_quoted(Writer& writer, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char mark = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  writer.add({&mark, 1});
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.value == static_cast<char32_t>(mark) || c.value == '\\') {
      writer.add("\\");
      writer.add(text.substr(at, 1));
    } else if (c.value == '\n' || c.value == '\r' || c.value == '\t') {
      writer.add(c.value == '\n' ? "\\n" : c.value == '\r' ? "\\r" : "\\t");
    } else if (is_printable(c.value)) {
      writer.add(text.substr(at, c.length));
    } else {
      const bool is_byte = c.value <= 0xFF;
      const bool is_short = c.value <= 0xFFFF;
      writer.add_code(is_byte    ? 'x'
                      : is_short ? 'u'
                                 : 'U',
                      is_byte    ? 2
                      : is_short ? 4
                                 : 8,
                      c.value);
    }
    at += c.length;
  }
  writer.add({&mark, 1});
}

void write_repr(Writer& writer, const Value& value, int depth);

void write_items(Writer& writer, const Sequence& sequence, int depth) {
  bool is_first = true;
  for (const Value& item : sequence.items(writer.heap())) {
    if (!is_first) writer.add(", ");
    is_first = false;
    write_repr(writer, item, depth);
  }
}

void write_sequence(Writer& writer, const Sequence& sequence, int depth) {
  switch (sequence.kind()) {
    case SequenceKind::kRange:
      return writer.add(sequence.label());
    case SequenceKind::kTuple:
    case SequenceKind::kGroup:
      writer.add("(");
      write_items(writer, sequence, depth);
      return writer.add(sequence.size() == 1 ? ",)" : ")");
    case SequenceKind::kList:
      writer.add("[");
      write_items(writer, sequence, depth);
      return writer.add("]");
    default:
      writer.add(type_name(Value(std::shared_ptr<const Sequence>(&sequence, [](auto*) {}))));
      writer.add("([");
      write_items(writer, sequence, depth);
      return writer.add("])");
  }
}

void write_dictionary(Writer& writer, const Dictionary& dictionary, int depth) {
  writer.add("{");
  bool is_first = true;
  for (const auto& [key, value] : dictionary.entries(writer.heap())) {
    if (!is_first) writer.add(", ");
    is_first = false;
    write_repr(writer, key, depth);
    writer.add(": ");
    write_repr(writer, value, depth);
  }
  writer.add("}");
}

/// str() of what is no text, which repr() shares but for undefined values.
void write_repr(Writer& writer, const Value& value, int depth) {
  writer.heap().step();
  if (depth > writer.heap().max_depth()) refuse(kLimit, "values are nested too deeply to print");
  if (const String* const text = value.string()) {
    writer.note(**text);
    if (text->is_markup) writer.add("Markup(");
    write_quoted(writer, text->letters(writer.heap()));
    return text->is_markup ? writer.add(")") : void();
  }
  if (value.is_undefined()) return writer.add("Undefined");
  if (value.is_none()) return writer.add("None");
  if (const auto* const is_true = value.as<bool>()) return writer.add(*is_true ? "True" : "False");
  if (const auto* const whole = value.as<int64_t>()) return writer.add(fmt::to_string(*whole));
  if (const auto* const real = value.as<double>()) return writer.add(float_text(*real));
  if (const auto* const digits = value.as<LongInteger>()) return writer.add(*digits->digits);
  if (const auto* const sequence = value.sequence()) {
    return write_sequence(writer, *sequence, depth + 1);
  }
  if (const auto* const dictionary = value.dictionary()) {
    return write_dictionary(writer, *dictionary, depth + 1);
  }
  if (value.object() != nullptr) {
    if (const auto shown = value.object()->shown(writer.heap())) {
      writer.add("<");
      writer.add(value.object()->type());
      writer.add(" ");
      write_repr(writer, *shown, depth + 1);
      return writer.add(">");
    }
  }
  refuse(kUnsupported,
         fmt::format("a value of the type {} is printed, which has no text of its own",
                     type_name(value)));
}

void write_json_text(Writer& writer, std::string_view text, bool ascii) {
  writer.add("\"");
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    constexpr std::string_view kShort = "\"\\\n\r\t\b\f";
    constexpr std::string_view kLetters = "\"\\nrtbf";
    const std::size_t known =
        c.value < 0x80 ? kShort.find(static_cast<char>(c.value)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      writer.add("\\");
      writer.add(kLetters.substr(known, 1));
    } else if (c.value < 0x20 || (ascii && c.value > 0x7E && c.value <= 0xFFFF)) {
      writer.add_code('u', 4, c.value);
    } else if (ascii && c.value > 0xFFFF) {
      const uint32_t rest = static_cast<uint32_t>(c.value) - 0x10000;
      writer.add_code('u', 4, 0xD800 + (rest >> 10));
      writer.add_code('u', 4, 0xDC00 + (rest & 0x3FF));
    } else {
      writer.add(text.substr(at, c.length));
    }
    at += c.length;
  }
  writer.add("\"");
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_text(value);
}

void write_json_key(Writer& writer, const Value& key, bool ascii) {
  if (const String* const text = key.string()) {
    writer.note(**text);
    return write_json_text(writer, text->letters(writer.heap()), ascii);
  }
  writer.add("\"");
  if (key.is_none()) {
    writer.add("null");
  } else if (const auto* const is_true = key.as<bool>()) {
    writer.add(*is_true ? "true" : "false");
  } else if (const auto* const whole = key.as<int64_t>()) {
    writer.add(fmt::to_string(*whole));
  } else if (const auto* const real = key.as<double>()) {
    writer.add(json_float(*real));
  } else if (const auto* const digits = key.as<LongInteger>()) {
    writer.add(*digits->digits);
  } else {
    refuse(kType, fmt::format("a {} is no key of JSON", type_name(key)));
  }
  writer.add("\"");
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : writer_(heap), style_(style) {}

  void write(const Value& value) {
    writer_.heap().step();
    if (const String* const text = value.string()) {
      writer_.note(**text);
      return write_json_text(writer_, text->letters(writer_.heap()), style_.ascii);
    }
    if (value.is_none()) return writer_.add("null");
    if (const auto* const is_true = value.as<bool>()) {
      return writer_.add(*is_true ? "true" : "false");
    }
    if (const auto* const whole = value.as<int64_t>()) return writer_.add(fmt::to_string(*whole));
    if (const auto* const real = value.as<double>()) return writer_.add(json_float(*real));
    if (const auto* const digits = value.as<LongInteger>()) return writer_.add(*digits->digits);
    const Sequence* const list = value.sequence();
    if (list != nullptr && list->kind() <= SequenceKind::kGroup) return write_list(*list);
    if (const auto* const dictionary = value.dictionary()) return write_members(*dictionary);
    refuse(kType, fmt::format("a value of the type {} has no JSON", type_name(value)));
  }

  Value finish() { return Value(writer_.finish()); }

 private:
  void break_line() {
    if (!style_.indent) return;
    writer_.add("\n");
    for (int i = 0; i < level_; ++i) writer_.add(style_.indent->scan(writer_.heap()));
  }
  void separate(const std::optional<String>& separator, std::string_view usual) {
    writer_.add(separator ? separator->scan(writer_.heap()) : usual);
  }

  void write_list(const Sequence& list) {
    if (list.empty()) return writer_.add("[]");
    writer_.add("[");
    ++level_;
    bool is_first = true;
    for (const Value& item : list.items(writer_.heap())) {
      if (!is_first) separate(style_.item_separator, ", ");
      is_first = false;
      break_line();
      write(item);
    }
    --level_;
    break_line();
    writer_.add("]");
  }

  void write_members(const Dictionary& dictionary) {
    if (dictionary.empty()) return writer_.add("{}");
    Heap& heap = writer_.heap();
    List<const Dictionary::Entry*> entries(heap);
    for (const auto& entry : dictionary.entries(heap)) entries.push_back(&entry);
    if (style_.sort_keys) {
      // Keys are different, so that it does not matter which of equal ones comes first.
      for (std::size_t i = 1; i < entries.size(); ++i) {
        less(heap, entries[i - 1]->first, entries[i]->first);  // refuses those without an order
      }
      std::ranges::sort(entries, [&](const auto* a, const auto* b) {
        return order_of_keys(heap, a->first, b->first) < 0;
      });
    }
    writer_.add("{");
    ++level_;
    bool is_first = true;
    for (const auto* const entry : entries) {
      if (!is_first) separate(style_.item_separator, ", ");
      is_first = false;
      break_line();
      write_json_key(writer_, entry->first, style_.ascii);
      separate(style_.key_separator, ": ");
      write(entry->second);
    }
    --level_;
    break_line();
    writer_.add("}");
  }

  Writer writer_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

String to_text(Heap& heap, const Value& value) {
  if (const String* const text = value.string()) return *text;
  if (value.is_undefined()) return *heap.text("").string();
  return to_repr(heap, value);
}

String to_repr(Heap& heap, const Value& value) {
  Writer writer(heap);
  write_repr(writer, value, 0);
  return writer.finish();
}

std::string shown(Heap& heap, const Value& value) {
  constexpr std::size_t kMost = 100;
  const String text = to_repr(heap, value);
  return std::string(text->bytes(heap, 0, std::min(kMost, text->size())));
}

Value to_json(Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(heap, style);
  writer.write(value);
  return writer.finish();
}

Value escaped(Heap& heap, const String& text) {
  if (text.is_markup) return Value(text);
  const std::string_view bytes = text.letters(heap);
  TextBuilder result(heap);
  std::size_t at = 0;
  for (const Text::Run& run : text->runs()) {
    for (; at < run.end; ++at) {
      const char c = bytes[at];
      const std::string_view replacement = c == '&'    ? "&amp;"
                                           : c == '<'  ? "&lt;"
                                           : c == '>'  ? "&gt;"
                                           : c == '\'' ? "&#39;"
                                           : c == '"'  ? "&#34;"
                                                       : bytes.substr(at, 1);
      result.append(replacement, run.origin);
    }
  }
  return heap.text(result, /*is_markup=*/true);
}

}  // namespace subbyte::jinja
