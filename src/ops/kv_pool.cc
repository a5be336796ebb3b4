#include "ops/kv_pool.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace subbyte {

KvGroup::KvGroup(const CacheGroup& layout, int64_t num_units, std::unique_ptr<KvMemory> memory)
    : layout_(layout),
      memory_(std::move(memory)),
      owners_(num_units),
      filled_(num_units),
      free_(num_units),
      is_kept_(num_units) {
  std::iota(free_.rbegin(), free_.rend(), 0);  // the first is taken first
}

int32_t KvGroup::take() {
  const int32_t unit = free_.back();
  free_.pop_back();
  owners_[unit] = 1;
  return unit;
}

void KvGroup::share(int32_t unit) {
  if (owners_[unit]++ == 1 && is_kept_[unit]) --num_idle_;
}

void KvGroup::give_back(int32_t unit) {
  const int32_t left = --owners_[unit];
  if (left == 0) free_.push_back(unit);
  if (left == 1 && is_kept_[unit]) ++num_idle_;
}

void KvGroup::keep(int32_t unit) {
  share(unit);
  is_kept_[unit] = true;
}

void KvGroup::drop(int32_t unit) {
  if (!is_shared(unit)) --num_idle_;
  is_kept_[unit] = false;
  give_back(unit);
}

int64_t KvPool::total_bytes() const {
  int64_t bytes = 0;
  for (const KvGroup& group : groups_) {
    bytes += group.num_units() * cache_unit_bytes(group.layout(), type_);
  }
  return bytes;
}

int64_t KvPool::held_bytes() const {
  int64_t bytes = 0;
  for (const KvGroup& group : groups_) {
    bytes += group.num_held() * cache_unit_bytes(group.layout(), type_);
  }
  return bytes;
}

Sequence::Sequence(KvPool& pool, int64_t max_length)
    : pool_(&pool),
      max_length_(max_length),
      is_long_(pool.is_long(max_length)),
      tables_(pool.groups_.size()) {}

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(other.pool_),
      max_length_(other.max_length_),
      length_(std::exchange(other.length_, 0)),
      is_long_(other.is_long_),
      is_mirror_(other.is_mirror_),
      tables_(std::exchange(other.tables_, {})) {}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(max_length_, other.max_length_);
  std::swap(length_, other.length_);
  std::swap(is_long_, other.is_long_);
  std::swap(is_mirror_, other.is_mirror_);
  std::swap(tables_, other.tables_);
  return *this;
}

Sequence Sequence::mirror(KvPool& pool, const SequenceTables& tables) {
  Sequence sequence(pool, pool.max_positions());
  sequence.is_mirror_ = true;
  sequence.length_ = tables.length;
  sequence.is_long_ = tables.is_long;
  for (std::size_t i = 0; i < tables.groups.size() && i < sequence.tables_.size(); ++i) {
    const SequenceTables::Group& from = tables.groups[i];
    Table& table = sequence.tables_[i];
    table.pages = from.pages;
    if (from.state != kNoPage) table.states.push_back({tables.length, from.state});
    table.next_state = from.next_state;
  }
  return sequence;
}

void Sequence::begin(int64_t length) {
  truncate(0);
  is_long_ = pool_->is_long(length);
}

bool Sequence::is_empty() const {
  return std::ranges::all_of(tables_, [](const Table& table) {
    return std::ssize(table.pages) == table.first_page && table.states.empty();
  });
}

int32_t Sequence::state(int32_t group) const {
  const Table& table = tables_[group];
  return length_ == 0 ? kNoPage : table.states.back().state;
}

int32_t Sequence::state_at(int32_t group, int64_t length) const {
  const std::vector<State>& states = tables_[group].states;
  const auto found = std::ranges::find(states, length, &State::length);
  return found == states.end() ? kNoPage : found->state;
}

bool Sequence::holds(int64_t length) const {
  if (length > length_) return false;
  if (length == 0) return true;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const CacheGroup& layout = pool_->groups_[i].layout();
    const Table& table = tables_[i];
    const int64_t first_seen = std::max<int64_t>(0, length - layout.window + 1);
    const bool is_there = layout.is_state() ? state_at(static_cast<int32_t>(i), length) != kNoPage
                                            : table.first_page == 0 ||
                                                  (layout.window > 0 &&
                                                   first_seen / kPagePositions >= table.first_page);
    if (!is_there) return false;
  }
  return true;
}

Sequence Sequence::share(int64_t length) const {
  Sequence other(*pool_, max_length_);
  length = std::min(length, length_);
  if (length == 0 || !holds(length)) return other;
  std::vector<KvPrefix> groups(tables_.size());
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const auto group = static_cast<int32_t>(i);
    groups[i].state = state_at(group, length);
    if (pool_->groups_[i].layout().is_state()) continue;
    const std::span<const int32_t> held = pages(group).first(kv_pages(length));
    groups[i].pages.assign(held.begin(), held.end());
  }
  other.begin_with(length, groups, is_long_);
  return other;
}

void Sequence::begin_with(int64_t length, std::span<const KvPrefix> groups, bool is_long) {
  for (std::size_t i = 0; i < groups.size(); ++i) {  // before what it has goes back
    KvGroup& group = pool_->groups_[i];
    if (groups[i].state != kNoPage) group.share(groups[i].state);
    for (const int32_t page : groups[i].pages) {
      if (page != kNoPage) group.share(page);
    }
  }
  release(0);
  is_long_ = is_long;
  length_ = length;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    Table& table = tables_[i];
    table.pages = groups[i].pages;
    table.claimed = 0;
    const auto first = std::ranges::find_if(table.pages, [](int32_t page) { return page >= 0; });
    table.first_page = first - table.pages.begin();
    if (groups[i].state != kNoPage) table.states.push_back({length, groups[i].state});
  }
}

