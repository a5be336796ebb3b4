#include "text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <tuple>

#include "text/byte_alphabet.h"

namespace subbyte {

bool Vocabulary::add(std::string_view key, TokenId id) {
  const auto idx = static_cast<std::size_t>(id);
  if (idx >= entries_.size()) entries_.resize(idx + 1);
  Entry& made = entries_[idx];
  if (made.exists) return false;
  const auto bytes = byte_alphabet::bytes_of(key);
  const std::string_view text = bytes ? std::string_view(*bytes) : key;
  made.begin = static_cast<uint32_t>(texts_.size());
  made.length = static_cast<uint32_t>(text.size()) & ((1U << 30) - 1);
  made.spells = bytes ? 1 : 0;
  made.exists = 1;
  texts_ += text;
  return true;
}

std::optional<TokenId> Vocabulary::finish() {
  texts_.shrink_to_fit();
  entries_.shrink_to_fit();
  const auto count = static_cast<std::size_t>(
      std::ranges::count_if(entries_, [](const Entry& entry) { return entry.exists == 1; }));
  first_.assign(std::bit_floor(std::max<std::size_t>(count, 1)) + 1, 0);
  ids_.resize(count);
  for (const Entry& entry : entries_) {
    if (entry.exists) ++first_[bucket_of(text(entry)) + 1];
  }
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  std::vector<uint32_t> next(first_.begin() + 1, first_.end());
  for (std::size_t id = 0; id < entries_.size(); ++id) {
    if (entries_[id].exists) ids_[--next[bucket_of(text(entries_[id]))]] = static_cast<TokenId>(id);
  }
  const auto order = [&](TokenId id) {
    const Entry& entry = entries_[static_cast<std::size_t>(id)];
    return std::tuple(text(entry), uint32_t{entry.spells});
  };
  for (std::size_t bucket = 0; bucket + 1 < first_.size(); ++bucket) {
    const std::span<TokenId> ids =
        std::span(ids_).subspan(first_[bucket], first_[bucket + 1] - first_[bucket]);
    if (ids.size() < 2) continue;
    std::ranges::sort(ids, {}, order);
    const auto twin = std::ranges::adjacent_find(ids, {}, order);
    if (twin != ids.end()) return *twin;
  }
  return std::nullopt;
}

std::size_t Vocabulary::bucket_of(std::string_view text) const {
  return std::hash<std::string_view>()(text) & (first_.size() - 2);
}

std::optional<TokenId> Vocabulary::find_text(std::string_view text, bool spells) const {
  const std::size_t bucket = bucket_of(text);
  const auto end = ids_.begin() + first_[bucket + 1];
  const auto wanted = std::tuple(text, uint32_t{spells});
  const auto found = std::lower_bound(
      ids_.begin() + first_[bucket], end, wanted, [&](TokenId id, const auto& key) {
        const Entry& entry = entries_[static_cast<std::size_t>(id)];
        return std::tuple(this->text(entry), uint32_t{entry.spells}) < key;
      });
  if (found == end || this->text(*found) != text || spells_bytes(*found) != spells) {
    return std::nullopt;
  }
  return *found;
}

std::optional<TokenId> Vocabulary::find(std::string_view key) const {
  const auto bytes = byte_alphabet::bytes_of(key);
  return bytes ? find_text(*bytes, true) : find_text(key, false);
}

const Vocabulary::Entry* Vocabulary::entry(TokenId id) const {
  const auto idx = static_cast<std::size_t>(id);
  return id >= 0 && idx < entries_.size() && entries_[idx].exists ? &entries_[idx] : nullptr;
}

bool Vocabulary::contains(TokenId id) const {
  return entry(id) != nullptr;
}

std::string_view Vocabulary::text(TokenId id) const {
  const Entry* found = entry(id);
  return found == nullptr ? std::string_view() : text(*found);
}

std::string Vocabulary::key(TokenId id) const {
  const Entry* found = entry(id);
  if (found == nullptr) return {};
  if (!found->spells) return std::string(text(*found));
  std::string made;
  byte_alphabet::append_characters(text(*found), made);
  return made;
}

bool Vocabulary::spells_bytes(TokenId id) const {
  const Entry* found = entry(id);
  return found != nullptr && found->spells;
}

std::size_t Vocabulary::memory() const {
  const std::size_t held = texts_.size() + entries_.size() * sizeof(Entry);
  // What grows holds its elements three times over for a moment.
  return first_.empty() ? 3 * held : held + (first_.size() + ids_.size()) * sizeof(uint32_t);
}

}  // namespace subbyte
