#include "jinja/heap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/utf8.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

/// Values nested deeper than that are refused, so that whatever walks over them may recurse.
constexpr int kMaxNesting = 128;
constexpr int64_t kBytesPerStep = 64;  // that are copied in the time of a step

int depth_of(const Value& value) {
  if (const Sequence* const sequence = value.sequence()) return sequence->depth;
  if (const Dictionary* const dictionary = value.dictionary()) return dictionary->depth;
  if (const Iterator* const iterator = value.iterator()) return iterator->depth;
  return 0;
}

int depth_of(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  return depth;
}

}  // namespace

Value Object::call(Evaluator&, const Arguments&) {
  refuse(kType, fmt::format("a value of the type {} cannot be called", type()));
}

void Heap::step(int64_t count) {
  steps_ += count;
  if (steps_ <= limits_.steps) return;
  refuse(kLimit, fmt::format("the template takes more than {} steps", limits_.steps));
}

void Heap::take_bytes(int64_t count) {
  bytes_ += count;
  if (bytes_ > limits_.bytes) {
    refuse(kLimit, fmt::format("the template makes values of more than {} bytes", limits_.bytes));
  }
  step(1 + count / kBytesPerStep);
}

void Heap::check_output(std::size_t size) const {
  if (static_cast<int64_t>(size) <= limits_.output_bytes) return;
  refuse(kLimit, fmt::format("the template writes more than {} bytes", limits_.output_bytes));
}

Value Heap::text(OriginText text, bool is_markup) {
  take_bytes(static_cast<int64_t>(text.size() + sizeof(OriginText)));
  return Value(String{std::make_shared<const OriginText>(std::move(text)), is_markup});
}

Value Heap::text(std::string_view bytes, Origin origin) {
  return text(OriginText(bytes, origin));
}

Value Heap::part(const String& from, std::size_t begin, std::size_t end) {
  if (begin == 0 && end == from.bytes().size()) return Value(String{from.text});
  return text(from.text->part(begin, end));
}

int Heap::nested(int depth) const {
  if (depth < kMaxNesting) return depth + 1;
  refuse(kLimit, fmt::format("values are nested deeper than {}", kMaxNesting));
}

Value Heap::list(std::vector<Value> items, SequenceKind kind, std::string label) {
  take_bytes(static_cast<int64_t>(sizeof(Sequence) + items.size() * sizeof(Value)));
  const int depth = nested(depth_of(items));
  return Value(std::shared_ptr<const Sequence>(
      std::make_shared<Sequence>(Sequence{std::move(items), kind, depth, std::move(label)})));
}

Value Heap::dictionary(std::vector<std::pair<Value, Value>> entries) {
  constexpr std::size_t kEntryBytes = 2 * sizeof(Value) + 48;  // with its place in the index
  take_bytes(static_cast<int64_t>(sizeof(Dictionary) + entries.size() * kEntryBytes));
  auto made = std::make_shared<Dictionary>();
  int depth = 0;
  for (auto& [key, value] : entries) {
    depth = std::max({depth, depth_of(key), depth_of(value)});
    if (const Value* const known = find(*this, *made, key)) {
      *const_cast<Value*>(known) = std::move(value);  // of an entry of ours
      continue;
    }
    if (const String* const text = key.string()) {
      made->texts.emplace(text->bytes(), made->entries.size());
    }
    made->entries.emplace_back(std::move(key), std::move(value));
  }
  made->depth = nested(depth);
  return Value(std::shared_ptr<const Dictionary>(std::move(made)));
}

Value Heap::iterator(std::vector<Value> items) {
  take_bytes(static_cast<int64_t>(sizeof(Iterator) + items.size() * sizeof(Value)));
  const int depth = nested(depth_of(items));
  return Value(std::make_shared<Iterator>(Iterator{std::move(items), 0, depth}));
}

Value Heap::undefined(std::string why, bool is_unsafe) {
  take_bytes(static_cast<int64_t>(why.size()));
  return Value(Undefined{std::make_shared<const std::string>(std::move(why)), is_unsafe});
}

Value Heap::from_json(const json::Value& value, Origin origin,
                      std::span<const std::string_view> roles) {
  step();
  if (value.is_null()) return Value(None{});
  if (value.is_boolean()) return Value(value.get<bool>());
  if (value.is_string()) return text(value.get_ref<const std::string&>(), origin);
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    refuse(kValue, fmt::format("the number {} is too large", value.get<uint64_t>()));
  }
  if (value.is_number_integer()) return Value(value.get<int64_t>());
  if (value.is_number_float()) {
    // What the parser makes of whole numbers beyond 64 bits, too, which Python keeps.
    constexpr double kLargest = 0x1p63;
    const double number = value.get<double>();
    if (std::abs(number) >= kLargest) {
      refuse(kValue, fmt::format("the number {} is too large", number));
    }
    return Value(number);
  }
  if (value.is_array()) {
    std::vector<Value> items;
    items.reserve(value.size());
    for (const json::Value& item : value) items.push_back(from_json(item, origin, roles));
    return list(std::move(items));
  }
  std::vector<std::pair<Value, Value>> entries;
  entries.reserve(value.size());
  for (const auto& [key, item] : value.items()) {
    const bool is_role =
        key == "role" && item.is_string() &&
        std::ranges::find(roles, item.get_ref<const std::string&>()) != roles.end();
    entries.emplace_back(text(key, origin),
                         from_json(item, is_role ? Origin::kTemplate : origin, roles));
  }
  return dictionary(std::move(entries));
}

const Value* find(const Dictionary& dictionary, std::string_view key) {
  const auto found = dictionary.texts.find(key);
  return found == dictionary.texts.end() ? nullptr : &dictionary.entries[found->second].second;
}

const Value* find(Heap& heap, const Dictionary& dictionary, const Value& key) {
  check_hashable(key);
  heap.step();
  if (const String* const text = key.string()) return find(dictionary, text->bytes());
  if (dictionary.texts.size() == dictionary.entries.size()) return nullptr;
  for (const auto& [known, value] : dictionary.entries) {
    if (equal(heap, known, key)) return &value;
  }
  return nullptr;
}

}  // namespace subbyte::jinja
