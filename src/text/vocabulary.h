#pragma once
// The tokens of a vocabulary, by id and by text. A vocabulary of a stranger has millions of short
// entries; so it takes 17 bytes an entry beside the text (24 and three times the text while it
// grows), nothing in it has a bad case that a file could bring about, and a search leaves the
// caches as seldom as it can: that is what it costs when there are millions.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace subbyte {

class Vocabulary {
 public:
  /// `key` is an entry as the file spells it: bytes in the alphabet of byte_alphabet.h, or text
  /// that spells none. False when the id is taken. Ids are at least 0, all
  /// texts together less than 2^30 bytes.
  bool add(std::string_view key, TokenId id);

  /// After the last add(), before anything is looked for. An id whose key came twice, if there is
  /// one.
  std::optional<TokenId> finish();

  /// By the key.
  std::optional<TokenId> find(std::string_view key) const;
  /// By the bytes that the key spells.
  std::optional<TokenId> find_bytes(std::string_view bytes) const { return find_text(bytes, true); }

  bool contains(TokenId id) const;
  /// The bytes that the key spells, or the key where it spells none; empty where there is no entry.
  std::string_view text(TokenId id) const;
  /// The entry as the file spells it; empty where there is none.
  std::string key(TokenId id) const;
  /// Says whether text() is bytes that were spelled.
  bool spells_bytes(TokenId id) const;
  /// One more than the largest id.
  TokenId size() const { return static_cast<TokenId>(entries_.size()); }
  bool empty() const { return entries_.empty(); }
  /// Bytes that it takes at most: before finish(), then too.
  std::size_t memory() const;

 private:
  struct Entry {
    uint32_t begin = 0;  // in texts_
    uint32_t length : 30 = 0;
    uint32_t spells : 1 = 0;
    uint32_t exists : 1 = 0;
  };

  const Entry* entry(TokenId id) const;
  std::string_view text(const Entry& entry) const {
    return std::string_view(texts_).substr(entry.begin, entry.length);
  }
  /// An entry by the first 32 bits of the hash of its text.
  struct Slot {
    uint32_t tag;
    TokenId id;
  };

  std::vector<Slot> hashed_entries() const;
  void divide_into_buckets();
  bool comes_before(const Slot& slot, uint32_t tag, std::string_view text, bool spells) const;
  std::optional<TokenId> twin_of(std::span<const Slot> sorted) const;
  std::size_t bucket_of(uint32_t tag) const { return uint64_t{tag} >> shift_; }
  std::optional<TokenId> find_text(std::string_view text, bool spells) const;

  std::string texts_;
  std::vector<Entry> entries_;  // by id
  // In the order of their tags, and of their texts where tags are the same, so that many of one
  // hash are searched quickly, too; first_[bucket] is where those begin whose tags have these first
  // bits: a line or two of the cache.
  std::vector<Slot> slots_;
  std::vector<uint32_t> first_;
  unsigned shift_ = 32;
};

}  // namespace subbyte
