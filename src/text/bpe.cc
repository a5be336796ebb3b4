// Most pieces are words, and of those a scan over all pairs finds the lowest rank soonest. Longer
// ones take a heap:
//
// Symbols are a doubly linked list in an array, one element per symbol at first; a merge keeps the
// left element and unlinks the right one. The heap holds one entry per pair that can be merged. A
// merge changes the pairs on both sides; their old entries stay in the heap and are known as stale
// because the rank that they carry is no longer that of their symbol.
//
// Every merge shortens the list by one and adds at most two entries, so n symbols make fewer than
// 3 n.

#include "text/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

namespace subbyte {
namespace {

constexpr std::size_t kMaxShort = 32;      // symbols that are scanned
constexpr std::size_t kMaxDistance = 256;  // of a pair from its place
constexpr uint64_t kMultipliers[] = {0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F,
                                     0xE7037ED1A0B428DB};

}  // namespace

Bpe::Bpe(std::vector<Merge> merges, const std::vector<bool>& is_reserved)
    : merges_(std::move(merges)) {
  makes_reserved_.reserve(merges_.size());
  for (const Merge& merge : merges_) {
    makes_reserved_.push_back(is_reserved[static_cast<std::size_t>(merge.result)]);
  }
  for (const uint64_t multiplier : kMultipliers) {
    if (fill_slots(multiplier)) return;
  }
  slots_ = {};
  sort_ranks();
}

/// False where some pair would stand too far from its place.
bool Bpe::fill_slots(uint64_t multiplier) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(merges_.size() / 2 * 3, 16));
  multiplier_ = multiplier;
  shift_ = static_cast<unsigned>(64 - std::countr_zero(size));
  slots_.assign(size + kMaxDistance, kNone);
  for (uint32_t rank = 0; rank < merges_.size(); ++rank) {
    const Merge& merge = merges_[rank];
    const std::size_t place = slot_of(merge.left, merge.right);
    const auto is_taken = [&](uint32_t other) {
      return other != kNone && !is_pair(other, merge.left, merge.right);
    };
    std::size_t slot = place;
    while (slot < place + kMaxDistance && is_taken(slots_[slot])) ++slot;
    if (slot == place + kMaxDistance) return false;
    slots_[slot] = rank;
  }
  return true;
}

void Bpe::sort_ranks() {
  sorted_.resize(merges_.size());
  std::iota(sorted_.begin(), sorted_.end(), 0U);
  std::ranges::sort(sorted_, {}, [&](uint32_t rank) {
    return std::tuple(merges_[rank].left, merges_[rank].right, rank);
  });
}

std::size_t Bpe::slot_of(TokenId left, TokenId right) const {
  const uint64_t key =
      static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  return static_cast<std::size_t>((key ^ key >> 29) * multiplier_ >> shift_);
}

uint32_t Bpe::find(TokenId left, TokenId right) const {
  if (slots_.empty()) return find_sorted(left, right);
  const uint32_t* slot = &slots_[slot_of(left, right)];
  for (const uint32_t* end = slot + kMaxDistance; slot < end && *slot != kNone; ++slot) {
    if (is_pair(*slot, left, right)) return *slot;
  }
  return kNone;
}

/// The last one of equal pairs.
uint32_t Bpe::find_sorted(TokenId left, TokenId right) const {
  const auto pair_of = [&](uint32_t rank) {
    return std::pair(merges_[rank].left, merges_[rank].right);
  };
  const auto after = std::ranges::upper_bound(sorted_, std::pair(left, right), {}, pair_of);
  if (after == sorted_.begin() || !is_pair(*std::prev(after), left, right)) return kNone;
  return *std::prev(after);
}

void Bpe::encode_short(std::span<const TokenId> symbols, bool avoid_reserved, Scratch& scratch,
                       std::vector<TokenId>& ids) const {
  std::array<TokenId, kMaxShort> left;
  std::array<uint32_t, kMaxShort> ranks;  // of each symbol with the next one
  std::size_t size = symbols.size();
  std::ranges::copy(symbols, left.begin());
  const auto update = [&](std::size_t i) {
    ++scratch.num_lookups;
    ranks[i] = rank_of(left[i], left[i + 1], avoid_reserved);
  };
  for (std::size_t i = 0; i + 1 < size; ++i) update(i);
  while (size > 1) {
    const auto lowest = std::min_element(ranks.begin(), ranks.begin() + size - 1);
    if (*lowest == kNone) break;
    const auto i = static_cast<std::size_t>(lowest - ranks.begin());
    left[i] = merges_[*lowest].result;
    std::copy(left.begin() + i + 2, left.begin() + size, left.begin() + i + 1);
    if (i + 2 < size)
      std::copy(ranks.begin() + i + 2, ranks.begin() + size - 1, ranks.begin() + i + 1);
    --size;
    if (i + 1 < size) update(i);
    if (i > 0) update(i - 1);
  }
  ids.insert(ids.end(), left.begin(), left.begin() + size);
}

void Bpe::encode(std::span<const TokenId> first, bool avoid_reserved, Scratch& scratch,
                 std::vector<TokenId>& ids) const {
  if (first.size() <= kMaxShort) return encode_short(first, avoid_reserved, scratch, ids);
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto idx = static_cast<uint32_t>(i);
    symbols.push_back({first[i], i == 0 ? kNone : idx - 1, idx + 1, kNone});
  }
  symbols.back().next = kNone;

  const auto later = std::greater<uint64_t>();
  const auto update = [&](uint32_t idx) {
    auto& symbol = symbols[idx];
    symbol.rank = kNone;
    if (symbol.next == kNone) return;
    ++scratch.num_lookups;
    symbol.rank = rank_of(symbol.id, symbols[symbol.next].id, avoid_reserved);
    if (symbol.rank == kNone) return;
    ++scratch.num_heap_entries;
    heap.push_back(static_cast<uint64_t>(symbol.rank) << 32 | idx);
  };
  for (uint32_t idx = 0; idx < symbols.size(); ++idx) update(idx);
  std::make_heap(heap.begin(), heap.end(), later);
  const auto update_and_sift = [&](uint32_t idx) {
    const std::size_t before = heap.size();
    update(idx);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
  };

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto idx = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    auto& symbol = symbols[idx];
    if (symbol.rank != rank) continue;
    auto& gone = symbols[symbol.next];
    symbol.id = merges_[rank].result;
    gone.rank = kNone;
    symbol.next = gone.next;
    if (symbol.next != kNone) symbols[symbol.next].previous = idx;
    update_and_sift(idx);
    if (symbol.previous != kNone) update_and_sift(symbol.previous);
  }
  for (uint32_t idx = 0; idx != kNone; idx = symbols[idx].next) ids.push_back(symbols[idx].id);
}

}  // namespace subbyte
