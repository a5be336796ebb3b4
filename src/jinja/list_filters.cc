// Filters that walk over lists, dictionaries and texts.

#include <fmt/format.h>

#include <algorithm>

#include "jinja/evaluator.h"
#include "jinja/filters.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

Value run_list(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("list", arguments, {}, 0);
  return evaluator.heap().list(items_of(evaluator.heap(), value));
}

Value run_first(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("first", arguments, {}, 0);
  Heap& heap = evaluator.heap();
  if (Iterator* const iterator = value.iterator()) {
    if (iterator->next < iterator->items.size()) return iterator->items[iterator->next++];
  } else if (const String* const text = value.string(); text && text->text->size() > 0) {
    return heap.part(*text, 0, character_at(text->bytes(), 0).length);
  } else {
    std::vector<Value> items = items_of(heap, value);
    if (!items.empty()) return items.front();
  }
  return heap.undefined("there is no first item in an empty list");
}

Value run_last(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("last", arguments, {}, 0);
  if (value.iterator() != nullptr) refuse(kType, "last takes what has a length, found generator");
  std::vector<Value> items = items_of(evaluator.heap(), value);
  if (!items.empty()) return items.back();
  return evaluator.heap().undefined("there is no last item in an empty list");
}

Value run_join(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"d", "attribute"};
  const Bound bound("join", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  const OriginText between = bound.has(0) ? to_text(heap, *bound[0]) : OriginText();
  OriginText result;
  bool is_first = true;
  for (const Value& item : items_of(heap, value)) {
    const OriginText text =
        to_text(heap, bound.says(1) ? attribute_at(evaluator, item, *bound[1]) : item);
    heap.take_bytes(static_cast<int64_t>(between.size() + text.size()));
    if (!is_first) result.append(between);
    is_first = false;
    result.append(text);
  }
  return heap.text(std::move(result));
}

Value run_reverse(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("reverse", arguments, {}, 0);
  Heap& heap = evaluator.heap();
  std::vector<Value> items = items_of(heap, value);
  std::ranges::reverse(items);
  if (value.string() == nullptr) return heap.iterator(std::move(items));
  OriginText text;
  for (const Value& item : items) text.append(*item.string()->text);
  return heap.text(std::move(text));
}

Value run_items(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("items", arguments, {}, 0);
  Heap& heap = evaluator.heap();
  if (value.is_undefined()) return heap.iterator({});
  if (value.dictionary() == nullptr) {
    refuse(kType, fmt::format("items takes a dict, found {}", type_name(value)));
  }
  const Value pairs = call_method(evaluator, value, "items", {});
  return heap.iterator(pairs.sequence()->items);
}

/// Sorts by keys, equal ones in their order.
std::vector<Value> sorted(Heap& heap, const std::vector<Value>& items,
                          const std::vector<Value>& keys, bool is_reverse) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return is_reverse ? less(heap, keys[b], keys[a]) : less(heap, keys[a], keys[b]);
  });
  std::vector<Value> result;
  result.reserve(items.size());
  for (const std::size_t i : order) result.push_back(items[i]);
  return result;
}

Value key_of(Evaluator& evaluator, const Value& item, const Value* attribute, bool case_sensitive) {
  return sort_key(evaluator,
                  attribute == nullptr ? item : attribute_at(evaluator, item, *attribute),
                  case_sensitive);
}

/// The key of `sort`, a tuple: of several attributes with commas between them.
Value keys_of(Evaluator& evaluator, const Value& item, const Value* attribute,
              bool case_sensitive) {
  Heap& heap = evaluator.heap();
  if (attribute == nullptr || attribute->string() == nullptr) {
    return heap.tuple({key_of(evaluator, item, attribute, case_sensitive)});
  }
  const Value paths = call_method(evaluator, *attribute, "split", {{heap.text(",")}, {}});
  std::vector<Value> keys;
  for (const Value& path : paths.sequence()->items) {
    keys.push_back(key_of(evaluator, item, &path, case_sensitive));
  }
  return heap.tuple(std::move(keys));
}

Value run_sort(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"reverse", "case_sensitive", "attribute"};
  const Bound bound("sort", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  const std::vector<Value> items = items_of(heap, value);
  std::vector<Value> keys;
  for (const Value& item : items) {
    keys.push_back(
        keys_of(evaluator, item, bound.says(2) ? bound[2] : nullptr, bound.truth(1, false)));
  }
  return heap.list(sorted(heap, items, keys, bound.truth(0, false)));
}

