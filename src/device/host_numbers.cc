#include "device/host_numbers.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "device/operands.h"
#include "kernels/cpu/block_kernels.h"
#include "kernels/cpu/execution.h"

namespace subbyte::device {
namespace {

// Numbers that a thread converts at a time, or adds: some twenty microseconds, as long as it takes
// to wake all threads of torch, which it does for any loop that is divided.
constexpr int64_t kGrain = 1 << 17;

/// Of the best kernels of this machine: each gives the same numbers.
const cpu::BlockKernels& blocks() {
  static const Result<const cpu::Kernels*> kernels = cpu::select_kernels({});
  return *(*kernels)->vectors->blocks;
}

}  // namespace

void load_numbers(float* to, const std::byte* from, int64_t count, Format format) {
  if (format == Format::kF32) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const auto load = blocks().load[static_cast<int>(element_of(format))];
  if (reinterpret_cast<uintptr_t>(from) % alignof(uint16_t) == 0) {
    load(to, from, count);
    return;
  }
  std::array<uint16_t, 256> aligned;
  for (int64_t i = 0; i < count; i += std::ssize(aligned)) {
    const int64_t some = std::min(std::ssize(aligned), count - i);
    std::memcpy(aligned.data(), from + 2 * i, static_cast<std::size_t>(2 * some));
    load(to + i, aligned.data(), some);
  }
}

bool load_floats(Execution& execution, float* to, const std::byte* from, int64_t count,
                 Format format) {
  const int64_t width = info(format).bits / 8;
  const auto load = execution.kernels().vectors->blocks->load[static_cast<int>(element_of(format))];
  std::atomic<bool> is_normal = true;
  execution.pool().parallel_for(count, kGrain, [&](int64_t begin, int64_t end, int) {
    if (!load(to + begin, from + begin * width, end - begin)) is_normal = false;
  });
  return is_normal;
}

void store_floats(Execution& execution, std::byte* to, const float* from, int64_t count,
                  Format format) {
  const int64_t width = info(format).bits / 8;
  const auto store =
      execution.kernels().vectors->blocks->store[static_cast<int>(element_of(format))];
  execution.pool().parallel_for(count, kGrain, [&](int64_t begin, int64_t end, int) {
    store(to + begin * width, from + begin, end - begin);
  });
}

}  // namespace subbyte::device
