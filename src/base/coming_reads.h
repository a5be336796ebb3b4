#pragma once
// What a thread is going to read: while it waits for other threads, it brings that into its cache.
// A hint, which nothing depends on; the bytes may be gone when they are asked for.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace subbyte {

class ComingReads {
 public:
  /// Forgets what was added before, for another purpose. False when it has been added already.
  bool begin(const void* purpose) {
    if (purpose == purpose_) return false;
    purpose_ = purpose;
    count_ = next_ = 0;
    return true;
  }
  void add(const std::byte* begin, int64_t bytes) {
    if (count_ == std::ssize(ranges_) || bytes <= 0) return;
    const auto address = reinterpret_cast<uintptr_t>(begin);
    ranges_[static_cast<std::size_t>(count_++)] = {address,
                                                   address + static_cast<uintptr_t>(bytes)};
  }
  /// Asks for a few lines, or for nothing where all have been asked for.
  void bring_some() {
    if (next_ == count_) return;
    Range& range = ranges_[static_cast<std::size_t>(next_)];
    for (int i = 0; i < kLines && range.at < range.end; ++i, range.at += kLineBytes) {
      __builtin_prefetch(reinterpret_cast<const void*>(range.at), 0, 2);  // the second level
    }
    if (range.at >= range.end) ++next_;
  }

 private:
  static constexpr int kLines = 4;
  static constexpr uintptr_t kLineBytes = 64;
  struct Range {
    uintptr_t at, end;
  };

  const void* purpose_ = nullptr;
  std::array<Range, 8> ranges_ = {};
  int64_t count_ = 0;
  int64_t next_ = 0;
};

/// Those of the calling thread.
inline thread_local constinit ComingReads coming_reads;

}  // namespace subbyte
