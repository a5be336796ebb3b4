#pragma once
// The tokens of short pieces of text that came before. Texts are mostly made of words that come
// again, and a look-up takes a tenth of the merges.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace subbyte {

/// Has one entry for each hash: what comes later takes the place of what was there, so no text
/// makes it slow.
class WordCache {
 public:
  /// Room for the words of a text of so many bytes.
  explicit WordCache(std::size_t text_bytes)
      : entries_(std::bit_floor(std::clamp<std::size_t>(text_bytes / 8, 64, kMaxEntries))),
        shift_(static_cast<unsigned>(64 - std::countr_zero(entries_.size()))) {}

  /// The bytes of a word and their number.
  struct Key {
    uint64_t low = 0;
    uint64_t high = 0;  // the number in the highest byte

    bool operator==(const Key&) const = default;
  };
  static constexpr std::size_t kMaxBytes = 15;
  static constexpr std::size_t kMaxTokens = 3;

  /// The key of a word of 1 to kMaxBytes. Loads of a fixed size, which overlap, take a third of the
  /// time of a copy of any size.
  static Key key_of(std::string_view word) {
    const char* bytes = word.data();
    const std::size_t size = word.size();
    Key key;
    if (size >= 8) {
      key.low = load<uint64_t>(bytes);
      if (size > 8) key.high = load<uint64_t>(bytes + size - 8) >> 8 * (16 - size);
    } else if (size >= 4) {
      key.low = load<uint32_t>(bytes) | uint64_t{load<uint32_t>(bytes + size - 4)}
                                            << 8 * (size - 4);
    } else {
      const std::size_t middle = size / 2;
      key.low = uint64_t{load<uint8_t>(bytes)} |
                uint64_t{load<uint8_t>(bytes + middle)} << 8 * middle |
                uint64_t{load<uint8_t>(bytes + size - 1)} << 8 * (size - 1);
    }
    key.high |= uint64_t{size} << 56;
    return key;
  }

  /// The tokens of a word; empty where they are not known.
  std::span<const TokenId> find(const Key& key) const {
    const Entry& entry = entries_[place_of(key)];
    return {entry.tokens.data(), entry.key == key ? entry.count : 0};
  }

  void put(const Key& key, std::span<const TokenId> tokens) {
    if (tokens.empty() || tokens.size() > kMaxTokens) return;
    Entry& entry = entries_[place_of(key)];
    entry.key = key;
    entry.count = static_cast<uint32_t>(tokens.size());
    std::ranges::copy(tokens, entry.tokens.begin());
  }

 private:
  static constexpr std::size_t kMaxEntries = std::size_t{1} << 15;  // 1 MiB

  struct Entry {
    Key key;
    uint32_t count = 0;
    std::array<TokenId, kMaxTokens> tokens{};
  };

  template <typename T>
  static T load(const char* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  }

  std::size_t place_of(const Key& key) const {
    const uint64_t mixed = (key.low ^ std::rotl(key.high, 29)) * 0x9E3779B97F4A7C15;
    return static_cast<std::size_t>(mixed >> shift_);
  }

  std::vector<Entry> entries_;
  unsigned shift_;
};

}  // namespace subbyte
