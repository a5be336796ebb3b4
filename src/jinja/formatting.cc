// Python's two ways to format: "%s" % value, and "{}".format(value).

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/characters.h"
#include "jinja/evaluator.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

constexpr int64_t kMaxWidth = 1 << 16;

/// [[fill]align][sign][#][0][width][,][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternative = false;
  bool zeros = false;
  bool commas = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

int64_t read_number(std::string_view text, std::size_t& at) {
  int64_t number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + (text[at++] - '0');
    if (number > kMaxWidth) refuse(kLimit, "the width of a format is too large");
  }
  return number;
}

std::string with_commas(std::string digits) {
  const std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t at = end; at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

/// Digits are made one by one of a number that may have 309 of them before the point.
std::size_t steps_of_digits(const Value& value, const Spec& spec) {
  constexpr std::size_t kUsual = 16;
  const double real = std::abs(number(value).value_or(0));
  const auto before =
      std::isfinite(real) && real > 1 ? static_cast<std::size_t>(std::log10(real)) : 0;
  return kUsual + before + static_cast<std::size_t>(std::max<int64_t>(spec.precision, 0));
}

/// A number without its sign.
std::string digits_of(const Value& value, const Spec& spec) {
  int64_t whole = 0;
  const bool is_whole = value.integer(whole);
  const auto size = whole < 0 ? ~static_cast<uint64_t>(whole) + 1 : static_cast<uint64_t>(whole);
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const double real = std::abs(number(value).value_or(0));
  switch (spec.type) {
    case 'x':
      return (spec.alternative ? "0x" : "") + fmt::format("{:x}", size);
    case 'X':
      return (spec.alternative ? "0X" : "") + fmt::format("{:X}", size);
    case 'o':
      return fmt::format("{:o}", size);
    case 'b':
      return fmt::format("{:b}", size);
    case 'e':
      return fmt::format("{:.{}e}", real, precision);
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", real, precision);
    case 'g':
      return fmt::format("{:.{}g}", real, precision);
    case '%':
      return fmt::format("{:.{}f}%", real * 100, precision);
    default:
      if (is_whole) return fmt::to_string(size);
      if (spec.precision >= 0) return fmt::format("{:.{}g}", real, precision);
      return float_text(real);
  }
}

/// Adds a text with what fills it up.
void append_padded(TextBuilder& out, const String& text, const Spec& spec, char usual_align) {
  Meter& meter = out.meter();
  const std::size_t end = spec.precision < 0
                              ? text->size()
                              : text->byte_of(meter, static_cast<std::size_t>(spec.precision));
  const std::size_t length =
      end == text->size() ? text->length(meter) : static_cast<std::size_t>(spec.precision);
  const int64_t missing = std::max<int64_t>(spec.width - static_cast<int64_t>(length), 0);
  const char align = spec.align != 0 ? spec.align : usual_align;
  const int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  out.repeat(spec.fill, before, Origin::kTemplate);
  out.append(*text, 0, end);
  out.repeat(spec.fill, missing - before, Origin::kTemplate);
}

void append_number(Heap& heap, TextBuilder& out, const Value& value, Spec spec) {
  heap.step(steps_of_digits(value, spec));
  std::string digits = digits_of(value, spec);
  if (spec.commas) digits = with_commas(std::move(digits));
  int64_t whole = 0;
  const bool is_negative = value.integer(whole) ? whole < 0 : std::signbit(*number(value));
  std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  TextBuilder text(heap);
  text.append(sign, Origin::kTemplate);
  if (spec.zeros || spec.align == '=') {
    const auto size = static_cast<int64_t>(sign.size() + digits.size());
    text.repeat(spec.zeros ? "0" : spec.fill, spec.width - size, Origin::kTemplate);
  }
  text.append(digits, Origin::kTemplate);
  spec.precision = -1;
  append_padded(out, {text.finish()}, spec, '>');
}

/// "%s %(name)d".
class PercentFormat {
 public:
  PercentFormat(Heap& heap, const String& format, const Value& values)
      : heap_(heap), format_(format), values_(values), result_(heap) {
    const Sequence* const sequence = values.sequence();
    is_tuple_ = sequence != nullptr && sequence->kind() == SequenceKind::kTuple;
  }

  Value run() {
    const std::string_view text = format_.scan(heap_);
    std::size_t at = 0;
    while (true) {
      const std::size_t mark = text.find('%', at);
      result_.append(*format_, at, std::min(mark, text.size()));
      if (mark == std::string_view::npos) break;
      at = mark + 1;
      convert(text, at);
    }
    const bool is_left = is_tuple_ ? next_ < values_.sequence()->size()
                                   : next_ == 0 && values_.dictionary() == nullptr && !named_;
    if (is_left) refuse(kType, "not all values of % were formatted");
    return heap_.text(result_);
  }

 private:
  const Value& next() {
    const std::size_t index = next_++;
    if (is_tuple_ && index < values_.sequence()->size()) {
      return values_.sequence()->at(heap_, index);
    }
    if (is_tuple_ || index > 0) refuse(kType, "there are too few values for %");
    return values_;
  }

  const Value& chosen(std::string_view text, std::size_t& at) {
    if (at >= text.size() || text[at] != '(') return values_;
    const std::size_t end = text.find(')', at);
    if (end == std::string_view::npos) refuse(kValue, "a name after % has no end");
    const Dictionary* const dictionary = values_.dictionary();
    if (dictionary == nullptr) refuse(kType, "% with names needs a dict");
    const Value* const found = dictionary->find(heap_, text.substr(at + 1, end - at - 1));
    if (found == nullptr) refuse(kValue, "a name of % is not in the dict");
    at = end + 1;
    named_ = true;
    return *found;
  }

  void convert(std::string_view text, std::size_t& at) {
    heap_.step();
    const std::size_t before = at;
    const Value& by_name = chosen(text, at);
    const bool has_name = at != before;
    Spec spec;
    for (; at < text.size() && std::string_view("-+ #0").find(text[at]) < 5; ++at) {
      if (text[at] == '-') spec.align = '<';
      if (text[at] == '0') spec.zeros = true;
      if (text[at] == '#') spec.alternative = true;
      if (text[at] == '+' || text[at] == ' ') spec.sign = text[at];
    }
    if (spec.align == '<') spec.zeros = false;
    spec.width = read_number(text, at);
    if (at < text.size() && text[at] == '.') spec.precision = read_number(text, ++at);
    if (at >= text.size()) refuse(kValue, "a format with % has no end");
    const char type = text[at++];
    if (type == '%') return result_.append("%", Origin::kTemplate);
    add(has_name ? by_name : next(), type, spec);
  }

  void add(const Value& value, char type, Spec spec) {
    if (type == 's' || type == 'r') {
      const String text = type == 's' ? to_text(heap_, value) : to_repr(heap_, value);
      return append_padded(result_, text, spec, '>');
    }
    if (std::string_view("diuxXoeEfFgG").find(type) == std::string_view::npos) {
      refuse(kValue, fmt::format("the format %{} is not supported", type));
    }
    const bool is_decimal = std::string_view("diu").find(type) != std::string_view::npos;
    if (is_decimal && value.is<LongInteger>()) {
      return append_padded(result_, to_text(heap_, value), spec, '>');
    }
    const auto real = number(value);
    if (!real) refuse(kType, fmt::format("%{} needs a number, found {}", type, type_name(value)));
    spec.type = is_decimal ? 0 : type;
    const bool truncates = is_decimal && value.is<double>();
    append_number(heap_, result_, truncates ? Value(whole_of(*real)) : value, spec);
  }

  Heap& heap_;
  const String& format_;
  const Value& values_;
  bool is_tuple_ = false;
  bool named_ = false;
  std::size_t next_ = 0;
  TextBuilder result_;
};

bool is_align(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

Spec read_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  if (!text.empty()) {
    const std::size_t first = character_at(text, 0).length;
    if (first < text.size() && is_align(text[first])) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      at = first + 1;
    } else if (is_align(text[0])) {
      spec.align = text[at++];
    }
  }
  const auto take = [&](std::string_view among) {
    return at < text.size() && among.find(text[at]) != std::string_view::npos ? text[at++] : '\0';
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternative = take("#") != 0;
  spec.zeros = take("0") != 0 && spec.align == 0;
  spec.width = read_number(text, at);
  spec.commas = take(",") != 0;
  if (spec.zeros && spec.commas) refuse(kValue, "zeros before commas are not supported");
  if (take(".") != 0) spec.precision = read_number(text, at);
  spec.type = take("sdxXobeEfFgG%");
  if (at != text.size()) refuse(kValue, "a format after : is not supported");
  return spec;
}

/// "{} {0} {name.attribute[key]!r:>8}".
class BraceFormat {
 public:
  BraceFormat(Evaluator& evaluator, const String& format, const Arguments& arguments)
      : evaluator_(evaluator), format_(format), arguments_(arguments), result_(evaluator.heap()) {}

  Value run() {
    const std::string_view text = format_.bytes(evaluator_.heap());
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t mark = text.find_first_of("{}", at);
      result_.append(*format_, at, std::min(mark, text.size()));
      if (mark == std::string_view::npos) break;
      at = mark + 1;
      if (at < text.size() && text[at] == text[mark]) {
        evaluator_.heap().step();
        result_.append(*format_, at, at + 1);
        ++at;
        continue;
      }
      const std::size_t end = text.find('}', at);
      if (text[mark] == '}' || end == std::string_view::npos) {
        refuse(kValue, "a brace of a format stands alone");
      }
      add(text.substr(at, end - at));
      at = end + 1;
    }
    return evaluator_.heap().text(result_);
  }

 private:
  void add(std::string_view field) {
    Heap& heap = evaluator_.heap();
    const std::size_t colon = std::min(field.find(':'), field.size());
    std::string_view name = field.substr(0, colon);
    const std::string_view after = field.substr(std::min(colon + 1, field.size()));
    if (after.find('{') != std::string_view::npos) {
      refuse(kUnsupported, "a field inside the format of a field is not supported");
    }
    const Spec spec = read_spec(after);
    heap.step();
    const std::size_t mark = name.find('!');
    const std::string_view conversion = mark == std::string_view::npos ? "" : name.substr(mark + 1);
    if (!conversion.empty() && conversion != "r" && conversion != "s") {
      refuse(kValue, "a conversion of a format is neither !r nor !s");
    }
    const Value value = value_of(name.substr(0, mark));
    const bool is_plain = value.is<bool>() || value.is<LongInteger>();
    if (conversion.empty() && is_numeric(value) && !is_plain && spec.type != 's') {
      return append_number(heap, result_, value, spec);
    }
    if (value.is_undefined() && conversion.empty()) return;
    append_padded(result_, conversion == "r" ? to_repr(heap, value) : to_text(heap, value), spec,
                  value.is<LongInteger>() ? '>' : '<');
  }

  Value value_of(std::string_view name) {
    std::size_t at = std::min(name.find_first_of(".["), name.size());
    Value value = first_of(name.substr(0, at));
    while (at < name.size()) {
      const bool is_item = name[at] == '[';
      const std::size_t end =
          std::min(is_item ? name.find(']', at) : name.find_first_of(".[", at + 1), name.size());
      const std::string_view key = name.substr(at + 1, end - at - 1);
      value = attribute_of(evaluator_, value, key);
      at = is_item ? std::min(end + 1, name.size()) : end;
    }
    return value;
  }

  Value first_of(std::string_view name) {
    std::size_t index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_number = error == std::errc() && end == name.data() + name.size();
    if (name.empty()) index = next_++;
    if (name.empty() || is_number) {
      if (index < arguments_.positional.size()) return arguments_.positional[index];
      refuse(kValue, "there are too few values for a format");
    }
    evaluator_.heap().compare_names(arguments_.named.size(), name);
    const auto found = std::ranges::find_if(arguments_.named, [&](const auto& argument) {
      return std::string_view(argument.first) == name;
    });
    if (found != arguments_.named.end()) return found->second;
    refuse(kValue, "a name of a format has no value");
  }

  Evaluator& evaluator_;
  const String& format_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
  TextBuilder result_;
};

}  // namespace

int64_t whole_of(double value) {
  constexpr double kLimitOfWhole = 9223372036854775808.0;
  if (!(value > -kLimitOfWhole && value < kLimitOfWhole)) {
    refuse(kValue, "the number is too large: integers have 64 bits");
  }
  return static_cast<int64_t>(value);
}

Value percent_format(Heap& heap, const String& format, const Value& values) {
  return PercentFormat(heap, format, values).run();
}

Value brace_format(Evaluator& evaluator, const String& format, const Arguments& arguments) {
  return BraceFormat(evaluator, format, arguments).run();
}

}  // namespace subbyte::jinja
