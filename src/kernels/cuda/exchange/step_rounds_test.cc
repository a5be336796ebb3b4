#include "kernels/cuda/exchange/step_rounds.h"

#include <gtest/gtest.h>

namespace subbyte::cuda {
namespace {

TEST(StepRounds, follow_each_other) {
  StepRounds rounds;
  EXPECT_EQ(rounds.begin_program(3).round, 0u);
  const StepRounds::Base second = rounds.begin_program(128);
  EXPECT_EQ(second.round, 3u);
  EXPECT_FALSE(second.fill);
  EXPECT_EQ(rounds.begin_program(1).round, 131u);
}

/// No word that was filled has the number of a round before the next filling.
TEST(StepRounds, fill_the_words_twice_before_a_number_is_used_again) {
  StepRounds rounds(0x7fffffff - 100);
  EXPECT_FALSE(rounds.begin_program(100).fill);
  const StepRounds::Base upper = rounds.begin_program(128);
  EXPECT_EQ(upper.round, 0x80000000u);
  EXPECT_EQ(upper.fill, 0);
  EXPECT_FALSE(rounds.begin_program(128).fill);

  StepRounds last(0xffffffff - 127);
  const StepRounds::Base lower = last.begin_program(128);
  EXPECT_EQ(lower.round, 0u);  // of which no word is
  EXPECT_EQ(lower.fill, 0xff);
  EXPECT_EQ(last.begin_program(128).round, 128u);
}

}  // namespace
}  // namespace subbyte::cuda
