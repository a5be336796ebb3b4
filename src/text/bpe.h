#pragma once
// Byte pair encoding of one piece of text: the pair of neighbours with the lowest rank is joined,
// the leftmost one on ties, until none is left.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace subbyte {

class Bpe {
 public:
  struct Merge {
    TokenId left;
    TokenId right;
    TokenId result;
  };

  /// Most symbols of a piece. Links between them are 32 bits wide; the largest text that
  /// Tokenizer::encode makes stays below this.
  static constexpr std::size_t kMaxSymbols = 0xFFFFFFFE;

  /// Memory that encode() works in, kept from piece to piece, and the work that it did.
  struct Scratch {
    struct Symbol {
      TokenId id;
      uint32_t previous;
      uint32_t next;
      uint32_t rank;  // of the pair of this symbol and the next one
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;  // rank << 32 | index of the left symbol
    std::size_t num_heap_entries = 0;
    std::size_t num_lookups = 0;
  };

  /// `merges` in order of rank, of two equal pairs the last one holds. `is_reserved[id]` marks ids
  /// that text may not become where encode() avoids them.
  Bpe(std::vector<Merge> merges, const std::vector<bool>& is_reserved);

  const std::vector<Merge>& merges() const { return merges_; }

  /// Appends the tokens that `symbols` become. With `avoid_reserved` merges that would make a
  /// reserved id do not exist. Takes O(n log n) for n symbols; never recurses.
  void encode(std::span<const TokenId> symbols, bool avoid_reserved, Scratch& scratch,
              std::vector<TokenId>& ids) const;

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  bool fill_slots(uint64_t multiplier);
  void sort_ranks();
  bool is_pair(uint32_t rank, TokenId left, TokenId right) const {
    return merges_[rank].left == left && merges_[rank].right == right;
  }
  std::size_t slot_of(TokenId left, TokenId right) const;
  uint32_t find(TokenId left, TokenId right) const;
  uint32_t find_sorted(TokenId left, TokenId right) const;
  uint32_t rank_of(TokenId left, TokenId right, bool avoid_reserved) const {
    const uint32_t rank = find(left, right);
    return rank != kNone && avoid_reserved && makes_reserved_[rank] ? kNone : rank;
  }
  void encode_short(std::span<const TokenId> symbols, bool avoid_reserved, Scratch& scratch,
                    std::vector<TokenId>& ids) const;

  std::vector<Merge> merges_;         // by rank
  std::vector<bool> makes_reserved_;  // by rank
  // Ranks by the hash of the pair. No file can make this slow: where pairs stand too far from their
  // places, another hash is taken, and after some of those the sorted list below.
  std::vector<uint32_t> slots_;
  uint64_t multiplier_ = 0;
  unsigned shift_ = 0;
  std::vector<uint32_t> sorted_;  // ranks by pair, where there are no slots
};

}  // namespace subbyte
