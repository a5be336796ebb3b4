#pragma once
// Counts what the program allocates through operator new, which allocation_counter.cc replaces.

#include <cstddef>

namespace subbyte::conformance {

/// The most bytes that were allocated at any time since it was made, beyond those before. One at
/// a time, one thread.
class AllocationPeak {
 public:
  AllocationPeak();
  std::size_t bytes() const;

 private:
  std::size_t before_;
};

}  // namespace subbyte::conformance
