// Items, attributes, slices and iteration.

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "jinja/characters.h"
#include "jinja/evaluator.h"
#include "jinja/methods.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

[[noreturn]] void refuse_undefined(const Undefined& undefined) {
  refuse(undefined.is_unsafe ? kUnsafeUse : kUndefined,
         undefined.why ? *undefined.why : "the value is undefined");
}

Value missing(Heap& heap, const Value& value, const Value& key) {
  return heap.undefined(fmt::format("{} has no item {}", type_name(value),
                                    to_repr(heap, key).bytes().substr(0, 100)));
}

/// A method, an attribute of an object, or nothing.
std::optional<Value> member(Evaluator& evaluator, const Value& value, std::string_view name) {
  if (Object* const object = value.object()) {
    const Value* const found = object->attribute(evaluator, name);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  const Sequence* const sequence = value.sequence();
  if (sequence != nullptr && sequence->kind == SequenceKind::kGroup) {
    if (name == "grouper") return sequence->items[0];
    if (name == "list") return sequence->items[1];
  }
  switch (member_of(value, name)) {
    case Member::kNone:
      return std::nullopt;
    case Member::kMethod:
      return Value(static_cast<Object*>(evaluator.heap().object<BoundMethod>(value, name)));
    case Member::kUnsafe:
      break;
  }
  return evaluator.heap().undefined(
      fmt::format("the method {} would change a {}, which templates may not", name,
                  type_name(value)),
      /*is_unsafe=*/true);
}

/// value[key] where there is such an item.
std::optional<Value> item(Evaluator& evaluator, const Value& value, const Value& key) {
  Heap& heap = evaluator.heap();
  if (const Dictionary* const dictionary = value.dictionary()) {
    const bool is_hashable = key.dictionary() == nullptr && key.sequence() == nullptr;
    const Value* const found = is_hashable ? find(heap, *dictionary, key) : nullptr;
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  int64_t index = 0;
  if (!key.integer(index)) return std::nullopt;
  if (const Sequence* const sequence = value.sequence()) {
    const auto place = index_in(index, sequence->items.size());
    if (!place || sequence->kind > SequenceKind::kRange) return std::nullopt;
    return sequence->items[*place];
  }
  const String* const text = value.string();
  if (text == nullptr) return std::nullopt;
  const std::string& bytes = text->bytes();
  const auto place = index_in(index, count_characters(bytes));
  heap.step(1 + static_cast<int64_t>(bytes.size() / 16));
  if (!place) return std::nullopt;
  const std::size_t begin = byte_of_character(bytes, *place);
  return heap.part(*text, begin, begin + character_at(bytes, begin).length);
}

struct Slice {
  int64_t begin;
  int64_t end;
  int64_t step;
};

/// Python's slice.indices().
std::optional<Slice> slice_in(int64_t size, const Value& begin, const Value& end,
                              const Value& step) {
  Slice slice = {0, 0, 1};
  for (const Value* const value : {&begin, &end, &step}) {
    int64_t unused = 0;
    if (!value->is_none() && !value->integer(unused)) return std::nullopt;
  }
  step.integer(slice.step);
  if (slice.step == 0) refuse(kValue, "the step of a slice is 0");
  slice.step = std::clamp<int64_t>(slice.step, -(int64_t{1} << 62), int64_t{1} << 62);
  const bool is_back = slice.step < 0;
  const int64_t least = is_back ? -1 : 0;
  const int64_t most = is_back ? size - 1 : size;
  const auto place = [&](const Value& value, int64_t otherwise) {
    int64_t index = 0;
    if (!value.integer(index)) return otherwise;
    return std::clamp(index < 0 ? index + size : index, least, most);
  };
  slice.begin = place(begin, is_back ? most : least);
  slice.end = place(end, is_back ? least : most);
  return slice;
}

template <typename Take>
void walk(const Slice& slice, const Take& take) {
  for (int64_t i = slice.begin; slice.step > 0 ? i < slice.end : i > slice.end; i += slice.step) {
    take(static_cast<std::size_t>(i));
  }
}

Value text_slice(Heap& heap, const String& text, const Slice& slice) {
  const std::string& bytes = text.bytes();
  if (slice.step == 1) {
    if (slice.begin >= slice.end) return heap.text("");
    return heap.part(text, byte_of_character(bytes, static_cast<std::size_t>(slice.begin)),
                     byte_of_character(bytes, static_cast<std::size_t>(slice.end)));
  }
  std::vector<std::size_t> places;
  heap.take_bytes(static_cast<int64_t>(bytes.size() * sizeof(std::size_t)));
  for (std::size_t at = 0; at < bytes.size(); at += character_at(bytes, at).length) {
    places.push_back(at);
  }
  OriginText result;
  walk(slice, [&](std::size_t i) {
    result.append(*text.text, places[i], places[i] + character_at(bytes, places[i]).length);
  });
  return heap.text(std::move(result));
}

}  // namespace

std::optional<std::size_t> index_in(int64_t index, std::size_t size) {
  const auto count = static_cast<int64_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<std::size_t>(index);
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.string() != nullptr || value.sequence() != nullptr ||
         value.dictionary() != nullptr || value.iterator() != nullptr;
}

std::vector<Value> items_of(Heap& heap, const Value& value) {
  heap.step();
  if (const Sequence* const sequence = value.sequence()) {
    heap.take_bytes(static_cast<int64_t>(sequence->items.size() * sizeof(Value)));
    return sequence->items;
  }
  std::vector<Value> items;
  if (const Dictionary* const dictionary = value.dictionary()) {
    heap.take_bytes(static_cast<int64_t>(dictionary->entries.size() * sizeof(Value)));
    for (const auto& [key, unused] : dictionary->entries) items.push_back(key);
  } else if (const String* const text = value.string()) {
    for (std::size_t at = 0; at < text->bytes().size();) {
      const std::size_t length = character_at(text->bytes(), at).length;
      items.push_back(heap.part(*text, at, at + length));
      at += length;
    }
  } else if (Iterator* const iterator = value.iterator()) {
    items.assign(iterator->items.begin() + static_cast<std::ptrdiff_t>(iterator->next),
                 iterator->items.end());
    iterator->next = iterator->items.size();
  } else if (const auto* const undefined = value.as<Undefined>()) {
    if (undefined->is_unsafe) refuse_undefined(*undefined);
  } else {
    refuse(kType, fmt::format("a value of the type {} has no items", type_name(value)));
  }
  return items;
}

std::optional<int64_t> length_of(const Value& value) {
  if (const String* const text = value.string()) {
    return static_cast<int64_t>(count_characters(text->bytes()));
  }
  if (const Sequence* const sequence = value.sequence()) return std::ssize(sequence->items);
  if (const Dictionary* const dictionary = value.dictionary()) {
    return std::ssize(dictionary->entries);
  }
  if (value.is_undefined()) return 0;
  return std::nullopt;
}

Value item_of(Evaluator& evaluator, const Value& value, const Value& key) {
  evaluator.heap().step();
  if (const auto* const undefined = value.as<Undefined>()) refuse_undefined(*undefined);
  if (auto found = item(evaluator, value, key)) return std::move(*found);
  if (const String* const name = key.string()) {
    if (auto found = member(evaluator, value, name->bytes())) return std::move(*found);
  }
  return missing(evaluator.heap(), value, key);
}

Value attribute_of(Evaluator& evaluator, const Value& value, std::string_view name) {
  Heap& heap = evaluator.heap();
  heap.step();
  if (const auto* const undefined = value.as<Undefined>()) refuse_undefined(*undefined);
  if (auto found = member(evaluator, value, name)) return std::move(*found);
  if (const Dictionary* const dictionary = value.dictionary()) {
    if (const Value* const found = find(*dictionary, name)) return *found;
  }
  return heap.undefined(
      fmt::format("{} has no attribute {}", type_name(value), quote_name(name, 60)));
}

Value slice_of(Heap& heap, const Value& value, const Value& begin, const Value& end,
               const Value& step) {
  heap.step();
  if (const auto* const undefined = value.as<Undefined>()) refuse_undefined(*undefined);
  const Sequence* const sequence = value.sequence();
  const bool is_sliced = sequence != nullptr && sequence->kind <= SequenceKind::kRange;
  if (!is_sliced && value.string() == nullptr) {
    return heap.undefined(fmt::format("{} has no slices", type_name(value)));
  }
  const auto slice = slice_in(*length_of(value), begin, end, step);
  if (!slice) return heap.undefined("the ends of a slice are no integers");
  if (!is_sliced) return text_slice(heap, *value.string(), *slice);
  std::vector<Value> items;
  walk(*slice, [&](std::size_t i) { items.push_back(sequence->items[i]); });
  return heap.list(std::move(items),
                   sequence->kind == SequenceKind::kGroup ? SequenceKind::kTuple : sequence->kind);
}

}  // namespace subbyte::jinja
