// Equality and orders. Numbers are compared as they are, also those of different types.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jinja/operations.h"
#include "jinja/search.h"

namespace subbyte::jinja {
namespace {

template <typename T>
int order_of(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

int order_of_texts(Meter& meter, const Text& a, const Text& b) {
  const std::size_t shared = std::min(a.size(), b.size());
  const int order = a.scan(meter, 0, shared).compare(b.scan(meter, 0, shared));
  return order != 0 ? order : order_of(a.size(), b.size());
}

bool are_equal_texts(Meter& meter, const Text& a, const Text& b) {
  return &a == &b || (a.size() == b.size() && a.scan(meter) == b.scan(meter));
}

/// Of digits that may have a sign.
int order_of_digits(std::string_view a, std::string_view b) {
  const bool is_negative = a[0] == '-';
  if (is_negative != (b[0] == '-')) return is_negative ? -1 : 1;
  const int order = a.size() != b.size() ? order_of(a.size(), b.size()) : a.compare(b);
  return is_negative ? -order : order;
}

int order_of_long(Meter& meter, const LongInteger& a, const Value& b) {
  const std::string_view digits = a.digits->bytes(meter);
  const int sign = digits[0] == '-' ? -1 : 1;
  if (const auto* const other = b.as<LongInteger>()) {
    return order_of_digits(digits, other->digits->bytes(meter));
  }
  const auto* const real = b.as<double>();
  if (real == nullptr || std::abs(*real) < 0x1p63) return sign;
  if (std::isinf(*real)) return *real < 0 ? 1 : -1;
  meter.step(std::numeric_limits<double>::max_exponent10);
  return order_of_digits(digits, fmt::format("{:.0f}", *real));
}

int order_of_whole(int64_t a, double b) {
  if (b >= 0x1p63) return -1;
  if (b < -0x1p63) return 1;
  const auto whole = static_cast<int64_t>(b);
  return a != whole ? order_of(a, whole) : order_of(0.0, b - static_cast<double>(whole));
}

bool is_nan(const Value& value) {
  return value.is<double>() && std::isnan(*value.as<double>());
}

/// Of numbers that are none of them NaN.
int order_of_numbers(Meter& meter, const Value& a, const Value& b) {
  if (const auto* const digits = a.as<LongInteger>()) return order_of_long(meter, *digits, b);
  if (const auto* const digits = b.as<LongInteger>()) return -order_of_long(meter, *digits, a);
  int64_t left = 0;
  int64_t right = 0;
  const bool a_is_whole = a.integer(left);
  const bool b_is_whole = b.integer(right);
  if (a_is_whole && b_is_whole) return order_of(left, right);
  if (a_is_whole) return order_of_whole(left, *b.as<double>());
  if (b_is_whole) return -order_of_whole(right, *a.as<double>());
  return order_of(*a.as<double>(), *b.as<double>());
}

bool have_same_type(const Sequence& a, const Sequence& b) {
  return a.kind() == b.kind() || (a.is_tuple() && b.is_tuple());
}

bool equal_sequences(Meter& meter, const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  if (!have_same_type(a, b) || a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equal(meter, a.at(meter, i), b.at(meter, i))) return false;
  }
  return true;
}

bool equal_dictionaries(Meter& meter, const Dictionary& a, const Dictionary& b) {
  if (&a == &b) return true;
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries(meter)) {
    const Value* const other = b.find(meter, key);
    if (other == nullptr || !equal(meter, value, *other)) return false;
  }
  return true;
}

bool holds(Operator operation, int order) {
  switch (operation) {
    case Operator::kLess:
      return order < 0;
    case Operator::kLessEqual:
      return order <= 0;
    case Operator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

bool order_sequences(Meter& meter, Operator operation, const Sequence& a, const Sequence& b) {
  const std::size_t shared = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < shared; ++i) {
    const Value& left = a.at(meter, i);
    const Value& right = b.at(meter, i);
    if (!equal(meter, left, right)) return compare(meter, operation, left, right);
  }
  return holds(operation, order_of(a.size(), b.size()));
}

bool order(Meter& meter, Operator operation, const Value& a, const Value& b) {
  for (const Value* const value : {&a, &b}) {
    if (const auto* const undefined = value->as<Undefined>()) refuse_undefined(*undefined);
  }
  if (is_numeric(a) && is_numeric(b)) {
    return !is_nan(a) && !is_nan(b) && holds(operation, order_of_numbers(meter, a, b));
  }
  if (a.string() != nullptr && b.string() != nullptr) {
    return holds(operation, order_of_texts(meter, **a.string(), **b.string()));
  }
  const Sequence* const s = a.sequence();
  const Sequence* const t = b.sequence();
  const bool has_order = s != nullptr && t != nullptr && have_same_type(*s, *t) &&
                         (s->is_tuple() || s->kind() == SequenceKind::kList);
  if (has_order) return order_sequences(meter, operation, *s, *t);
  refuse(kType, fmt::format("{} and {} have no order", type_name(a), type_name(b)));
}

/// A number for each kind of keys that are never equal to those of another.
std::size_t kind_of_key(const Value& key) {
  constexpr std::size_t kNumbers = std::variant_size_v<Value::State>;
  if (is_numeric(key)) return kNumbers;
  const Sequence* const sequence = key.sequence();
  const bool is_range = sequence != nullptr && sequence->kind() == SequenceKind::kRange;
  return is_range ? kNumbers + 1 : key.state().index();
}

int order_of_items(Meter& meter, const Sequence& a, const Sequence& b) {
  if (&a == &b) return 0;
  const std::size_t shared = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < shared; ++i) {
    const int order = order_of_keys(meter, a.at(meter, i), b.at(meter, i));
    if (order != 0) return order;
  }
  return order_of(a.size(), b.size());
}

}  // namespace

