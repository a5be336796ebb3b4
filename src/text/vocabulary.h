#pragma once
// The tokens of a vocabulary, by id and by text. A vocabulary of a stranger has millions of short
// entries; so it takes 16 bytes an entry beside the text (24 and three times the text while it
// grows), and nothing in it has a bad case that a file could bring about.

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
  std::size_t bucket_of(std::string_view text) const;
  std::optional<TokenId> find_text(std::string_view text, bool spells) const;

  std::string texts_;
  std::vector<Entry> entries_;  // by id
  // Ids by the hash of their texts: ids_[first_[bucket] .. first_[bucket + 1]), in the order of the
  // texts, so that many in one bucket are searched quickly, too.
  std::vector<uint32_t> first_;
  std::vector<TokenId> ids_;
};

}  // namespace subbyte
