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
  explicit Writer(Heap& heap) : heap_(heap) {}

  void add(std::string_view text) {
    heap_.take_bytes(static_cast<int64_t>(text.size()));
    text_ += text;
  }
  void note(const String& text) {
    if (text.text->origin() == Origin::kInput) origin_ = Origin::kInput;
  }
  OriginText finish() const { return OriginText(text_, origin_); }
  Heap& heap() { return heap_; }

 private:
  Heap& heap_;
  std::string text_;
  Origin origin_ = Origin::kTemplate;
};

std::string repr_of(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char mark = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, mark);
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.value == static_cast<char32_t>(mark) || c.value == '\\') {
      result += '\\';
      result += static_cast<char>(c.value);
    } else if (c.value == '\n' || c.value == '\r' || c.value == '\t') {
      result += c.value == '\n' ? "\\n" : c.value == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c.value)) {
      result += text.substr(at, c.length);
    } else if (c.value <= 0xFF) {
      result += fmt::format("\\x{:02x}", static_cast<uint32_t>(c.value));
    } else if (c.value <= 0xFFFF) {
      result += fmt::format("\\u{:04x}", static_cast<uint32_t>(c.value));
    } else {
      result += fmt::format("\\U{:08x}", static_cast<uint32_t>(c.value));
    }
    at += c.length;
  }
  return result + mark;
}

void write_repr(Writer& writer, const Value& value, int depth);

void write_items(Writer& writer, const Sequence& sequence, int depth) {
  for (std::size_t i = 0; i < sequence.items.size(); ++i) {
    if (i > 0) writer.add(", ");
    write_repr(writer, sequence.items[i], depth);
  }
}

void write_sequence(Writer& writer, const Sequence& sequence, int depth) {
  switch (sequence.kind) {
    case SequenceKind::kRange:
      return writer.add(sequence.label);
    case SequenceKind::kTuple:
    case SequenceKind::kGroup:
      writer.add("(");
      write_items(writer, sequence, depth);
      return writer.add(sequence.items.size() == 1 ? ",)" : ")");
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
  for (const auto& [key, value] : dictionary.entries) {
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
    writer.note(*text);
    const std::string quoted = repr_of(text->bytes());
    return writer.add(text->is_markup ? "Markup(" + quoted + ")" : quoted);
  }
  if (value.is_undefined()) return writer.add("Undefined");
  if (value.is_none()) return writer.add("None");
  if (const auto* const is_true = value.as<bool>()) return writer.add(*is_true ? "True" : "False");
  if (const auto* const whole = value.as<int64_t>()) return writer.add(fmt::to_string(*whole));
  if (const auto* const real = value.as<double>()) return writer.add(float_text(*real));
  if (const auto* const sequence = value.sequence()) {
    return write_sequence(writer, *sequence, depth + 1);
  }
  if (const auto* const dictionary = value.dictionary()) {
    return write_dictionary(writer, *dictionary, depth + 1);
  }
  refuse(kUnsupported,
         fmt::format("a value of the type {} is printed, which has no text of its own",
                     type_name(value)));
}

std::string json_string(std::string_view text, bool ascii) {
  std::string result = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    constexpr std::string_view kShort = "\"\\\n\r\t\b\f";
    constexpr std::string_view kLetters = "\"\\nrtbf";
    const std::size_t known =
        c.value < 0x80 ? kShort.find(static_cast<char>(c.value)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      result += '\\';
      result += kLetters[known];
    } else if (c.value < 0x20 || (ascii && c.value > 0x7E && c.value <= 0xFFFF)) {
      result += fmt::format("\\u{:04x}", static_cast<uint32_t>(c.value));
    } else if (ascii && c.value > 0xFFFF) {
      const uint32_t rest = static_cast<uint32_t>(c.value) - 0x10000;
      result += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      result += text.substr(at, c.length);
    }
    at += c.length;
  }
  return result + '"';
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_text(value);
}

std::string json_key(Writer& writer, const Value& key) {
  if (const String* const text = key.string()) {
    writer.note(*text);
    return text->bytes();
  }
  if (key.is_none()) return "null";
  if (const auto* const is_true = key.as<bool>()) return *is_true ? "true" : "false";
  if (const auto* const whole = key.as<int64_t>()) return fmt::to_string(*whole);
  if (const auto* const real = key.as<double>()) return json_float(*real);
  refuse(kType, fmt::format("a {} is no key of JSON", type_name(key)));
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : writer_(heap), style_(style) {}

  void write(const Value& value) {
    writer_.heap().step();
    if (const String* const text = value.string()) {
      writer_.note(*text);
      return writer_.add(json_string(text->bytes(), style_.ascii));
    }
    if (value.is_none()) return writer_.add("null");
    if (const auto* const is_true = value.as<bool>()) {
      return writer_.add(*is_true ? "true" : "false");
    }
    if (const auto* const whole = value.as<int64_t>()) return writer_.add(fmt::to_string(*whole));
    if (const auto* const real = value.as<double>()) return writer_.add(json_float(*real));
    const Sequence* const list = value.sequence();
    if (list != nullptr && list->kind <= SequenceKind::kGroup) return write_list(*list);
    if (const auto* const dictionary = value.dictionary()) return write_members(*dictionary);
    refuse(kType, fmt::format("a value of the type {} has no JSON", type_name(value)));
  }

  OriginText finish() const { return writer_.finish(); }

 private:
  void break_line() {
    if (!style_.indent) return;
    writer_.add("\n");
    for (int i = 0; i < level_; ++i) writer_.add(*style_.indent);
  }

  void write_list(const Sequence& list) {
    if (list.items.empty()) return writer_.add("[]");
    writer_.add("[");
    ++level_;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) writer_.add(style_.item_separator);
      break_line();
      write(list.items[i]);
    }
    --level_;
    break_line();
    writer_.add("]");
  }

  void write_members(const Dictionary& dictionary) {
    if (dictionary.entries.empty()) return writer_.add("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dictionary.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::ranges::stable_sort(entries, [&](const auto* a, const auto* b) {
        return less(writer_.heap(), a->first, b->first);
      });
    }
    writer_.add("{");
    ++level_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) writer_.add(style_.item_separator);
      break_line();
      writer_.add(json_string(json_key(writer_, entries[i]->first), style_.ascii));
      writer_.add(style_.key_separator);
      write(entries[i]->second);
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

OriginText to_text(Heap& heap, const Value& value) {
  if (const String* const text = value.string()) return *text->text;
  if (value.is_undefined()) return {};
  return to_repr(heap, value);
}

OriginText to_repr(Heap& heap, const Value& value) {
  Writer writer(heap);
  write_repr(writer, value, 0);
  return writer.finish();
}

OriginText to_json(Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(heap, style);
  writer.write(value);
  return writer.finish();
}

OriginText escaped(const OriginText& text) {
  OriginText result;
  std::size_t begin = 0;
  for (const OriginText::Run& run : text.runs()) {
    for (std::size_t at = begin; at < run.end; ++at) {
      const char c = text.bytes()[at];
      const std::string_view replacement = c == '&'    ? "&amp;"
                                           : c == '<'  ? "&lt;"
                                           : c == '>'  ? "&gt;"
                                           : c == '\'' ? "&#39;"
                                           : c == '"'  ? "&#34;"
                                                       : std::string_view(&text.bytes()[at], 1);
      result.append(replacement, run.origin);
    }
    begin = run.end;
  }
  return result;
}

}  // namespace subbyte::jinja
