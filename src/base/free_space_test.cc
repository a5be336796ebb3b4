#include "base/free_space.h"

#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace subbyte {
namespace {

TEST(FreeSpace, is_compared_with_what_is_to_be_written) {
  const TempDir dir;
  EXPECT_TRUE(check_free_space(dir.path(), 0).ok());
  const Status status = check_free_space(dir.path(), UINT64_MAX);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, "file.no_space");
  EXPECT_NE(status.error().message.find("18446744073709551615"), std::string::npos);
}

TEST(FreeSpace, that_is_not_known_is_enough) {
  EXPECT_TRUE(check_free_space("/no/such/place", UINT64_MAX).ok());
  EXPECT_TRUE(check_free_space("/proc", UINT64_MAX).ok());
}

}  // namespace
}  // namespace subbyte
