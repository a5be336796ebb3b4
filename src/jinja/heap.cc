#include "jinja/heap.h"

#include <fmt/format.h>

#include <algorithm>

#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

/// Values nested deeper than that are refused, so that whatever walks over them may recurse.
constexpr int kMaxNesting = 128;

int depth_of(const Value& value) {
  if (const Sequence* const sequence = value.sequence()) return sequence->depth();
  if (const Dictionary* const dictionary = value.dictionary()) return dictionary->depth();
  if (const Iterator* const iterator = value.iterator()) return iterator->depth();
  return 0;
}

int depth_of(std::span<const Value> items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  return depth;
}

}  // namespace

Value Object::call(Evaluator&, const Arguments&) {
  refuse(kType, fmt::format("a value of the type {} cannot be called", type()));
}

Value Heap::text(std::string_view bytes, Origin origin, bool is_markup) {
  TextBuilder builder(*this);
  builder.append(bytes, origin);
  return text(builder, is_markup);
}

Value Heap::part(const String& from, std::size_t begin, std::size_t end) {
  if (begin == 0 && end == from->size()) return Value(String{from.text});
  TextBuilder builder(*this);
  builder.reserve(end - begin);
  builder.append(*from, begin, end);
  return text(builder);
}

Value Heap::long_integer(std::string_view digits) {
  return Value(LongInteger{text(digits).string()->text});
}

int Heap::nested(int depth) {
  if (depth < kMaxNesting) return depth + 1;
  refuse(kLimit, fmt::format("values are nested deeper than {}", kMaxNesting));
}

Value Heap::list(Values items, SequenceKind kind, std::string_view label) {
  const int depth = nested(depth_of(items));
  const bool is_tuple = kind == SequenceKind::kTuple || kind == SequenceKind::kGroup;
  const bool is_hashable =
      kind == SequenceKind::kRange || (is_tuple && std::ranges::all_of(items, jinja::is_hashable));
  return Value(std::shared_ptr<const Sequence>(
      std::allocate_shared<Sequence>(Allocator<Sequence>(*this), std::move(items), kind, depth,
                                     is_hashable, Bytes(label, *this))));
}

Value Heap::dictionary(Entries entries) {
  int depth = 0;
  for (const auto& [key, value] : entries) {
    check_hashable(key);
    depth = std::max({depth, depth_of(key), depth_of(value)});
  }
  return Value(std::shared_ptr<const Dictionary>(std::allocate_shared<Dictionary>(
      Allocator<Dictionary>(*this), *this, std::move(entries), nested(depth))));
}

Value Heap::iterator(Values items) {
  const int depth = nested(depth_of(items));
  return Value(std::allocate_shared<Iterator>(Allocator<Iterator>(*this), std::move(items), depth));
}

Value Heap::undefined(std::string_view why, bool is_unsafe) {
  return Value(Undefined{
      std::allocate_shared<const Bytes>(Allocator<Bytes>(*this), why, Allocator<char>(*this)),
      is_unsafe});
}

}  // namespace subbyte::jinja