Status Sequence::no_pages(int64_t tokens, const KvGroup& group, int64_t wanted) const {
  const std::string what = group.layout().is_state() ? " more states" : " more pages";
  return Error{"kv.no_pages",
               std::to_string(tokens) + " more positions need " + std::to_string(wanted) + what +
                   " of the key-value cache, of which " + std::to_string(group.num_free()) +
                   " of " + std::to_string(group.num_units()) + " are free"};
}

/// Only the page that the next position lies in can be shared: later ones are taken anew. Where
/// nobody else was to write after the last position, it can go on in there, as the others see the
/// positions before alone.
bool Sequence::copies(const KvGroup& group, const Table& table, int64_t tokens) const {
  const int64_t filled = length_ % kPagePositions;
  if (tokens == 0 || filled == 0) return false;
  const int64_t index = length_ / kPagePositions;
  const int32_t page = table.pages[index];
  const int64_t own = std::min<int64_t>(table.claimed - index * kPagePositions, kPagePositions);
  return group.is_shared(page) && group.filled_[page] > filled && group.filled_[page] != own;
}

int64_t Sequence::wanted(const KvGroup& group, const Table& table, int64_t tokens) const {
  if (group.layout().is_state()) return tokens > 0 && table.next_state == kNoPage ? 1 : 0;
  const int64_t grows = kv_pages(length_ + tokens) - std::ssize(table.pages);
  return std::max<int64_t>(0, grows) + (copies(group, table, tokens) ? 1 : 0);
}

int64_t Sequence::missing(int32_t group, int64_t tokens, int64_t spare) const {
  const KvGroup& units = pool_->groups_[group];
  return wanted(units, tables_[group], tokens) + spare - units.num_free();
}

Status Sequence::reserve(int64_t tokens) {
  if (tokens > max_length_ - length_) {
    return Error{"model.context_full",
                 std::to_string(tokens) +
                     " tokens do not fit into the context: " + std::to_string(length_) + " of " +
                     std::to_string(max_length_) + " positions are used"};
  }
  if (!holds(length_)) {
    return Error{"kv.given_back", "what the token at position " + std::to_string(length_) +
                                      " sees was given back: a window is shorter than the cut"};
  }
  // All or none, so that what cannot go on leaves the pages to others.
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const KvGroup& group = pool_->groups_[i];
    const int64_t more = wanted(group, tables_[i], tokens);
    if (more > group.num_free()) return no_pages(tokens, group, more);
  }
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    KvGroup& group = pool_->groups_[i];
    Table& table = tables_[i];
    if (group.layout().is_state()) {
      if (wanted(group, table, tokens) > 0) table.next_state = group.take();
      continue;
    }
    grow(group, table, tokens);
  }
  return {};
}

void Sequence::grow(KvGroup& group, Table& table, int64_t tokens) const {
  if (tokens == 0) return;
  if (copies(group, table, tokens)) {
    int32_t& page = table.pages[length_ / kPagePositions];
    const int32_t copy = group.take();
    group.memory().copy_page(page, copy, length_ % kPagePositions);
    group.give_back(std::exchange(page, copy));
  }
  const int64_t end = length_ + tokens;
  while (std::ssize(table.pages) < kv_pages(end)) table.pages.push_back(group.take());
  for (int64_t page = length_ / kPagePositions; page < kv_pages(end); ++page) {
    const int64_t filled = std::min<int64_t>(end - page * kPagePositions, kPagePositions);
    group.filled_[table.pages[page]] = static_cast<int32_t>(filled);
  }
  table.claimed = end;
}

void Sequence::advance(int64_t tokens) {
  length_ += tokens;
  for (Table& table : tables_) {
    if (table.next_state == kNoPage) continue;
    table.states.push_back({length_, std::exchange(table.next_state, kNoPage)});
  }
}

void Sequence::truncate(int64_t length) {
  release(std::min(length, length_));
}

int64_t Sequence::rewind(int64_t length) {
  length = std::min(length, length_);
  truncate(holds(length) ? length : 0);
  return length_;
}

void Sequence::release(int64_t length) {
  const bool is_cut = length < length_;
  length_ = length;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    KvGroup& group = pool_->groups_[i];
    Table& table = tables_[i];
    if (is_cut) table.claimed = 0;  // others may have what it writes anew
    while (!table.states.empty() && table.states.back().length > length) {
      group.give_back(table.states.back().state);
      table.states.pop_back();
    }
    if (table.next_state != kNoPage) group.give_back(std::exchange(table.next_state, kNoPage));
    while (std::ssize(table.pages) > kv_pages(length)) {
      if (table.pages.back() != kNoPage) group.give_back(table.pages.back());
      table.pages.pop_back();
    }
    table.first_page = std::min(table.first_page, std::ssize(table.pages));
  }
}

void Sequence::settle(int64_t length) {
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    KvGroup& group = pool_->groups_[i];
    Table& table = tables_[i];
    while (!table.states.empty() && table.states.front().length < length) {
      group.give_back(table.states.front().state);
      table.states.erase(table.states.begin());
    }
    const int64_t window = group.layout().window;
    if (window == 0) continue;
    // The next token, at position `length`, sees window - 1 before it; one more is kept, so that
    // the last token can be computed again.
    const int64_t first_seen = std::max<int64_t>(0, length - window) / kPagePositions;
    for (; table.first_page < first_seen; ++table.first_page) {
      group.give_back(std::exchange(table.pages[table.first_page], kNoPage));
    }
  }
}

}  // namespace subbyte
