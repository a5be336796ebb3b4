// Entries of a dict stand in the order in which they came, and are found by a sorted list of their
// keys: unlike those of a hash table, its look-ups cost the same whatever an enemy calls his keys.

#include <algorithm>
#include <numeric>

#include "jinja/operations.h"

namespace subbyte::jinja {

Dictionary::Dictionary(Meter& meter, Entries entries, int depth)
    : entries_(std::move(entries)), sorted_(meter), depth_(depth) {
  sorted_.resize(entries_.size());
  std::iota(sorted_.begin(), sorted_.end(), 0U);
  const auto order = [&](uint32_t a, uint32_t b) {
    return order_of_keys(meter, entries_[a].first, entries_[b].first);
  };
  std::ranges::sort(sorted_, [&](uint32_t a, uint32_t b) {
    const int found = order(a, b);
    return found != 0 ? found < 0 : a < b;
  });
  const auto is_same = [&](uint32_t a, uint32_t b) { return order(a, b) == 0; };
  if (std::ranges::adjacent_find(sorted_, is_same) == sorted_.end()) return;
  Entries kept(meter);
  List<bool> is_later(entries_.size(), false, meter);
  for (std::size_t i = 1, first = 0; i < sorted_.size(); ++i) {
    if (!is_same(sorted_[first], sorted_[i])) {
      first = i;
      continue;
    }
    is_later[sorted_[i]] = true;
    entries_[sorted_[first]].second = entries_[sorted_[i]].second;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!is_later[i]) kept.push_back(std::move(entries_[i]));
  }
  *this = Dictionary(meter, std::move(kept), depth);
}

template <typename OrderOfKey>
const Value* Dictionary::search(const OrderOfKey& order) const {
  const auto found = std::ranges::lower_bound(
      sorted_, 0, [](int a, int b) { return a < b; },
      [&](uint32_t entry) { return order(entries_[entry].first); });
  if (found == sorted_.end() || order(entries_[*found].first) != 0) return nullptr;
  return &entries_[*found].second;
}

const Value* Dictionary::find(Meter& meter, const Value& key) const {
  check_hashable(key);
  return search([&](const Value& known) { return order_of_keys(meter, known, key); });
}

const Value* Dictionary::find(Meter& meter, std::string_view key) const {
  return search([&](const Value& known) { return order_of_keys(meter, known, key); });
}

}  // namespace subbyte::jinja
