#include "subbyte/version.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "support/paths.h"

namespace subbyte {
namespace {

const std::filesystem::path kProject = std::filesystem::path(SUBBYTE_TEST_DATA) / "../..";

TEST(Version, is_that_of_the_project) {
  std::ostringstream text;
  text << std::ifstream(kProject / "CMakeLists.txt").rdbuf();
  EXPECT_NE(text.str().find("project(subbyte VERSION " + std::string(subbyte::version()) + " "),
            std::string::npos)
      << subbyte::version();
}

TEST(Version, names_a_commit_of_a_checkout_and_of_nothing_else) {
  const std::string commit(subbyte::commit());
  if (std::filesystem::exists(kProject / ".git")) {
    EXPECT_TRUE(std::regex_match(commit, std::regex("[0-9a-f]{12}(-dirty)?"))) << commit;
  } else {
    EXPECT_EQ(commit, "unknown");
  }
}

}  // namespace
}  // namespace subbyte
