#pragma once
// Holds a rendering to its limits, and is the one place that charges. Nothing goes around it:
//
//   - what is made lies in containers whose allocator is the meter's and cannot be left out: it
//     charges the memory that is really taken, and the steps that it takes to fill it;
//   - the bytes of a text, the items of a list, the entries of a dict are private, and whoever
//     wants to look at them hands over the meter, which charges the look before it begins.
//
// A step is a bounded amount of work: an operation, a value, or so many bytes: few where each
// character is looked up in tables or written by itself, more where it is looked at, and most where
// functions such as memchr and memcpy go over them. What is begun of so many bytes counts as a
// whole, so that nothing is free.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace subbyte::jinja {

struct Limits {
  int64_t steps = 20'000'000;
  int64_t bytes = int64_t{512} << 20;        // that are taken for values
  int64_t output_bytes = int64_t{64} << 20;  // of the result
  int depth = 400;                           // of calls and expressions inside each other
};

/// Counts of what a rendering took.
struct Usage {
  int64_t steps = 0;
  int64_t bytes = 0;
};

class Meter {
 public:
  // In the time of a step.
  static constexpr std::size_t kLetterBytes = 4;
  static constexpr std::size_t kLookBytes = 16;
  static constexpr std::size_t kScanBytes = 64;
  static constexpr std::size_t kFillBytes = 128;  // of new memory

  explicit Meter(const Limits& limits)
      : limits_(limits),
        steps_left_(static_cast<std::size_t>(limits.steps)),
        bytes_left_(static_cast<std::size_t>(limits.bytes)) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// Each refuses where a limit would be passed. Code jinja.limit.
  void step(std::size_t count = 1) {
    if (count > steps_left_) refuse_steps();
    steps_left_ -= count;
  }
  void look_up(std::size_t bytes) { step(steps_of(bytes, kLetterBytes)); }
  void look_at(std::size_t bytes) { step(steps_of(bytes, kLookBytes)); }
  void scan(std::size_t bytes) { step(steps_of(bytes, kScanBytes)); }
  /// Charges what it takes to see of so many names that they are other ones than `name`.
  void compare_names(std::size_t count, std::string_view name) {
    look_at(count * (1 + name.size() / kLookBytes));
  }
  void* allocate(std::size_t bytes);
  void deallocate(void* block, std::size_t bytes) noexcept;
  /// For what will be made of a number of the template: `count` times `size` bytes.
  std::size_t checked_size(std::size_t count, std::size_t size) const;
  void check_output(std::size_t size) const;

  int max_depth() const { return limits_.depth; }
  Usage usage() const;

 private:
  /// Blocks have sizes of which eight lie between two powers of two, so that one which is free
  /// again serves all of its size: what the process takes is, for each size, the most that lived.
  struct Size {
    std::size_t bytes;
    std::size_t index;
  };
  struct Blocks {
    std::size_t live = 0;
    std::size_t most = 0;
  };
  static constexpr std::size_t kHeadBytes = 16;  // of a block, before its bytes
  static constexpr int kLeastBits = 4;

  static std::size_t steps_of(std::size_t bytes, std::size_t in_a_step) {
    return bytes / in_a_step + (bytes % in_a_step != 0 ? 1 : 0);
  }
  static Size size_of(std::size_t bytes) {
    bytes = std::max<std::size_t>(bytes, 1);
    const int bits = std::max(kLeastBits, static_cast<int>(std::bit_width(bytes - 1)) - 4);
    const std::size_t units = ((bytes - 1) >> bits) + 1;
    return {units << bits, static_cast<std::size_t>(bits - kLeastBits) * 8 + units};
  }
  [[noreturn]] void refuse_steps() const;
  [[noreturn]] void refuse_bytes() const;

  Limits limits_;
  std::size_t steps_left_;
  std::size_t bytes_left_;
  Blocks blocks_[8 * 64];
};

/// Takes memory from a meter; there is none without.
template <typename T>
class Allocator {
 public:
  using value_type = T;
  using propagate_on_container_copy_assignment = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  Allocator(Meter& meter) : meter_(&meter) {}  // implicit: Values items(heap)
  template <typename U>
  Allocator(const Allocator<U>& other) : meter_(other.meter()) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(meter_->allocate(meter_->checked_size(count, sizeof(T))));
  }
  void deallocate(T* block, std::size_t count) noexcept {
    meter_->deallocate(block, count * sizeof(T));
  }
  Meter* meter() const { return meter_; }
  template <typename U>
  bool operator==(const Allocator<U>& other) const {
    return meter_ == other.meter();
  }

 private:
  Meter* meter_;
};

template <typename T>
using List = std::vector<T, Allocator<T>>;
using Bytes = std::basic_string<char, std::char_traits<char>, Allocator<char>>;

}  // namespace subbyte::jinja
