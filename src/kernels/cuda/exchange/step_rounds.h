#pragma once
// Rounds of sums within programs of a step, as the host of each rank counts them.

#include <cstdint>
#include <optional>

namespace subbyte::cuda {

/// Words of sums that a program has not written for 2^32 rounds would be taken for those of a round
/// that has their number. So all of them are filled where the numbers come to their upper half, and
/// where they begin again: with a number of the other half. All ranks count alike.
class StepRounds {
 public:
  struct Base {
    uint32_t round = 0;            // rounds of the program come after it
    std::optional<int> fill = {};  // bytes that the words are filled with before it, on all ranks
  };

  /// `used`: rounds so far.
  explicit StepRounds(uint32_t used = 0) : used_(used) {}

  /// Begins the next program, which takes `rounds` of them.
  Base begin_program(uint32_t rounds) {
    constexpr uint32_t kHalf = uint32_t{1} << 31;
    Base base;
    if (((used_ ^ (used_ + rounds)) & kHalf) != 0) {
      used_ = (used_ + rounds) & kHalf;
      base.fill = used_ == kHalf ? 0 : 0xff;
    }
    base.round = used_;
    used_ += rounds;
    return base;
  }

 private:
  uint32_t used_;
};

}  // namespace subbyte::cuda
