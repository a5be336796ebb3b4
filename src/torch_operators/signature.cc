#include "torch_operators/signature.h"

#include <algorithm>
#include <stdexcept>

namespace subbyte::torch_operators {
namespace {

using Texts = std::vector<std::string_view>;

/// Parts between separators that are in no brackets.
Texts split(std::string_view text, std::string_view separator) {
  Texts parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (std::string_view("{[(").find(text[i]) != std::string_view::npos) ++depth;
    if (std::string_view("}])").find(text[i]) != std::string_view::npos) --depth;
    if (depth > 0 || !text.substr(i).starts_with(separator)) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + separator.size();
  }
  if (begin < text.size()) parts.push_back(text.substr(begin));
  return parts;
}

/// Takes "{...}" out of a text, and gives what is in it.
std::string_view take_note(std::string& text, std::string_view from) {
  const std::size_t begin = from.find('{');
  text = from;
  if (begin == std::string_view::npos) return {};
  const std::size_t end = from.find('}', begin);
  text.erase(begin, end - begin + 1);
  return from.substr(begin + 1, end - begin - 1);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int64_t number_of(std::string_view word) {
  const std::size_t power = word.find('^');
  if (power == std::string_view::npos) return std::stoll(std::string(word));
  return int64_t{1} << std::stoll(std::string(word.substr(power + 1)));
}

class NoteReader {
 public:
  explicit NoteReader(Signature& signature) : signature_(signature) {}

  Note read(std::string_view text, ArgumentKind kind) {
    if (kind == ArgumentKind::kTensor || kind == ArgumentKind::kType) return of_tensor(text);
    Note note;
    if (kind == ArgumentKind::kIntegers) {
      note.sizes = sizes(text);
    } else if (text.ends_with("=codes")) {
      give_name(text.substr(0, text.find('=')));
    } else {
      note.is_range = text.find("..") != std::string_view::npos;
      for (const std::string_view word : split(text, note.is_range ? ".." : "|")) {
        note.words.emplace_back(word);
        if (kind == ArgumentKind::kInteger) note.numbers.push_back(number_of(word));
      }
    }
    return note;
  }

 private:
  int give_name(std::string_view name) {
    if (const int place = signature_.place_of(name); place >= 0) return place;
    signature_.names.emplace_back(name);
    return static_cast<int>(signature_.names.size()) - 1;
  }

  Size size(std::string_view text) {
    if (text == "_") return {};
    if (text == "...") return {Size::Kind::kBatch, -1, {}};
    if (text.ends_with('=')) {
      return {Size::Kind::kNamed, give_name(text.substr(0, text.size() - 1)), {}};
    }
    if (text.find_first_of(" (") == std::string_view::npos && !is_digit(text[0])) {
      return {Size::Kind::kIs, give_name(text), {}};
    }
    return {Size::Kind::kExpression, -1, expression(text)};
  }
  Expression expression(std::string_view text) {
    return Expression(text, [this](std::string_view name) { return give_name(name); });
  }
  std::vector<Size> sizes(std::string_view text) {
    std::vector<Size> all;
    for (const std::string_view part : split(text, ", ")) all.push_back(size(part));
    return all;
  }

  Note of_tensor(std::string_view text) {
    Note note;
    constexpr std::string_view kAnywhere = "anywhere ";
    if (text.starts_with(kAnywhere)) {
      note.is_anywhere = true;
      text.remove_prefix(kAnywhere.size());
    }
    const std::size_t end = std::min(text.find(' '), text.size());
    for (const std::string_view word : split(text.substr(0, end), "|")) {
      if (word == "any") continue;
      const std::vector<TypeNumber> types = types_by(word);
      note.types.insert(note.types.end(), types.begin(), types.end());
      if (types.empty()) note.type_of = give_name(word);
    }
    if (end == text.size()) return note;
    std::string_view shape = text.substr(end + 1);
    if (const std::size_t at = shape.find(" @ "); at != std::string_view::npos) {
      note.choice = expression(shape.substr(at + 3));
      shape = shape.substr(0, at);
    }
    note.has_sizes = true;
    note.is_count = shape.starts_with('(');
    shape = shape.substr(1, shape.size() - 2);
    if (note.is_count) {
      const std::size_t unit = shape.find(": ");
      note.unit = unit == std::string_view::npos ? "numbers" : shape.substr(unit + 2);
      shape = shape.substr(0, unit);
    }
    note.sizes = sizes(shape);
    return note;
  }

  Signature& signature_;
};

ArgumentKind kind_of(std::string_view type) {
  if (type.starts_with("Tensor")) return ArgumentKind::kTensor;
  if (type == "int[]") return ArgumentKind::kIntegers;
  if (type.starts_with("int")) return ArgumentKind::kInteger;
  if (type.starts_with("float")) return ArgumentKind::kNumber;
  if (type.starts_with("bool")) return ArgumentKind::kBoolean;
  if (type.starts_with("str")) return ArgumentKind::kText;
  if (type.starts_with("ScalarType")) return ArgumentKind::kType;
  throw std::logic_error("not a type of an argument: " + std::string(type));
}

}  // namespace

int Signature::place_of(std::string_view of) const {
  const auto found = std::ranges::find(names, of);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

Signature Signature::parse(std::string_view text) {
  Signature made;
  made.text = text;
  const std::size_t begin = text.find('(');
  const std::size_t arrow = text.rfind(") -> ");
  made.name = text.substr(0, begin);
  made.schema = made.name + '(';
  Texts notes;
  const Texts parts = split(text.substr(begin + 1, arrow - begin - 1), ", ");
  for (const std::string_view part : parts) {
    std::string plain;
    const std::string_view note = take_note(plain, part);
    made.schema += (made.schema.ends_with('(') ? "" : ", ") + plain;
    if (plain == "*") continue;
    const std::size_t blank = plain.find(' ');
    const std::string type = plain.substr(0, blank);
    std::string name = plain.substr(blank + 1, plain.find('=') - blank - 1);
    made.names.push_back(name);
    if (type == "Tensor(a!)" && name == "out") made.out = static_cast<int>(notes.size());
    made.arguments.push_back(
        {std::move(name), kind_of(type), type.ends_with('?'), !note.empty(), {}});
    notes.push_back(note);
  }
  made.names.emplace_back("rows");
  NoteReader reader(made);
  for (std::size_t i = 0; i < notes.size(); ++i) {
    if (notes[i].empty()) continue;
    made.arguments[i].note = reader.read(notes[i], made.arguments[i].kind);
  }
  std::string_view results = text.substr(arrow + 5);
  std::string plain;
  made.schema += ") -> ";
  if (results.starts_with('(')) results = results.substr(1, results.size() - 2);
  const Texts all = split(results, ", ");
  for (const std::string_view one : all) {
    made.results.push_back(reader.read(take_note(plain, one), ArgumentKind::kTensor));
  }
  std::string tensors;
  for (std::size_t i = 0; i < all.size(); ++i) tensors += i == 0 ? "Tensor" : ", Tensor";
  made.schema += all.size() == 1 ? tensors : '(' + tensors + ')';
  return made;
}

}  // namespace subbyte::torch_operators
