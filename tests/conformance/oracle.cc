#include "conformance/oracle.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace subbyte::conformance {
namespace {

__extension__ using Wide = unsigned __int128;

struct Refused {};  // thrown: nothing here is about speed

struct Value {
  char kind = '?';                // { [ " 0 t f n
  std::vector<std::string> keys;  // of an object, for the elements of the same index
  std::vector<Value> elements;
  std::string text;  // of a string, unescaped; of a number, as written
};

/// Recursive descent. A valid header nests three deep.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Value parse() {
    Value value = parse_value(0);
    skip_spaces();
    require(at_ == text_.size());
    return value;
  }

 private:
  static void require(bool condition) {
    if (!condition) throw Refused();
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char next() {
    require(at_ < text_.size());
    return text_[at_++];
  }
  void skip_spaces() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(peek()) != std::string_view::npos) {
      ++at_;
    }
  }
  bool skip(char c) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  Value parse_value(int depth) {
    require(depth < 4);
    skip_spaces();
    Value value;
    value.kind = peek();
    if (skip('{')) {
      if (skip('}')) return value;
      do {
        skip_spaces();
        std::string key = parse_string();
        require(skip(':'));
        value.keys.push_back(std::move(key));
        value.elements.push_back(parse_value(depth + 1));
      } while (skip(','));
      require(skip('}'));
    } else if (skip('[')) {
      if (skip(']')) return value;
      do {
        value.elements.push_back(parse_value(depth + 1));
      } while (skip(','));
      require(skip(']'));
    } else if (peek() == '"') {
      value.text = parse_string();
    } else if (peek() == '-' || is_digit(peek())) {
      value.kind = '0';
      value.text = parse_number();
    } else {
      const std::string_view word = peek() == 't' ? "true" : peek() == 'f' ? "false" : "null";
      require(text_.substr(at_, word.size()) == word);
      at_ += word.size();
    }
    return value;
  }

  std::string parse_number() {
    const std::size_t start = at_;
    const auto digits = [&] {
      require(is_digit(peek()));
      while (is_digit(peek())) ++at_;
    };
    if (peek() == '-') ++at_;
    if (peek() == '0') {
      ++at_;
    } else {
      digits();
    }
    if (peek() == '.') {
      ++at_;
      digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      digits();
    }
    return std::string(text_.substr(start, at_ - start));
  }

  unsigned parse_hex4() {
    unsigned value = 0;
    for (int i = 0; i < 4; ++i) {
      const auto digit = std::string_view("0123456789abcdefABCDEF").find(next());
      require(digit != std::string_view::npos);
      value = value * 16 + static_cast<unsigned>(digit < 16 ? digit : digit - 6);
    }
    return value;
  }

  std::string parse_string() {
    require(next() == '"');
    std::string text;
    for (char c = next(); c != '"'; c = next()) {
      require(static_cast<unsigned char>(c) >= 0x20);
      if (c != '\\') {
        text += c;
        continue;
      }
      c = next();
      if (c != 'u') {
        const auto which = std::string_view("\"\\/bfnrt").find(c);
        require(which != std::string_view::npos);
        text += "\"\\/\b\f\n\r\t"[which];
        continue;
      }
      unsigned code_point = parse_hex4();
      require(code_point < 0xDC00 || code_point > 0xDFFF);
      if (code_point >= 0xD800 && code_point <= 0xDBFF) {
        require(next() == '\\' && next() == 'u');
        const unsigned low = parse_hex4();
        require(low >= 0xDC00 && low <= 0xDFFF);
        code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
      }
      append_utf8(text, code_point);
    }
    return text;
  }

  static void append_utf8(std::string& text, unsigned code_point) {
    const auto add = [&](unsigned byte) { text += static_cast<char>(byte); };
    if (code_point < 0x80) return add(code_point);
    if (code_point < 0x800) {
      add(0xC0 | code_point >> 6);
    } else {
      if (code_point < 0x10000) {
        add(0xE0 | code_point >> 12);
      } else {
        add(0xF0 | code_point >> 18);
        add(0x80 | (code_point >> 12 & 0x3F));
      }
      add(0x80 | (code_point >> 6 & 0x3F));
    }
    add(0x80 | (code_point & 0x3F));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// Decodes and compares with the ranges of each length.
bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    if (lead < 0x80) continue;
    const int tails = lead >> 5 == 6 ? 1 : lead >> 4 == 14 ? 2 : lead >> 3 == 30 ? 3 : 0;
    if (tails == 0) return false;
    unsigned code_point = lead & (0x3Fu >> tails);
    for (int tail = 0; tail < tails; ++tail) {
      if (i == text.size() || (text[i] & 0xC0) != 0x80) return false;
      code_point = code_point << 6 | (static_cast<unsigned char>(text[i++]) & 0x3Fu);
    }
    const unsigned least[] = {0, 0x80, 0x800, 0x10000};
    if (code_point < least[tails] || code_point > 0x10FFFF) return false;
    if (code_point >= 0xD800 && code_point < 0xE000) return false;
  }
  return true;
}

