#include "engine/stop_strings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace subbyte {
namespace {

/// The text that is shown when it arrives in these pieces, and whether it was stopped.
std::string shown(StopStrings stops, const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += stops.push(piece);
  text += stops.finish();
  return text + (stops.stopped() ? "|" : "");
}

TEST(StopStrings, let_everything_through_when_there_are_none) {
  EXPECT_EQ(shown(StopStrings({}), {"a", "", "bc"}), "abc");
  EXPECT_EQ(shown(StopStrings({""}), {"abc"}), "abc");
}

TEST(StopStrings, cut_at_a_stop_string) {
  EXPECT_EQ(shown(StopStrings({"END"}), {"one END two"}), "one |");
  EXPECT_EQ(shown(StopStrings({"END"}), {"END"}), "|");
  EXPECT_EQ(shown(StopStrings({"END"}), {"one EN", "E", "ND more"}), "one EN|");
  EXPECT_EQ(shown(StopStrings({"END"}), {"one", " E", "N", "D", " two"}), "one |");
}

TEST(StopStrings, hold_back_what_may_become_one) {
  StopStrings stops({"stop"});
  EXPECT_EQ(stops.push("non-st"), "non-");
  EXPECT_EQ(stops.push("ate"), "state");
  EXPECT_EQ(stops.push("sto"), "");
  EXPECT_FALSE(stops.stopped());
  EXPECT_EQ(stops.finish(), "sto");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, see_a_stop_that_begins_inside_a_failed_one) {
  EXPECT_EQ(shown(StopStrings({"aab"}), {"aa", "ab", "c"}), "a|");
  EXPECT_EQ(shown(StopStrings({"\n\nUser"}), {"\n", "\n", "\n", "User"}), "\n|");
}

TEST(StopStrings, the_one_that_is_complete_first_counts) {
  EXPECT_EQ(shown(StopStrings({"bcd", "c"}), {"abcd"}), "ab|");
  EXPECT_EQ(shown(StopStrings({"two", "one"}), {"zero one two"}), "zero |");
  EXPECT_EQ(shown(StopStrings({"c", "abc"}), {"xabc"}), "x|");  // together: the longest
  EXPECT_EQ(shown(StopStrings({"abc", "c"}), {"xabc"}), "x|");
}

TEST(StopStrings, show_nothing_after_a_stop) {
  StopStrings stops({"x"});
  EXPECT_EQ(stops.push("ax"), "a");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.push("b"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, do_not_depend_on_the_pieces) {
  // All texts of up to 7 letters of a small alphabet, whole and letter by letter.
  const std::vector<std::vector<std::string>> sets = {
      {"ab"}, {"aa", "ab"}, {"abc", "b"}, {"aab", "ba", "cc"}, {"abab"}, {"c", "abc", "bc"}};
  for (const auto& set : sets) {
    for (int code = 0; code < 3 * 3 * 3 * 3 * 3 * 3 * 3; ++code) {
      std::string text;
      std::vector<std::string> letters;
      for (int rest = code, i = 0; i < 7; ++i, rest /= 3) {
        text += static_cast<char>('a' + rest % 3);
        letters.push_back(text.substr(text.size() - 1));
      }
      const std::string whole = shown(StopStrings(set), {text});
      EXPECT_EQ(shown(StopStrings(set), letters), whole) << text;
      EXPECT_EQ(shown(StopStrings(set), {text.substr(0, 3), text.substr(3)}), whole) << text;
    }
  }
}

}  // namespace
}  // namespace subbyte
