#include <fmt/format.h>

#include <algorithm>

#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

bool is_tuple(const Sequence& sequence) {
  return sequence.kind == SequenceKind::kTuple || sequence.kind == SequenceKind::kGroup;
}

bool have_same_type(const Sequence& a, const Sequence& b) {
  return a.kind == b.kind || (is_tuple(a) && is_tuple(b));
}

[[noreturn]] void refuse_undefined(const Undefined& undefined) {
  refuse(undefined.is_unsafe ? kUnsafeUse : kUndefined,
         undefined.why ? *undefined.why : "the value is undefined");
}

bool equal_sequences(Heap& heap, const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  if (!have_same_type(a, b) || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(heap, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool equal_dictionaries(Heap& heap, const Dictionary& a, const Dictionary& b) {
  if (&a == &b) return true;
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* const other = find(heap, b, key);
    if (other == nullptr || !equal(heap, value, *other)) return false;
  }
  return true;
}

template <typename T>
bool ordered(Operator operation, const T& a, const T& b) {
  switch (operation) {
    case Operator::kLess:
      return a < b;
    case Operator::kLessEqual:
      return a <= b;
    case Operator::kGreater:
      return a > b;
    default:
      return a >= b;
  }
}

bool order_sequences(Heap& heap, Operator operation, const Sequence& a, const Sequence& b) {
  const std::size_t shared = std::min(a.items.size(), b.items.size());
  for (std::size_t i = 0; i < shared; ++i) {
    if (!equal(heap, a.items[i], b.items[i])) {
      return compare(heap, operation, a.items[i], b.items[i]);
    }
  }
  return ordered(operation, a.items.size(), b.items.size());
}

bool order(Heap& heap, Operator operation, const Value& a, const Value& b) {
  for (const Value* const value : {&a, &b}) {
    if (const auto* const undefined = value->as<Undefined>()) refuse_undefined(*undefined);
  }
  int64_t left = 0;
  int64_t right = 0;
  if (a.integer(left) && b.integer(right)) return ordered(operation, left, right);
  const auto x = number(a);
  const auto y = number(b);
  if (x && y) return ordered(operation, *x, *y);
  if (a.string() != nullptr && b.string() != nullptr) {
    heap.take_bytes(0);
    return ordered(operation, a.string()->bytes().compare(b.string()->bytes()), 0);
  }
  const Sequence* const s = a.sequence();
  const Sequence* const t = b.sequence();
  const bool has_order = s != nullptr && t != nullptr && have_same_type(*s, *t) &&
                         (is_tuple(*s) || s->kind == SequenceKind::kList);
  if (has_order) return order_sequences(heap, operation, *s, *t);
  refuse(kType, fmt::format("{} and {} have no order", type_name(a), type_name(b)));
}

}  // namespace

std::string_view type_name(const Value& value) {
  struct Names {
    std::string_view operator()(const Undefined&) const { return "Undefined"; }
    std::string_view operator()(const None&) const { return "NoneType"; }
    std::string_view operator()(bool) const { return "bool"; }
    std::string_view operator()(int64_t) const { return "int"; }
    std::string_view operator()(double) const { return "float"; }
    std::string_view operator()(const String&) const { return "str"; }
    std::string_view operator()(const std::shared_ptr<const Sequence>& sequence) const {
      constexpr std::string_view kNames[] = {"list",      "tuple",       "tuple",     "range",
                                             "dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<std::size_t>(sequence->kind)];
    }
    std::string_view operator()(const std::shared_ptr<const Dictionary>&) const { return "dict"; }
    std::string_view operator()(const std::shared_ptr<Iterator>&) const { return "generator"; }
    std::string_view operator()(const Object* object) const { return object->type(); }
  };
  return std::visit(Names(), value.state());
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto x = number(value)) return *x != 0;
  if (const String* const text = value.string()) return text->text->size() > 0;
  if (const Sequence* const sequence = value.sequence()) return !sequence->items.empty();
  if (const Dictionary* const dictionary = value.dictionary()) return !dictionary->entries.empty();
  return true;
}

void check_hashable(const Value& value) {
  const Sequence* const sequence = value.sequence();
  if (sequence != nullptr && is_tuple(*sequence)) {
    for (const Value& item : sequence->items) check_hashable(item);
    return;
  }
  if (value.dictionary() == nullptr &&
      (sequence == nullptr || sequence->kind == SequenceKind::kRange))
    return;
  refuse(kType, fmt::format("a {} is no key of a dict", type_name(value)));
}

bool equal(Heap& heap, const Value& a, const Value& b) {
  heap.step();
  int64_t left = 0;
  int64_t right = 0;
  if (a.integer(left) && b.integer(right)) return left == right;
  const auto x = number(a);
  const auto y = number(b);
  if (x && y) return *x == *y;
  if (a.state().index() != b.state().index()) return false;
  if (const String* const text = a.string()) return text->bytes() == b.string()->bytes();
  if (const Sequence* const list = a.sequence()) {
    return equal_sequences(heap, *list, *b.sequence());
  }
  if (const Dictionary* const dictionary = a.dictionary()) {
    return equal_dictionaries(heap, *dictionary, *b.dictionary());
  }
  if (a.iterator() != nullptr) return a.iterator() == b.iterator();
  if (a.object() != nullptr) return a.object() == b.object();
  return a.is_undefined() || a.is_none();
}

bool less(Heap& heap, const Value& a, const Value& b) {
  heap.step();
  return order(heap, Operator::kLess, a, b);
}

bool compare(Heap& heap, Operator operation, const Value& a, const Value& b) {
  heap.step();
  switch (operation) {
    case Operator::kEqual:
      return equal(heap, a, b);
    case Operator::kNotEqual:
      return !equal(heap, a, b);
    case Operator::kIn:
      return contains(heap, b, a);
    case Operator::kNotIn:
      return !contains(heap, b, a);
    default:
      return order(heap, operation, a, b);
  }
}

bool contains(Heap& heap, const Value& container, const Value& item) {
  if (const String* const text = container.string()) {
    if (item.string() == nullptr) {
      refuse(kType, fmt::format("only a str may be in a str, not {}", type_name(item)));
    }
    heap.step(1 + static_cast<int64_t>(text->bytes().size() / 64));
    return text->bytes().find(item.string()->bytes()) != std::string::npos;
  }
  if (const Dictionary* const dictionary = container.dictionary()) {
    return find(heap, *dictionary, item) != nullptr;
  }
  if (Iterator* const iterator = container.iterator()) {
    while (iterator->next < iterator->items.size()) {
      if (equal(heap, iterator->items[iterator->next++], item)) return true;
    }
    return false;
  }
  if (const Sequence* const sequence = container.sequence()) {
    return std::ranges::any_of(sequence->items,
                               [&](const Value& known) { return equal(heap, known, item); });
  }
  if (container.is_undefined()) return false;
  refuse(kType, fmt::format("a value of the type {} contains nothing", type_name(container)));
}

}  // namespace subbyte::jinja
