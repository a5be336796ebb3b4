// General categories are those of utf8proc, which also knows the compositions of NFC: one version
// of Unicode for the whole tokenizer.

#include "text/character_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>
#include <utility>

namespace subbyte {
namespace {

constexpr char32_t kEnd = 0x110000;
constexpr std::size_t kMaxTests = std::size_t{1} << 25;  // of a segment against a set: 0.3 s

// In the order of utf8proc_category_t.
constexpr std::array<std::string_view, 30> kCategories = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
static_assert(UTF8PROC_CATEGORY_CN == 0 && UTF8PROC_CATEGORY_ND == 9 &&
              UTF8PROC_CATEGORY_SO == 22 && UTF8PROC_CATEGORY_CO == 29);

unsigned category_of(char32_t point) {
  return static_cast<unsigned>(utf8proc_category(static_cast<utf8proc_int32_t>(point)));
}

/// Where the category changes. Takes some milliseconds, once in a process.
const std::vector<char32_t>& category_starts() {
  static const std::vector<char32_t> starts = [] {
    std::vector<char32_t> found = {0};
    unsigned last = category_of(0);
    for (char32_t point = 1; point < kEnd; ++point) {
      const unsigned category = category_of(point);
      if (category != last) found.push_back(point);
      last = category;
    }
    return found;
  }();
  return starts;
}

/// First code points of the segments in which no set changes.
std::vector<char32_t> segment_starts(const std::vector<CharacterSet>& sets) {
  std::vector<char32_t> starts = category_starts();
  for (const CharacterSet& set : sets) {
    for (const CharacterSet::Range& range : set.ranges) {
      starts.push_back(range.first);
      if (range.last + 1 < kEnd) starts.push_back(range.last + 1);
    }
  }
  std::ranges::sort(starts);
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  return starts;
}

}  // namespace

uint32_t CharacterSet::category_bits(std::string_view name) {
  uint32_t bits = 0;
  for (std::size_t i = 0; i < kCategories.size(); ++i) {
    const bool one = name.size() == 2 && kCategories[i] == name;
    const bool all = name.size() == 1 && kCategories[i][0] == name[0];
    if (one || all) bits |= uint32_t{1} << i;
  }
  return bits;
}

void CharacterSet::add(const CharacterSet& other) {
  ranges.insert(ranges.end(), other.ranges.begin(), other.ranges.end());
  categories |= other.categories;
}

void CharacterSet::normalize() {
  std::ranges::sort(ranges);
  std::vector<Range> joined;
  for (const Range& range : ranges) {
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  ranges = std::move(joined);
}

bool CharacterSet::contains(char32_t point, unsigned category) const {
  const auto after = std::ranges::upper_bound(ranges, point, {}, &Range::first);
  const bool in_range = after != ranges.begin() && point <= std::prev(after)->last;
  return (in_range || (categories >> category & 1) != 0) != negated;
}

Result<CharacterClasses> CharacterClasses::of(const std::vector<CharacterSet>& sets) {
  const std::vector<char32_t> starts = segment_starts(sets);
  if (starts.size() * (sets.size() + 1) > kMaxTests) {
    return Error{"tokenizer.regex_too_complex", "it has too many sets of characters"};
  }
  CharacterClasses made;
  std::map<std::vector<bool>, uint16_t> known;
  std::vector<uint16_t> classes;
  for (const char32_t point : starts) {
    const unsigned category = category_of(point);
    std::vector<bool> members(sets.size());
    for (std::size_t i = 0; i < sets.size(); ++i) members[i] = sets[i].contains(point, category);
    const auto [entry, is_new] = known.emplace(members, static_cast<uint16_t>(known.size()));
    if (is_new) made.members_.push_back(std::move(members));
    if (known.size() > UINT16_MAX) {
      return Error{"tokenizer.regex_too_complex", "it tells too many characters apart"};
    }
    classes.push_back(entry->second);
  }
  made.fill(starts, classes);
  return made;
}

void CharacterClasses::fill(const std::vector<char32_t>& starts,
                            const std::vector<uint16_t>& classes) {
  std::map<std::vector<uint16_t>, uint16_t> known;
  std::vector<uint16_t> block(kBlock);
  bool was_uniform = false;
  std::size_t segment = 0;
  const auto begins_next = [&](char32_t point) {
    return segment + 1 < starts.size() && point >= starts[segment + 1];
  };
  for (char32_t first = 0; first < kEnd; first += kBlock) {
    while (begins_next(first)) ++segment;
    // Most blocks lie in one segment, many after another one.
    const bool is_uniform = !begins_next(first + kBlock - 1);
    if (is_uniform && first > 0 && was_uniform && block.front() == classes[segment]) {
      index_.push_back(index_.back());
      continue;
    }
    for (char32_t point = first; point < first + kBlock; ++point) {
      if (begins_next(point)) ++segment;
      block[point % kBlock] = classes[segment];
    }
    was_uniform = is_uniform;
    const auto [entry, is_new] = known.emplace(block, static_cast<uint16_t>(known.size()));
    if (is_new) blocks_.insert(blocks_.end(), block.begin(), block.end());
    index_.push_back(entry->second);
  }
  std::copy_n(blocks_.begin(), ascii_.size(), ascii_.begin());  // the first block
}

}  // namespace subbyte