Value run_dictsort(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"case_sensitive", "by", "reverse"};
  const Bound bound("dictsort", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  if (const auto* const undefined = value.as<Undefined>(); undefined && undefined->why) {
    refuse(kUndefined, *undefined->why);
  }
  if (value.dictionary() == nullptr) {
    refuse(kType, fmt::format("dictsort takes a dict, found {}", type_name(value)));
  }
  const std::string by = bound.has(1) ? bound.text(1).bytes() : "key";
  if (by != "key" && by != "value") refuse(kValue, "dictsort sorts by key or by value");
  const Value pairs = call_method(evaluator, value, "items", {});
  std::vector<Value> keys;
  for (const Value& pair : pairs.sequence()->items) {
    keys.push_back(
        sort_key(evaluator, pair.sequence()->items[by == "key" ? 0 : 1], bound.truth(0, false)));
  }
  return heap.list(sorted(heap, pairs.sequence()->items, keys, bound.truth(2, false)));
}

Value run_unique(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"case_sensitive", "attribute"};
  const Bound bound("unique", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  std::vector<Value> seen;
  std::vector<Value> chosen;
  for (Value& item : items_of(heap, value)) {
    Value key = key_of(evaluator, item, bound.says(1) ? bound[1] : nullptr, bound.truth(0, false));
    check_hashable(key);
    const bool is_known =
        std::ranges::any_of(seen, [&](const Value& known) { return equal(heap, known, key); });
    if (is_known) continue;
    seen.push_back(std::move(key));
    chosen.push_back(std::move(item));
  }
  return heap.iterator(std::move(chosen));
}

Value run_groupby(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"attribute", "default", "case_sensitive"};
  const Bound bound("groupby", arguments, kNames, 1);
  Heap& heap = evaluator.heap();
  const bool case_sensitive = bound.truth(2, false);
  const auto grouper = [&](const Value& item) {
    return attribute_at(evaluator, item, *bound[0], bound[1]);
  };
  const std::vector<Value> items = items_of(heap, value);
  std::vector<Value> keys;
  for (const Value& item : items)
    keys.push_back(sort_key(evaluator, grouper(item), case_sensitive));
  std::vector<Value> groups;
  std::vector<Value> members;
  Value key;
  const auto end_group = [&] {
    if (members.empty()) return;
    Value shown = case_sensitive ? key : grouper(members[0]);
    groups.push_back(
        heap.list({std::move(shown), heap.list(std::exchange(members, {}))}, SequenceKind::kGroup));
  };
  for (Value& item : sorted(heap, items, keys, false)) {
    Value next = sort_key(evaluator, grouper(item), case_sensitive);
    if (!members.empty() && !equal(heap, key, next)) end_group();
    key = std::move(next);
    members.push_back(std::move(item));
  }
  end_group();
  return heap.list(std::move(groups));
}

Value run_batch(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"linecount", "fill_with"};
  const Bound bound("batch", arguments, kNames, 1);
  Heap& heap = evaluator.heap();
  const int64_t size = bound.integer(0, 1);
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (Value& item : items_of(heap, value)) {
    if (std::ssize(batch) == size) batches.push_back(heap.list(std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    while (bound.says(1) && std::ssize(batch) < size) {
      heap.take_bytes(sizeof(Value));
      batch.push_back(*bound[1]);
    }
    batches.push_back(heap.list(std::move(batch)));
  }
  return heap.iterator(std::move(batches));
}

Value run_slice(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"slices", "fill_with"};
  const Bound bound("slice", arguments, kNames, 1);
  Heap& heap = evaluator.heap();
  const std::vector<Value> items = items_of(heap, value);
  const int64_t count = bound.integer(0, 1);
  if (count <= 0) refuse(kValue, "slice makes at least one part");
  const int64_t length = std::ssize(items) / count;
  const int64_t longer = std::ssize(items) % count;
  std::vector<Value> parts;
  auto next = items.begin();
  for (int64_t i = 0; i < count; ++i) {
    const auto end = next + length + (i < longer ? 1 : 0);
    std::vector<Value> part(next, end);
    if (bound.says(1) && i >= longer) part.push_back(*bound[1]);
    parts.push_back(heap.list(std::move(part)));
    next = end;
  }
  return heap.iterator(std::move(parts));
}

constexpr Filter kFilters[] = {
    {"list", run_list},       {"first", run_first},       {"last", run_last},
    {"join", run_join},       {"reverse", run_reverse},   {"items", run_items},
    {"sort", run_sort},       {"dictsort", run_dictsort}, {"unique", run_unique},
    {"groupby", run_groupby}, {"batch", run_batch},       {"slice", run_slice}};

}  // namespace

std::span<const Filter> list_filters() {
  return kFilters;
}

}  // namespace subbyte::jinja
