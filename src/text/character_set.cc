#include "text/character_set.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "unicode/unicode.h"

namespace subbyte {
namespace {

using unicode::kEnd;
constexpr std::size_t kMaxTests = std::size_t{1} << 25;  // of a segment against a set: 0.3 s

/// First code points of the segments in which no set changes.
std::vector<char32_t> segment_starts(std::span<const CharacterSet> sets) {
  std::vector<char32_t> starts = unicode::category_starts();
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

CharacterSet CharacterSet::spelled_out() const {
  CharacterSet made;
  CharacterSet within = *this;
  within.normalize();
  const std::vector<char32_t> starts = segment_starts({&within, 1});
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const char32_t end = i + 1 < starts.size() ? starts[i + 1] : kEnd;
    if (within.contains(starts[i], unicode::category(starts[i]))) made.add(starts[i], end - 1);
  }
  made.normalize();
  return made;
}

CharacterSet CharacterSet::operator&(const CharacterSet& other) const {
  const CharacterSet left = spelled_out();
  const CharacterSet right = other.spelled_out();
  CharacterSet made;
  auto a = left.ranges.begin();
  auto b = right.ranges.begin();
  while (a != left.ranges.end() && b != right.ranges.end()) {
    const char32_t first = std::max(a->first, b->first);
    const char32_t last = std::min(a->last, b->last);
    if (first <= last) made.add(first, last);
    if (a->last < b->last) {
      ++a;
    } else {
      ++b;
    }
  }
  return made;
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
    const unsigned category = unicode::category(point);
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
