// Filters that walk over lists, dictionaries and texts.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

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
    if (const Value* const next = iterator->next(heap)) return *next;
  } else if (const String* const text = value.string(); text && !(*text)->empty()) {
    return heap.part(*text, 0, (*text)->character(heap, 0).length);
  } else if (const Sequence* const list = value.sequence(); list && !list->empty()) {
    return list->at(heap, 0);
  } else {
    Values items = items_of(heap, value);
    if (!items.empty()) return items.front();
  }
  return heap.undefined("there is no first item in an empty list");
}

Value run_last(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("last", arguments, {}, 0);
  Heap& heap = evaluator.heap();
  if (value.iterator() != nullptr)
    refuse(kType, "last needs a value with a length, found generator");
  if (const Sequence* const list = value.sequence(); list && !list->empty()) {
    return list->at(heap, list->size() - 1);
  }
  Values items = items_of(heap, value);
  if (!items.empty()) return items.back();
  return heap.undefined("there is no last item in an empty list");
}

Value run_join(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"d", "attribute"};
  const Bound bound("join", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  const String between = bound.has(0) ? to_text(heap, *bound[0]) : *heap.text("").string();
  TextBuilder result(heap);
  bool is_first = true;
  for (const Value& item : items_of(heap, value)) {
    const String text =
        to_text(heap, bound.says(1) ? attribute_at(evaluator, item, *bound[1]) : item);
    if (!is_first) result.append(*between);
    is_first = false;
    result.append(*text);
  }
  return heap.text(result);
}

Value run_reverse(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("reverse", arguments, {}, 0);
  Heap& heap = evaluator.heap();
  if (value.string() != nullptr) {
    return slice_of(heap, value, Value(None{}), Value(None{}), Value(int64_t{-1}));
  }
  Values items = items_of(heap, value);
  std::ranges::reverse(items);
  return heap.iterator(std::move(items));
}

Value run_items(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("items", arguments, {}, 0);
  Heap& heap = evaluator.heap();
  if (value.is_undefined()) return heap.iterator(Values(heap));
  if (value.dictionary() == nullptr) {
    refuse(kType, fmt::format("items takes a dict, found {}", type_name(value)));
  }
  const Value pairs = call_method(evaluator, value, "items", Arguments(heap));
  return heap.iterator(items_of(heap, pairs));
}

/// Sorts by keys, equal ones in their order, by merging runs that double.
Values sorted(Heap& heap, const Values& items, const Values& keys, bool is_reverse) {
  using Order = List<std::size_t>;
  const std::size_t size = items.size();
  const auto is_before = [&](std::size_t a, std::size_t b) {
    return is_reverse ? less(heap, keys[b], keys[a]) : less(heap, keys[a], keys[b]);
  };
  Order order(size, 0, heap);
  std::iota(order.begin(), order.end(), 0U);
  Order merged(size, 0, heap);
  for (std::size_t run = 1; run < size; run *= 2) {
    for (std::size_t begin = 0; begin < size; begin += 2 * run) {
      const auto at = [&](std::size_t place) {
        return order.begin() + static_cast<std::ptrdiff_t>(std::min(place, size));
      };
      std::merge(at(begin), at(begin + run), at(begin + run), at(begin + 2 * run),
                 merged.begin() + static_cast<std::ptrdiff_t>(begin), is_before);
    }
    order.swap(merged);
  }
  Values result(heap);
  result.reserve(size);
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
  const Value paths = call_method(evaluator, *attribute, "split", {heap, heap.text(",")});
  Values keys(heap);
  for (const Value& path : paths.sequence()->items(heap)) {
    keys.push_back(key_of(evaluator, item, &path, case_sensitive));
  }
  return heap.tuple(std::move(keys));
}

Value run_sort(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"reverse", "case_sensitive", "attribute"};
  const Bound bound("sort", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  const Values items = items_of(heap, value);
  Values keys(heap);
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
    refuse_undefined(*undefined);
  }
  if (value.dictionary() == nullptr) {
    refuse(kType, fmt::format("dictsort takes a dict, found {}", type_name(value)));
  }
  const std::string_view by = bound.has(1) ? bound.text(1).bytes(heap) : "key";
  if (by != "key" && by != "value") refuse(kValue, "dictsort sorts by key or by value");
  const Values pairs = items_of(heap, call_method(evaluator, value, "items", Arguments(heap)));
  Values keys(heap);
  for (const Value& pair : pairs) {
    const Value& key = pair.sequence()->at(heap, by == "key" ? 0 : 1);
    keys.push_back(sort_key(evaluator, key, bound.truth(0, false)));
  }
  return heap.list(sorted(heap, pairs, keys, bound.truth(2, false)));
}

Value run_unique(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"case_sensitive", "attribute"};
  const Bound bound("unique", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  Values items = items_of(heap, value);
  Entries entries(heap);  // the place of the first item of a key replaces those of later ones
  for (std::size_t i = items.size(); i > 0; --i) {
    entries.emplace_back(
        key_of(evaluator, items[i - 1], bound.says(1) ? bound[1] : nullptr, bound.truth(0, false)),
        Value(static_cast<int64_t>(i - 1)));
  }
  const Value firsts = heap.dictionary(std::move(entries));
  List<int64_t> places(heap);
  for (const auto& [key, place] : firsts.dictionary()->entries(heap)) {
    places.push_back(*place.as<int64_t>());
  }
  std::ranges::sort(places);
  Values chosen(heap);
  for (const int64_t place : places) chosen.push_back(items[static_cast<std::size_t>(place)]);
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
  const Values items = items_of(heap, value);
  Values keys(heap);
  for (const Value& item : items)
    keys.push_back(sort_key(evaluator, grouper(item), case_sensitive));
  Values groups(heap);
  Values members(heap);
  Value key;
  const auto end_group = [&] {
    if (members.empty()) return;
    Value shown = case_sensitive ? key : grouper(members[0]);
    Value list = heap.list(std::exchange(members, Values(heap)));
    groups.push_back(
        heap.list(Values({std::move(shown), std::move(list)}, heap), SequenceKind::kGroup));
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
  Values batches(heap);
  Values batch(heap);
  for (Value& item : items_of(heap, value)) {
    if (std::ssize(batch) == size) batches.push_back(heap.list(std::exchange(batch, Values(heap))));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    while (bound.says(1) && std::ssize(batch) < size) batch.push_back(*bound[1]);
    batches.push_back(heap.list(std::move(batch)));
  }
  return heap.iterator(std::move(batches));
}

Value run_slice(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"slices", "fill_with"};
  const Bound bound("slice", arguments, kNames, 1);
  Heap& heap = evaluator.heap();
  const Values items = items_of(heap, value);
  const int64_t count = bound.integer(0, 1);
  if (count <= 0) refuse(kValue, "slice makes at least one part");
  const int64_t length = std::ssize(items) / count;
  const int64_t longer = std::ssize(items) % count;
  Values parts(heap);
  auto next = items.begin();
  for (int64_t i = 0; i < count; ++i) {
    const auto end = next + length + (i < longer ? 1 : 0);
    Values part(next, end, heap);
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
