#include "text/byte_range.h"

#include <algorithm>

namespace subbyte {

std::vector<ByteRange> ranges_within(std::span<const ByteRange> ranges, std::size_t begin,
                                     std::size_t end) {
  std::vector<ByteRange> inside;
  auto range = std::ranges::upper_bound(ranges, begin, {}, &ByteRange::end);
  for (; range != ranges.end() && range->begin < end; ++range) {
    inside.push_back({std::max(range->begin, begin) - begin, std::min(range->end, end) - begin});
  }
  return inside;
}

std::string change_runs(std::string_view text, std::vector<ByteRange>& ranges,
                        const std::function<std::string(std::string_view)>& change) {
  std::string made;
  std::size_t done = 0;
  for (ByteRange& range : ranges) {
    if (done < range.begin) made += change(text.substr(done, range.begin - done));
    done = range.end;
    const std::size_t begin = made.size();
    made += change(text.substr(range.begin, range.end - range.begin));
    range = {begin, made.size()};
  }
  if (done == 0) return change(text);
  return done < text.size() ? made + change(text.substr(done)) : made;
}

void RangeMapper::add(ByteRange range) {
  if (range.begin == range.end) return;
  // Ranges that only now touch, because nothing is left of what stood between, stay two.
  const bool goes_on = !mapped_.empty() && last_ == current_ && mapped_.back().end == range.begin;
  if (goes_on) {
    mapped_.back().end = range.end;
  } else {
    mapped_.push_back(range);
    last_ = current_;
  }
}

void RangeMapper::copy(std::size_t begin, std::size_t end, std::size_t to) {
  for (; current_ < ranges_.size(); ++current_) {
    const ByteRange& range = ranges_[current_];
    if (range.begin >= end) return;
    const std::size_t first = std::max(range.begin, begin);
    const std::size_t last = std::min(range.end, end);
    if (first < last) add({to + (first - begin), to + (last - begin)});
    if (range.end > end) return;
  }
}

void RangeMapper::replace(std::size_t begin, std::size_t end, std::size_t to, std::size_t to_end) {
  while (current_ < ranges_.size() && ranges_[current_].end <= begin) ++current_;
  if (current_ == ranges_.size()) return;
  const ByteRange& range = ranges_[current_];
  if (range.begin <= begin && end <= range.end) add({to, to_end});
}

}  // namespace subbyte
