#pragma once
// Parts of a text by their bytes, and where they are when the text is changed.

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace subbyte {

/// The bytes [begin, end) of a text. Lists of them are in order, and no two touch.
struct ByteRange {
  std::size_t begin;
  std::size_t end;

  bool operator==(const ByteRange&) const = default;
};

/// The parts of `ranges` inside of [begin, end), counted from `begin`.
std::vector<ByteRange> ranges_within(std::span<const ByteRange> ranges, std::size_t begin,
                                     std::size_t end);

/// Changes each range of a text, and what stands between two, by itself: no character is made of
/// bytes of both. The ranges are those of the result then.
std::string change_runs(std::string_view text, std::vector<ByteRange>& ranges,
                        const std::function<std::string(std::string_view)>& change);

/// Follows ranges through a text that is copied piece by piece, with some pieces replaced.
class RangeMapper {
 public:
  explicit RangeMapper(std::span<const ByteRange> ranges) : ranges_(ranges) {}

  /// The bytes [begin, end), which follow those of the call before, now begin at `to`.
  void copy(std::size_t begin, std::size_t end, std::size_t to);
  /// They have become [to, to_end): a part of a range where all of them were.
  void replace(std::size_t begin, std::size_t end, std::size_t to, std::size_t to_end);

  std::vector<ByteRange> take() { return std::move(mapped_); }

 private:
  void add(ByteRange range);

  std::span<const ByteRange> ranges_;
  std::size_t current_ = 0;  // the first that does not end before what is copied
  std::vector<ByteRange> mapped_;
  std::size_t last_ = 0;  // of ranges_, which the last of mapped_ is a part of
};

}  // namespace subbyte
