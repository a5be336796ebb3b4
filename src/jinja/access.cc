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

Value missing(Heap& heap, const Value& value, const Value& key) {
  return heap.undefined(fmt::format("{} has no item {}", type_name(value), shown(heap, key)));
}

/// A method, an attribute of an object, or nothing.
std::optional<Value> member(Evaluator& evaluator, const Value& value, std::string_view name) {
  if (Object* const object = value.object()) return object->attribute(evaluator, name);
  const Sequence* const sequence = value.sequence();
  if (sequence != nullptr && sequence->kind() == SequenceKind::kGroup) {
    if (name == "grouper") return sequence->at(evaluator.heap(), 0);
    if (name == "list") return sequence->at(evaluator.heap(), 1);
  }
  switch (member_of(value, name)) {
    case Member::kNone:
      return std::nullopt;
    case Member::kMethod:
      return Value(static_cast<Object*>(
          evaluator.heap().object<BoundMethod>(evaluator.heap(), value, name)));
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
    const Value* const found = is_hashable(key) ? dictionary->find(heap, key) : nullptr;
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  int64_t index = 0;
  if (!key.integer(index)) return std::nullopt;
  if (const Sequence* const sequence = value.sequence()) {
    const auto place = index_in(index, sequence->size());
    if (!place || sequence->kind() > SequenceKind::kRange) return std::nullopt;
    return sequence->at(heap, *place);
  }
  const String* const text = value.string();
  if (text == nullptr) return std::nullopt;
  const auto place = index_in(index, (*text)->length(heap));
  if (!place) return std::nullopt;
  const std::size_t begin = (*text)->byte_of(heap, *place);
  return heap.part(*text, begin, begin + (*text)->character(heap, begin).length);
}

struct Slice {
  int64_t begin;
  int64_t end;
  int64_t step;
};

/// Python's slice.indices().
std::optional<Slice> slice_in(std::size_t length, const Value& begin, const Value& end,
                              const Value& step) {
  const auto size = static_cast<int64_t>(length);
  Slice slice = {0, 0, 1};
  for (const Value* const value : {&begin, &end, &step}) {
    int64_t unused = 0;
    if (value->is<LongInteger>()) refuse_long_integer();
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
    return std::clamp(index < 0 ? clamped_sum(index, size) : index, least, most);
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
  const auto place = [&](int64_t i) { return text->byte_of(heap, static_cast<std::size_t>(i)); };
  if (slice.step == 1) {
    if (slice.begin >= slice.end) return heap.text("");
    return heap.part(text, place(slice.begin), place(slice.end));
  }
  const std::string_view bytes = text.letters(heap);
  List<uint32_t> places(heap);
  places.reserve(text->length(heap));
  for (std::size_t at = 0; at < bytes.size(); at += character_at(bytes, at).length) {
    places.push_back(static_cast<uint32_t>(at));
  }
  TextBuilder result(heap);
  walk(slice, [&](std::size_t i) {
    result.append(*text, places[i], places[i] + character_at(bytes, places[i]).length);
  });
  return heap.text(result);
}

}  // namespace

std::size_t place_in(int64_t index, std::size_t size) {
  const auto count = static_cast<int64_t>(size);
  return static_cast<std::size_t>(
      std::clamp<int64_t>(index < 0 ? clamped_sum(index, count) : index, 0, count));
}

std::optional<std::size_t> index_in(int64_t index, std::size_t size) {
  const auto count = static_cast<int64_t>(size);
  if (index < 0) index = clamped_sum(index, count);
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<std::size_t>(index);
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.string() != nullptr || value.sequence() != nullptr ||
         value.dictionary() != nullptr || value.iterator() != nullptr;
}

Values items_of(Heap& heap, const Value& value) {
  Values items(heap);
  if (const Sequence* const sequence = value.sequence()) {
    const std::span<const Value> all = sequence->items(heap);
    items.assign(all.begin(), all.end());
  } else if (const Dictionary* const dictionary = value.dictionary()) {
    items.reserve(dictionary->size());
    for (const auto& [key, unused] : dictionary->entries(heap)) items.push_back(key);
  } else if (const String* const text = value.string()) {
    const std::string_view bytes = text->bytes(heap);
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t length = character_at(bytes, at).length;
      items.push_back(heap.part(*text, at, at + length));
      at += length;
    }
  } else if (Iterator* const iterator = value.iterator()) {
    items = iterator->take(heap);
  } else if (const auto* const undefined = value.as<Undefined>()) {
    if (undefined->is_unsafe) refuse_undefined(*undefined);
  } else {
    refuse(kType, fmt::format("a value of the type {} has no items", type_name(value)));
  }
  return items;
}

std::optional<std::size_t> length_of(Meter& meter, const Value& value) {
  if (const String* const text = value.string()) return (*text)->length(meter);
  if (const Sequence* const sequence = value.sequence()) return sequence->size();
  if (const Dictionary* const dictionary = value.dictionary()) return dictionary->size();
  if (value.is_undefined()) return 0;
  return std::nullopt;
}

Value item_of(Evaluator& evaluator, const Value& value, const Value& key) {
  evaluator.heap().step();
  if (const auto* const undefined = value.as<Undefined>()) refuse_undefined(*undefined);
  if (auto found = item(evaluator, value, key)) return std::move(*found);
  if (const String* const name = key.string()) {
    if (auto found = member(evaluator, value, name->bytes(evaluator.heap()))) {
      return std::move(*found);
    }
  }
  return missing(evaluator.heap(), value, key);
}

Value attribute_of(Evaluator& evaluator, const Value& value, std::string_view name) {
  Heap& heap = evaluator.heap();
  heap.step();
  if (const auto* const undefined = value.as<Undefined>()) refuse_undefined(*undefined);
  if (auto found = member(evaluator, value, name)) return std::move(*found);
  if (const Dictionary* const dictionary = value.dictionary()) {
    if (const Value* const found = dictionary->find(heap, name)) return *found;
  }
  return heap.undefined(
      fmt::format("{} has no attribute {}", type_name(value), quote_name(name, 60)));
}

Value slice_of(Heap& heap, const Value& value, const Value& begin, const Value& end,
               const Value& step) {
  heap.step();
  if (const auto* const undefined = value.as<Undefined>()) refuse_undefined(*undefined);
  const Sequence* const sequence = value.sequence();
  const bool is_sliced = sequence != nullptr && sequence->kind() <= SequenceKind::kRange;
  if (!is_sliced && value.string() == nullptr) {
    return heap.undefined(fmt::format("{} has no slices", type_name(value)));
  }
  const auto slice = slice_in(*length_of(heap, value), begin, end, step);
  if (!slice) return heap.undefined("the ends of a slice are no integers");
  if (!is_sliced) return text_slice(heap, *value.string(), *slice);
  Values items(heap);
  walk(*slice, [&](std::size_t i) { items.push_back(sequence->at(heap, i)); });
  const auto kind = sequence->kind();
  return heap.list(std::move(items), kind == SequenceKind::kGroup ? SequenceKind::kTuple : kind);
}

}  // namespace subbyte::jinja
