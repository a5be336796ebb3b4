#pragma once
// Byte pair encoding of one piece of text: the pair of neighbours with the lowest rank is joined,
// the leftmost one on ties, until none is left.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
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

  /// Longest piece in bytes. Links between symbols are 32 bits wide; the largest text that
  /// Tokenizer::encode takes stays below this even after U+FFFD and NFC made it 9 times longer.
  static constexpr std::size_t kMaxPieceBytes = 0xFFFFFFFE;

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

  /// `byte_ids[b]` is the token of the single byte b; `merges` in order of rank, of two equal
  /// pairs the last one holds. `is_added[id]` marks ids that only added tokens may have.
  Bpe(const std::array<TokenId, 256>& byte_ids, const std::vector<Merge>& merges,
      const std::vector<bool>& is_added);

  /// Appends the tokens of `piece`. With `avoid_added` merges that would make the id of an added
  /// token do not exist. Takes O(n log n) for n bytes; never recurses.
  void encode(std::string_view piece, bool avoid_added, Scratch& scratch,
              std::vector<TokenId>& ids) const;

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  uint32_t rank_of(TokenId left, TokenId right, bool avoid_added) const;

  std::array<TokenId, 256> byte_ids_;
  // Pairs by their left token: rights_[first_[left] .. first_[left + 1]), sorted. Unlike a hash
  // table this has no bad case that a file could bring about.
  std::vector<uint32_t> first_;
  std::vector<TokenId> rights_;
  std::vector<uint32_t> ranks_;
  std::vector<TokenId> results_;   // by rank
  std::vector<bool> makes_added_;  // by rank
};

}  // namespace subbyte
