#pragma once
// What Python's operators and built-in functions do with values. What Python raises is a Refusal.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/heap.h"
#include "jinja/value.h"

namespace subbyte::jinja {

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

/// "str", "dict", "NoneType"
std::string_view type_name(const Value& value);
bool truth(const Value& value);
bool is_hashable(const Value& value);
/// Code jinja.type.
void check_hashable(const Value& value);
[[noreturn]] void refuse_undefined(const Undefined& undefined);
[[noreturn]] void refuse_long_integer();

bool equal(Meter& meter, const Value& a, const Value& b);
/// An order comparison. Code jinja.type for values without an order.
bool less(Meter& meter, const Value& a, const Value& b);
bool compare(Meter& meter, Operator operation, const Value& a, const Value& b);
bool contains(Meter& meter, const Value& container, const Value& item);
/// Less than, equal to, or greater than 0. Any order of values that can be keys, in which those
/// that are equal are equal.
int order_of_keys(Meter& meter, const Value& a, const Value& b);
int order_of_keys(Meter& meter, const Value& a, std::string_view b);

Value arithmetic(Heap& heap, Operator operation, const Value& a, const Value& b);
Value negative(const Value& value);
/// A number as a double, where it is one. Code jinja.value for integers of more than 64 bits.
std::optional<double> number(const Value& value);
bool is_numeric(const Value& value);
/// Sums and differences end at the ends of 64 bits, for places and widths, which are cut anyway.
int64_t clamped_sum(int64_t a, int64_t b);
int64_t clamped_difference(int64_t a, int64_t b);

/// The items of what can be iterated over; an iterator has none afterwards. Code jinja.type.
Values items_of(Heap& heap, const Value& value);
bool is_iterable(const Value& value);
/// nullopt where Python's len() has none.
std::optional<std::size_t> length_of(Meter& meter, const Value& value);
/// An index of Python's in a sequence of `size` items; nullopt outside of it.
std::optional<std::size_t> index_in(int64_t index, std::size_t size);
/// One end of a part of Python's, in [0, size].
std::size_t place_in(int64_t index, std::size_t size);
/// value[key] with the errors of Python as Undefined; what has no such item may have a method of
/// the name.
Value item_of(Evaluator& evaluator, const Value& value, const Value& key);
/// value.name
Value attribute_of(Evaluator& evaluator, const Value& value, std::string_view name);
/// value[begin:end:step]; None stands for what is left out.
Value slice_of(Heap& heap, const Value& value, const Value& begin, const Value& end,
               const Value& step);

/// Python's str() and repr(). Text of an input is of an input in them, too.
String to_text(Heap& heap, const Value& value);
String to_repr(Heap& heap, const Value& value);
/// The beginning of what it is for a message.
std::string shown(Heap& heap, const Value& value);
std::string float_text(double value);
/// Python's int() of a float. Code jinja.value for those that no integer of 64 bits is.
int64_t whole_of(double value);

struct JsonStyle {
  bool ascii = false;
  std::optional<String> indent;
  std::optional<String> item_separator;  // ", "
  std::optional<String> key_separator;   // ": "
  bool sort_keys = false;
};
/// json.dumps().
Value to_json(Heap& heap, const Value& value, const JsonStyle& style);

/// format % values, and the sandbox's format.format().
Value percent_format(Heap& heap, const String& format, const Value& values);
Value brace_format(Evaluator& evaluator, const String& format, const Arguments& arguments);

/// Text with &, <, >, ' and " escaped for HTML; Markup as it is.
Value escaped(Heap& heap, const String& text);

}  // namespace subbyte::jinja
