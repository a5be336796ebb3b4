#include "base/partial_name.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>

namespace subbyte {
namespace {

TEST(PartialName, says_its_target) {
  for (const std::string target : {"model", "a.partial-1-2", "with blank", ".hidden", "x-1-2"}) {
    EXPECT_EQ(target_of_partial(partial_name(target)), target);
    EXPECT_EQ(target_of_partial(partial_name(target, 0, 0)), target);
    EXPECT_EQ(target_of_partial(partial_name(target, INT64_MAX, UINT32_MAX)), target);
    EXPECT_NE(partial_name(target), partial_name(target)) << "two numbers that were drawn";
  }
}

/// By another program, so that names of today are known tomorrow.
TEST(PartialName, ends_in_the_mark_that_sha256sum_gives) {
  const std::string begin = "model.partial-4711-0000002a";
  const std::string command = "printf '%s' 'subbyte output " + begin + "' | sha256sum";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::array<char, 13> mark{};
  ASSERT_NE(std::fgets(mark.data(), mark.size(), pipe.get()), nullptr);
  EXPECT_EQ(partial_name("model", 4711, 42), begin + mark.data());
}

TEST(PartialName, is_no_other_name) {
  const std::string name = partial_name("model", 4711, 42);
  for (std::size_t i = 0; i < name.size(); ++i) {
    std::string other = name;
    other[i] = other[i] == '1' ? '2' : '1';
    EXPECT_EQ(target_of_partial(other), std::nullopt) << other;
    other = name;
    other.erase(i, 1);
    EXPECT_EQ(target_of_partial(other), std::nullopt) << other;
  }
  for (const char* other : {"", "model", "model.partial-1-2", "model.partial-", ".partial-1-2"}) {
    EXPECT_EQ(target_of_partial(other), std::nullopt) << other;
  }
  EXPECT_EQ(target_of_partial(name + "0"), std::nullopt);
}

}  // namespace
}  // namespace subbyte