std::string_view type_name(const Value& value) {
  struct Names {
    std::string_view operator()(const Undefined&) const { return "Undefined"; }
    std::string_view operator()(const None&) const { return "NoneType"; }
    std::string_view operator()(bool) const { return "bool"; }
    std::string_view operator()(int64_t) const { return "int"; }
    std::string_view operator()(double) const { return "float"; }
    std::string_view operator()(const LongInteger&) const { return "int"; }
    std::string_view operator()(const String&) const { return "str"; }
    std::string_view operator()(const std::shared_ptr<const Sequence>& sequence) const {
      constexpr std::string_view kNames[] = {"list",      "tuple",       "tuple",     "range",
                                             "dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<std::size_t>(sequence->kind())];
    }
    std::string_view operator()(const std::shared_ptr<const Dictionary>&) const { return "dict"; }
    std::string_view operator()(const std::shared_ptr<Iterator>&) const { return "generator"; }
    std::string_view operator()(const Object* object) const { return object->type(); }
  };
  return std::visit(Names(), value.state());
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is<LongInteger>()) return true;
  if (const auto x = number(value)) return *x != 0;
  if (const String* const text = value.string()) return !(*text)->empty();
  if (const Sequence* const sequence = value.sequence()) return !sequence->empty();
  if (const Dictionary* const dictionary = value.dictionary()) return !dictionary->empty();
  return true;
}

bool is_numeric(const Value& value) {
  return value.is<int64_t>() || value.is<double>() || value.is<bool>() || value.is<LongInteger>();
}

bool is_hashable(const Value& value) {
  const Sequence* const sequence = value.sequence();
  return value.dictionary() == nullptr && (sequence == nullptr || sequence->is_hashable());
}

void check_hashable(const Value& value) {
  if (is_hashable(value)) return;
  const Sequence* const sequence = value.sequence();
  const bool is_inside = sequence != nullptr && sequence->is_tuple();
  refuse(kType, fmt::format("a {}{} is no key of a dict", type_name(value),
                            is_inside ? " of what is none" : ""));
}

