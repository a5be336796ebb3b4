#include "text/byte_range.h"

#include <gtest/gtest.h>

namespace subbyte {
namespace {

using Ranges = std::vector<ByteRange>;

TEST(ByteRanges, have_parts_inside_of_others) {
  const Ranges ranges = {{2, 5}, {7, 9}};
  EXPECT_EQ(ranges_within(ranges, 0, 10), ranges);
  EXPECT_EQ(ranges_within(ranges, 4, 8), (Ranges{{0, 1}, {3, 4}}));
  EXPECT_EQ(ranges_within(ranges, 5, 7), Ranges{});
  EXPECT_EQ(ranges_within(ranges, 2, 5), (Ranges{{0, 3}}));
  EXPECT_EQ(ranges_within({}, 0, 10), Ranges{});
}

TEST(ByteRanges, change_by_themselves) {
  const auto doubled = [](std::string_view run) { return std::string(run) + std::string(run); };
  Ranges ranges = {{1, 2}, {3, 5}};
  EXPECT_EQ(change_runs("abcdef", ranges, doubled), "aabbccdedeff");
  EXPECT_EQ(ranges, (Ranges{{2, 4}, {6, 10}}));
  Ranges none;
  EXPECT_EQ(change_runs("ab", none, doubled), "abab");
  Ranges whole = {{0, 2}};
  EXPECT_EQ(change_runs("ab", whole, doubled), "abab");
  EXPECT_EQ(whole, (Ranges{{0, 4}}));
}

TEST(ByteRanges, follow_a_text_that_is_copied_and_replaced) {
  const Ranges ranges = {{1, 4}, {5, 6}};
  RangeMapper mapper(ranges);
  mapper.copy(0, 2, 0);        // one byte outside, one inside
  mapper.replace(2, 3, 2, 5);  // inside: three bytes instead of one
  mapper.copy(3, 4, 5);        // the rest of the first
  mapper.replace(4, 6, 6, 7);  // half of it outside
  mapper.copy(6, 8, 7);
  EXPECT_EQ(mapper.take(), (Ranges{{1, 6}}));
}

}  // namespace
}  // namespace subbyte