uint64_t to_u64(const Value& value) {
  if (value.kind != '0' || value.text.size() > 20) throw Refused();
  Wide number = 0;
  for (const char c : value.text) {
    if (c < '0' || c > '9') throw Refused();
    number = number * 10 + static_cast<unsigned>(c - '0');
  }
  if (number >> 64 != 0) throw Refused();
  return static_cast<uint64_t>(number);
}

struct Range {
  Wide begin;
  Wide end;
  auto operator<=>(const Range&) const = default;
};

Range check_entry(const Value& entry) {
  static const std::map<std::string, unsigned> kBits = {
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8},     {"F8_E8M0", 8}, {"I16", 16},
      {"F8_E4M3FNUZ", 8}, {"U16", 16},    {"F8_E5M2FNUZ", 8}, {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},    {"F32", 32},        {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64}};
  if (entry.kind != '{' || entry.keys.size() != 3) throw Refused();
  std::map<std::string, Value> fields;
  for (std::size_t i = 0; i < 3; ++i) fields[entry.keys[i]] = entry.elements[i];
  const Value& dtype = fields["dtype"];
  const Value& shape = fields["shape"];
  const Value& offsets = fields["data_offsets"];
  if (fields.size() != 3 || dtype.kind != '"' || shape.kind != '[' || offsets.kind != '[' ||
      shape.elements.size() > 16 || offsets.elements.size() != 2 || !kBits.contains(dtype.text)) {
    throw Refused();
  }
  Wide bits = kBits.at(dtype.text);
  bool empty = false;
  for (const Value& element : shape.elements) {
    const uint64_t dim = to_u64(element);
    empty |= dim == 0;
    if (dim != 0) bits *= dim;  // below 2^64 times below 2^64
    if (bits >> 64 != 0) throw Refused();
  }
  if (empty) bits = 0;
  const Range range{to_u64(offsets.elements[0]), to_u64(offsets.elements[1])};
  if (bits % 8 != 0 || range.end < range.begin || (range.end - range.begin) * 8 != bits) {
    throw Refused();
  }
  return range;
}

void check_file(std::string_view file) {
  if (file.size() < 8) throw Refused();
  Wide length = 0;
  for (int i = 7; i >= 0; --i) length = length * 256 + static_cast<unsigned char>(file[i]);
  if (length == 0 || length > 100'000'000 || length + 8 > file.size()) throw Refused();
  const std::string_view header = file.substr(8, static_cast<std::size_t>(length));
  if (!is_utf8(header)) throw Refused();
  const Value root = Parser(header).parse();
  if (root.kind != '{') throw Refused();
  std::set<std::string> names;
  std::multiset<Range> ranges;
  for (std::size_t i = 0; i < root.keys.size(); ++i) {
    const std::string& name = root.keys[i];
    const Value& value = root.elements[i];
    if (!names.insert(name).second) throw Refused();
    if (name == "__metadata__") {
      if (value.kind != '{' && value.kind != 'n') throw Refused();
      const std::set<std::string> keys(value.keys.begin(), value.keys.end());
      if (keys.size() != value.keys.size()) throw Refused();
      for (const Value& text : value.elements) {
        if (text.kind != '"') throw Refused();
      }
      continue;
    }
    if (name.size() > 65536 || name.find('\0') != std::string::npos) throw Refused();
    ranges.insert(check_entry(value));
  }
  Wide covered = 0;
  for (const Range& range : ranges) {
    if (range.begin != covered) throw Refused();
    covered = range.end;
  }
  if (covered + 8 + length != file.size()) throw Refused();
}

}  // namespace

bool oracle_accepts(std::string_view file) {
  try {
    check_file(file);
    return true;
  } catch (const Refused&) {
    return false;
  }
}

}  // namespace subbyte::conformance