void refuse_undefined(const Undefined& undefined) {
  refuse(undefined.is_unsafe ? kUnsafeUse : kUndefined,
         undefined.why ? std::string(*undefined.why) : "the value is undefined");
}

bool equal(Meter& meter, const Value& a, const Value& b) {
  meter.step();
  if (is_numeric(a) && is_numeric(b)) {
    return !is_nan(a) && !is_nan(b) && order_of_numbers(meter, a, b) == 0;
  }
  if (a.state().index() != b.state().index()) return false;
  if (const String* const text = a.string()) return are_equal_texts(meter, **text, **b.string());
  if (const Sequence* const list = a.sequence()) {
    return equal_sequences(meter, *list, *b.sequence());
  }
  if (const Dictionary* const dictionary = a.dictionary()) {
    return equal_dictionaries(meter, *dictionary, *b.dictionary());
  }
  if (a.iterator() != nullptr) return a.iterator() == b.iterator();
  if (a.object() != nullptr) return a.object() == b.object();
  return a.is_undefined() || a.is_none();
}

int order_of_keys(Meter& meter, const Value& a, std::string_view b) {
  meter.step();
  const String* const text = a.string();
  if (text == nullptr) return kind_of_key(a) < kind_of_key(Value(String())) ? -1 : 1;
  const std::size_t shared = std::min((*text)->size(), b.size());
  const int order = (*text)->scan(meter, 0, shared).compare(b.substr(0, shared));
  return order != 0 ? order : order_of((*text)->size(), b.size());
}

int order_of_keys(Meter& meter, const Value& a, const Value& b) {
  meter.step();
  if (kind_of_key(a) != kind_of_key(b)) return order_of(kind_of_key(a), kind_of_key(b));
  if (is_nan(a) || is_nan(b)) return order_of(is_nan(b), is_nan(a));
  if (is_numeric(a)) return order_of_numbers(meter, a, b);
  if (a.string() != nullptr) return order_of_texts(meter, **a.string(), **b.string());
  if (a.sequence() != nullptr) return order_of_items(meter, *a.sequence(), *b.sequence());
  if (a.object() != nullptr) return order_of(a.object(), b.object());
  return order_of(a.iterator(), b.iterator());
}

bool less(Meter& meter, const Value& a, const Value& b) {
  meter.step();
  return order(meter, Operator::kLess, a, b);
}

bool compare(Meter& meter, Operator operation, const Value& a, const Value& b) {
  meter.step();
  switch (operation) {
    case Operator::kEqual:
      return equal(meter, a, b);
    case Operator::kNotEqual:
      return !equal(meter, a, b);
    case Operator::kIn:
      return contains(meter, b, a);
    case Operator::kNotIn:
      return !contains(meter, b, a);
    default:
      return order(meter, operation, a, b);
  }
}

bool contains(Meter& meter, const Value& container, const Value& item) {
  if (const String* const text = container.string()) {
    const String* const wanted = item.string();
    if (wanted == nullptr) {
      refuse(kType, fmt::format("only a str may be in a str, not {}", type_name(item)));
    }
    if ((*wanted)->size() > (*text)->size()) return false;
    Search search(meter, text->scan(meter), wanted->scan(meter));
    return search.next(0) != Search::kNowhere;
  }
  if (const Dictionary* const dictionary = container.dictionary()) {
    return dictionary->find(meter, item) != nullptr;
  }
  if (Iterator* const iterator = container.iterator()) {
    while (const Value* const next = iterator->next(meter)) {
      if (equal(meter, *next, item)) return true;
    }
    return false;
  }
  if (const Sequence* const sequence = container.sequence()) {
    for (std::size_t i = 0; i < sequence->size(); ++i) {
      if (equal(meter, sequence->at(meter, i), item)) return true;
    }
    return false;
  }
  if (container.is_undefined()) return false;
  refuse(kType, fmt::format("a value of the type {} contains nothing", type_name(container)));
}

}  // namespace subbyte::jinja
