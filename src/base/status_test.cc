#include "base/status.h"

#include <gtest/gtest.h>

#include <string>

namespace subbyte {
namespace {

struct Numbers {
  int first = 0;
};

Result<Numbers> numbers(int first) {
  if (first < 0) return Error{"numbers.negative", "expected a number from 0 on"};
  return Numbers{first};
}

/// A trivial value that nobody looks at, in a build with -Wall: it compiles without a warning.
Status ignore(int first) {
  SUBBYTE_TRY(auto ignored, numbers(first));
  SUBBYTE_TRY(const auto [also_ignored], numbers(first));
  return {};
}

Status assign(int first, Numbers& to) {
  SUBBYTE_TRY(to, numbers(first));
  return {};
}

Status check(int first) {
  SUBBYTE_CHECK(numbers(first));
  SUBBYTE_CHECK(ignore(first));
  return {};
}

TEST(Status, macros_return_the_error_or_go_on) {
  Numbers found;
  EXPECT_TRUE(ignore(3).ok());
  EXPECT_TRUE(check(3).ok());
  EXPECT_TRUE(assign(3, found).ok());
  EXPECT_EQ(found.first, 3);
  EXPECT_EQ(ignore(-1).error().code, "numbers.negative");
  EXPECT_EQ(check(-1).error().code, "numbers.negative");
  EXPECT_EQ(assign(-1, found).error().code, "numbers.negative");
  EXPECT_EQ(found.first, 3);
}

TEST(Status, an_error_is_one_line_with_its_code) {
  EXPECT_EQ(to_string(ignore(-1).error()), "expected a number from 0 on [numbers.negative]");
  EXPECT_EQ(to_string(Error{"a.b", "two\nlines"}), "two\\u000alines [a.b]");
}

}  // namespace
}  // namespace subbyte
