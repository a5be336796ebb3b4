#pragma once
// The methods of Python's values, and the binding of arguments to names.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/characters.h"
#include "jinja/heap.h"
#include "jinja/value.h"

namespace subbyte::jinja {

/// Tells what a name after a dot means for values of Python's own types.
enum class Member : uint8_t { kNone, kMethod, kUnsafe };
Member member_of(const Value& value, std::string_view name);

/// Calls a method that member_of() knows.
Value call_method(Evaluator& evaluator, const Value& self, std::string_view name,
                  const Arguments& arguments);
Value call_text_method(Evaluator& evaluator, const String& self, std::string_view name,
                       const Arguments& arguments);
/// Says whether a text answers a question such as isdigit; nullopt where it is no question.
std::optional<bool> answer_of_text(std::string_view name, std::string_view text);

/// The lines of a text with their breaks.
List<Range> lines_of(Meter& meter, std::string_view text);
/// `line` without the breaks at its end.
Range without_break(std::string_view text, Range line);
/// strip, lstrip, rstrip: of white space, or of the characters of `set`.
Value stripped(Heap& heap, const String& text, const String* set, bool left, bool right);
/// `text` with the first `most` places of `old` replaced; all for a negative number.
Value replaced(Heap& heap, const String& text, const String& old, const String& replacement,
               int64_t most);
/// ljust, rjust, center, zfill.
Value padded(Heap& heap, const String& text, std::string_view method, int64_t width,
             std::string_view fill);
/// The text with the letters of upper, lower, title, capitalize, swapcase or casefold.
bool changes_letters(std::string_view method);
Value with_letters(Heap& heap, const String& text, std::string_view method);

struct Methods {
  std::string_view type;
  std::span<const std::string_view> names;
};
/// Those of each type.
std::span<const Methods> all_methods();

/// A method that is taken as a value.
class BoundMethod : public Object {
 public:
  BoundMethod(Meter& meter, Value self, std::string_view name)
      : self_(std::move(self)), name_(name, meter) {}
  std::string_view type() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Evaluator& evaluator, const Arguments& arguments) override {
    return call_method(evaluator, self_, name_, arguments);
  }

 private:
  Value self_;
  Bytes name_;
};

/// Arguments by the names of parameters, of which the first `required` must be there.
class Bound {
 public:
  Bound(std::string_view function, const Arguments& arguments,
        std::span<const std::string_view> names, std::size_t required);

  /// nullptr where the call leaves it out.
  const Value* operator[](std::size_t index) const { return values_[index]; }
  bool has(std::size_t index) const { return values_[index] != nullptr; }
  /// The same, where None counts as left out, too.
  bool says(std::size_t index) const { return has(index) && !values_[index]->is_none(); }
  /// Code jinja.type for values of other types.
  int64_t integer(std::size_t index, int64_t otherwise) const;
  bool truth(std::size_t index, bool otherwise) const;
  const String& text(std::size_t index) const;

 private:
  [[noreturn]] void refuse_type(std::size_t index, std::string_view expected) const;

  std::string_view function_;
  std::span<const std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace subbyte::jinja
