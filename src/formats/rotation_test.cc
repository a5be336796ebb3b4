// Against the definition: H[i][j] is -1 to the number of bits that i and j have in common.

#include "formats/rotation.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "base/random.h"

namespace subbyte {
namespace {

TEST(Rotation, is_the_matrix_of_hadamard) {
  for (const int64_t size : {16, 64, 256}) {
    Random random(static_cast<uint64_t>(size));
    std::vector<double> x(static_cast<std::size_t>(2 * size));
    for (double& number : x) number = static_cast<double>(random.below(201)) - 100;
    std::vector<double> found = x;
    rotate(found.data(), 2 * size, size);
    EXPECT_EQ(rotation_factor(size) * rotation_factor(size) * static_cast<double>(size), 1);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t first = i / static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
      double sum = 0;
      for (std::size_t j = first; j < first + static_cast<std::size_t>(size); ++j) {
        const bool is_negative = std::popcount((i - first) & (j - first)) % 2 != 0;
        sum += is_negative ? -x[j] : x[j];
      }
      ASSERT_EQ(found[i], sum * rotation_factor(size)) << size << " " << i;
    }
    rotate(found.data(), 2 * size, size);
    EXPECT_EQ(found, x);
  }
}

TEST(Rotation, runs_are_the_largest_that_divide_the_inputs) {
  EXPECT_EQ(rotation_of(4096, 256), 256);
  EXPECT_EQ(rotation_of(896, 256), 64);
  EXPECT_EQ(rotation_of(2880, 256), 64);
  EXPECT_EQ(rotation_of(32, 256), 16);
  EXPECT_EQ(rotation_of(4096, 64), 64);
  EXPECT_EQ(rotation_of(4096, 0), 0);
  EXPECT_EQ(rotation_of(40, 256), 0);
  for (const int64_t size : {0, 16, 64, 256}) EXPECT_TRUE(is_rotation(size));
  for (const int64_t size : {-16, 1, 4, 32, 128, 1024}) EXPECT_FALSE(is_rotation(size));
}

}  // namespace
}  // namespace subbyte
