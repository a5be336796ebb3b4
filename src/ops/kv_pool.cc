#include "ops/kv_pool.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace subbyte {

KvGroup::KvGroup(const CacheGroup& layout, int64_t num_units, std::unique_ptr<KvMemory> memory)
    : layout_(layout), memory_(std::move(memory)), owners_(num_units, 0), free_(num_units) {
  std::iota(free_.rbegin(), free_.rend(), 0);  // the first is taken first
}

int32_t KvGroup::take() {
  const int32_t unit = free_.back();
  free_.pop_back();
  owners_[unit] = 1;
  return unit;
}

void KvGroup::give_back(int32_t unit) {
  if (--owners_[unit] == 0) free_.push_back(unit);
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
    bytes += (group.num_units() - group.num_free()) * cache_unit_bytes(group.layout(), type_);
  }
  return bytes;
}

namespace {

bool is_long_text(const KvPool& pool, int64_t length) {
  const int64_t after = pool.layout().long_after;
  return after > 0 && length > after;
}

}  // namespace

Sequence::Sequence(KvPool& pool, int64_t max_length)
    : pool_(&pool),
      max_length_(max_length),
      is_long_(is_long_text(pool, max_length)),
      tables_(pool.groups_.size()) {}

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(other.pool_),
      max_length_(other.max_length_),
      length_(std::exchange(other.length_, 0)),
      is_long_(other.is_long_),
      tables_(std::exchange(other.tables_, {})) {}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(max_length_, other.max_length_);
  std::swap(length_, other.length_);
  std::swap(is_long_, other.is_long_);
  std::swap(tables_, other.tables_);
  return *this;
}

void Sequence::begin(int64_t length) {
  truncate(0);
  is_long_ = is_long_text(*pool_, length);
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

bool Sequence::holds(int64_t length) const {
  if (length > length_) return false;
  if (length == 0) return true;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const CacheGroup& layout = pool_->groups_[i].layout();
    const Table& table = tables_[i];
    const int64_t first_seen = std::max<int64_t>(0, length - layout.window + 1);
    const bool is_there =
        layout.is_state()
            ? std::ranges::find(table.states, length, &State::length) != table.states.end()
            : table.first_page == 0 ||
                  (layout.window > 0 && first_seen / kPagePositions >= table.first_page);
    if (!is_there) return false;
  }
  return true;
}

Sequence Sequence::share(int64_t length) const {
  Sequence other(*pool_, max_length_);
  length = std::min(length, length_);
  if (length == 0 || !holds(length)) return other;
  other.is_long_ = is_long_;
  other.length_ = length;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    KvGroup& group = pool_->groups_[i];
    const Table& from = tables_[i];
    Table& to = other.tables_[i];
    if (group.layout().is_state()) {
      to.states.push_back(*std::ranges::find(from.states, other.length_, &State::length));
      group.share(to.states.front().state);
      continue;
    }
    to.pages.assign(from.pages.begin(), from.pages.begin() + kv_pages(other.length_));
    to.first_page = std::min(from.first_page, std::ssize(to.pages));
    for (std::size_t page = to.first_page; page < to.pages.size(); ++page) {
      group.share(to.pages[page]);
    }
  }
  return other;
}

Status Sequence::no_pages(int64_t tokens, const KvGroup& group, int64_t wanted) const {
  const std::string what = group.layout().is_state() ? " more states" : " more pages";
  return Error{"kv.no_pages",
               std::to_string(tokens) + " more positions need " + std::to_string(wanted) + what +
                   " of the key-value cache, of which " + std::to_string(group.num_free()) +
                   " of " + std::to_string(group.num_units()) + " are free"};
}

/// Only the page that the next position lies in can be shared: later ones are taken anew.
bool Sequence::copies(const KvGroup& group, const Table& table, int64_t tokens) const {
  return tokens > 0 && length_ % kPagePositions > 0 &&
         group.is_shared(table.pages[length_ / kPagePositions]);
}

int64_t Sequence::wanted(const KvGroup& group, const Table& table, int64_t tokens) const {
  if (group.layout().is_state()) return tokens > 0 && table.next_state == kNoPage ? 1 : 0;
  const int64_t grows = kv_pages(length_ + tokens) - std::ssize(table.pages);
  return std::max<int64_t>(0, grows) + (copies(group, table, tokens) ? 1 : 0);
}

bool Sequence::has_room_for(int64_t tokens, int64_t spare) const {
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const KvGroup& group = pool_->groups_[i];
    if (wanted(group, tables_[i], tokens) + spare > group.num_free()) return false;
  }
  return true;
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
    if (copies(group, table, tokens)) {
      int32_t& page = table.pages[length_ / kPagePositions];
      const int32_t copy = group.take();
      group.memory().copy_page(page, copy, length_ % kPagePositions);
      group.give_back(std::exchange(page, copy));
    }
    while (std::ssize(table.pages) < kv_pages(length_ + tokens)) {
      table.pages.push_back(group.take());
    }
  }
  return {};
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
  length_ = length;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    KvGroup& group = pool_->groups_[i];
    Table& table = tables_[i];
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
