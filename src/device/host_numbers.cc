#include "device/host_numbers.h"

#include <atomic>
#include <bit>
#include <cstring>

#include "device/operands.h"
#include "kernels/cpu/block_kernels.h"
#include "kernels/cpu/execution.h"

namespace subbyte::device {
namespace {

// Numbers that a thread converts at a time, or adds: some twenty microseconds, as long as it takes
// to wake all threads of torch, which it does for any loop that is divided.
constexpr int64_t kGrain = 1 << 17;

/// Has no branches, so that the loop becomes one of vectors: a product rebiases the exponent, which
/// makes subnormal numbers what they are, too; infinity and NaN keep the exponent of all ones.
float of_f16(uint16_t bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7FFFu) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const uint32_t special = (bits & 0x7C00u) == 0x7C00u ? 0x7F800000u : 0u;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

// Loops over so many numbers become loops of vectors, which those of unknown length do not.
constexpr int64_t kUnroll = 32;

template <typename Convert>
void convert(float* to, const uint16_t* bits, int64_t count, const Convert& number_of) {
  int64_t i = 0;
  for (; i + kUnroll <= count; i += kUnroll) {
    for (int64_t j = 0; j < kUnroll; ++j) to[i + j] = number_of(bits[i + j]);
  }
  for (; i < count; ++i) to[i] = number_of(bits[i]);
}

}  // namespace

namespace {

/// Numbers at odd addresses.
void load_apart(float* to, const std::byte* from, int64_t count, Format format) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, from + i * 2, 2);
    load_numbers(to + i, reinterpret_cast<const std::byte*>(&bits), 1, format);
  }
}

}  // namespace

void load_numbers(float* to, const std::byte* from, int64_t count, Format format) {
  if (format == Format::kF32) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  if (reinterpret_cast<uintptr_t>(from) % alignof(uint16_t) != 0) {
    return load_apart(to, from, count, format);
  }
  const auto* bits = reinterpret_cast<const uint16_t*>(from);
  if (format == Format::kF16) {
    convert(to, bits, count, of_f16);
  } else {
    convert(to, bits, count,
            [](uint16_t half) { return std::bit_cast<float>(static_cast<uint32_t>(half) << 16); });
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
