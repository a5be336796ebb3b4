// Symbols are a doubly linked list in an array, one element per byte at first; a merge keeps the
// left element and unlinks the right one. The heap holds one entry per pair that can be merged. A
// merge changes the pairs on both sides; their old entries stay in the heap and are known as stale
// because the rank that they carry is no longer that of their symbol.
//
// Every merge shortens the list by one and adds at most two entries, so n bytes make fewer than 3
// n.

#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

namespace subbyte {

Bpe::Bpe(const std::array<TokenId, 256>& byte_ids, const std::vector<Merge>& merges,
         const std::vector<bool>& is_added)
    : byte_ids_(byte_ids), first_(is_added.size() + 1, 0) {
  std::vector<uint32_t> order(merges.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](uint32_t rank) {
    return std::tuple(merges[rank].left, merges[rank].right, rank);
  });
  results_.reserve(merges.size());
  makes_added_.reserve(merges.size());
  for (const Merge& merge : merges) {
    results_.push_back(merge.result);
    makes_added_.push_back(is_added[static_cast<std::size_t>(merge.result)]);
  }
  rights_.reserve(merges.size());
  ranks_.reserve(merges.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Merge& merge = merges[order[i]];
    if (i + 1 < order.size()) {
      const Merge& next = merges[order[i + 1]];
      if (next.left == merge.left && next.right == merge.right) continue;
    }
    rights_.push_back(merge.right);
    ranks_.push_back(order[i]);
    ++first_[static_cast<std::size_t>(merge.left) + 1];
  }
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
}

uint32_t Bpe::rank_of(TokenId left, TokenId right, bool avoid_added) const {
  const auto left_idx = static_cast<std::size_t>(left);
  const auto begin = rights_.begin() + first_[left_idx];
  const auto end = rights_.begin() + first_[left_idx + 1];
  const auto found = std::lower_bound(begin, end, right);
  if (found == end || *found != right) return kNone;
  const uint32_t rank = ranks_[static_cast<std::size_t>(found - rights_.begin())];
  return avoid_added && makes_added_[rank] ? kNone : rank;
}

void Bpe::encode(std::string_view piece, bool avoid_added, Scratch& scratch,
                 std::vector<TokenId>& ids) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  if (piece.empty()) return;
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const auto idx = static_cast<uint32_t>(i);
    const TokenId id = byte_ids_[static_cast<unsigned char>(piece[i])];
    symbols.push_back({id, i == 0 ? kNone : idx - 1, idx + 1, kNone});
  }
  symbols.back().next = kNone;

  const auto later = std::greater<uint64_t>();
  const auto update = [&](uint32_t idx) {
    auto& symbol = symbols[idx];
    symbol.rank = kNone;
    if (symbol.next == kNone) return;
    ++scratch.num_lookups;
    symbol.rank = rank_of(symbol.id, symbols[symbol.next].id, avoid_added);
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
    symbol.id = results_[rank];
    gone.rank = kNone;
    symbol.next = gone.next;
    if (symbol.next != kNone) symbols[symbol.next].previous = idx;
    update_and_sift(idx);
    if (symbol.previous != kNone) update_and_sift(symbol.previous);
  }
  for (uint32_t idx = 0; idx != kNone; idx = symbols[idx].next) ids.push_back(symbols[idx].id);
}

}  // namespace subbyte
