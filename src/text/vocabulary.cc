#include "text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <tuple>

#include "unicode/byte_alphabet.h"

namespace subbyte {
namespace {

constexpr std::size_t kSlotsOfBucket = 8;
constexpr unsigned kDigitBits = 11;  // so many places to write to that their pages are at hand

uint32_t tag_of(std::string_view text) {
  static_assert(sizeof(std::size_t) == 8);
  return static_cast<uint32_t>(std::hash<std::string_view>()(text) >> 32);
}

}  // namespace

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

std::vector<Vocabulary::Slot> Vocabulary::hashed_entries() const {
  std::vector<Slot> slots;
  slots.reserve(static_cast<std::size_t>(
      std::ranges::count_if(entries_, [](const Entry& entry) { return entry.exists == 1; })));
  for (std::size_t id = 0; id < entries_.size(); ++id) {
    if (entries_[id].exists) {
      slots.push_back({tag_of(text(entries_[id])), static_cast<TokenId>(id)});
    }
  }
  return slots;
}

/// Sorts the slots by the first bits of their tags and says where each bucket begins. By digits, as
/// each pass then writes to few places at a time: slots that are sent to their buckets at once wait
/// for memory, each of them.
void Vocabulary::divide_into_buckets() {
  const auto bits = static_cast<unsigned>(std::bit_width(slots_.size() / kSlotsOfBucket));
  shift_ = 32 - bits;
  std::vector<Slot> sorted(slots_.size());
  for (unsigned done = 0; done < bits; done += kDigitBits) {
    const unsigned width = std::min(kDigitBits, bits - done);
    const auto digit = [&](const Slot& slot) {
      return bucket_of(slot.tag) >> done & ((std::size_t{1} << width) - 1);
    };
    std::vector<uint32_t> next((std::size_t{1} << width) + 1);
    for (const Slot& slot : slots_) ++next[digit(slot) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    for (const Slot& slot : slots_) sorted[next[digit(slot)]++] = slot;
    slots_.swap(sorted);
  }
  first_.assign((std::size_t{1} << bits) + 1, 0);
  for (const Slot& slot : slots_) ++first_[bucket_of(slot.tag) + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
}

std::optional<TokenId> Vocabulary::finish() {
  texts_.shrink_to_fit();
  entries_.shrink_to_fit();
  slots_ = hashed_entries();
  divide_into_buckets();
  for (std::size_t bucket = 0; bucket + 1 < first_.size(); ++bucket) {
    const std::span<Slot> slots =
        std::span(slots_).subspan(first_[bucket], first_[bucket + 1] - first_[bucket]);
    std::ranges::sort(slots, [&](const Slot& a, const Slot& b) {
      if (a.tag != b.tag) return a.tag < b.tag;  // without a look at the texts, which lie elsewhere
      return comes_before(a, b.tag, text(b.id), spells_bytes(b.id));
    });
    if (const auto twin = twin_of(slots)) return twin;
  }
  return std::nullopt;
}

bool Vocabulary::comes_before(const Slot& slot, uint32_t tag, std::string_view text,
                              bool spells) const {
  if (slot.tag != tag) return slot.tag < tag;
  return std::tuple(this->text(slot.id), spells_bytes(slot.id)) < std::tuple(text, spells);
}

std::optional<TokenId> Vocabulary::twin_of(std::span<const Slot> sorted) const {
  const auto is_same = [&](const Slot& a, const Slot& b) {
    return a.tag == b.tag && text(a.id) == text(b.id) && spells_bytes(a.id) == spells_bytes(b.id);
  };
  const auto twin = std::ranges::adjacent_find(sorted, is_same);
  return twin == sorted.end() ? std::nullopt : std::optional(twin->id);
}

std::optional<TokenId> Vocabulary::find_text(std::string_view text, bool spells) const {
  const uint32_t tag = tag_of(text);
  const std::size_t bucket = bucket_of(tag);
  const auto end = slots_.begin() + first_[bucket + 1];
  const auto found = std::lower_bound(
      slots_.begin() + first_[bucket], end, tag,
      [&](const Slot& slot, uint32_t) { return comes_before(slot, tag, text, spells); });
  if (found == end || found->tag != tag || this->text(found->id) != text ||
      spells_bytes(found->id) != spells) {
    return std::nullopt;
  }
  return found->id;
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
  if (first_.empty()) return 3 * held;
  return held + first_.size() * sizeof(uint32_t) + slots_.size() * sizeof(Slot);
}

}  // namespace subbyte
