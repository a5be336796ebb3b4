#pragma once
// Numbers of any type on the device and back, and bounds of results that are rounded to one.

#include <cmath>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "device_bytes.h"
#include "kernels/cuda/common/elements.h"
#include "support/compare.h"

namespace subbyte::testing {

inline constexpr Element kElements[] = {Element::kF32, Element::kF16, Element::kBF16};
inline constexpr Element kCaches[] = {Element::kF16, Element::kBF16, Element::kE4M3};
inline constexpr Element kHalves[] = {Element::kF16, Element::kBF16};

inline std::string name_of(Element element) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "e4m3"};
  return kNames[static_cast<int>(element)];
}

/// Unit roundoff.
inline double unit_of(Element element) {
  return element == Element::kF32 ? 0x1p-24 : element == Element::kF16 ? 0x1p-11 : 0x1p-8;
}

/// A result within `error` of `exact` before it is rounded to `element`: half of f16's smallest
/// step at least.
inline double rounded_bound(Element element, double exact, double error) {
  return error + 1.01 * unit_of(element) * (std::fabs(exact) + error) + 0x1p-25;
}

inline std::vector<std::byte> encode(const std::vector<float>& values, Element element) {
  std::vector<std::byte> bytes(values.size() * element_bytes(element));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (element == Element::kF32) {
      std::memcpy(&bytes[i * 4], &values[i], 4);
      continue;
    }
    const uint16_t bits =
        element == Element::kF16 ? to_float16(values[i]).bits : to_bfloat16(values[i]).bits;
    std::memcpy(&bytes[i * 2], &bits, 2);
  }
  return bytes;
}

inline std::vector<float> decode(const std::vector<std::byte>& bytes, Element element) {
  std::vector<float> values(bytes.size() / element_bytes(element));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (element == Element::kF32) {
      std::memcpy(&values[i], &bytes[i * 4], 4);
      continue;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, &bytes[i * 2], 2);
    values[i] = element == Element::kF16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
  }
  return values;
}

/// What `values` are once they are stored as `element`.
inline std::vector<float> rounded(const std::vector<float>& values, Element element) {
  return decode(encode(values, element), element);
}

inline std::vector<float> normals(int64_t size, double scale, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(scale * random.normal());
  return values;
}

/// Numbers in device memory between canaries.
class DeviceNumbers {
 public:
  DeviceNumbers(const std::vector<float>& values, Element element)
      : element_(element), bytes_(encode(values, element)) {}
  /// Poisoned: every number is NaN.
  DeviceNumbers(int64_t size, Element element)
      : element_(element), bytes_(size * element_bytes(element)) {}

  template <class T = void>
  T* data() const {
    return reinterpret_cast<T*>(bytes_.data());
  }
  /// Fails the test where a canary is broken.
  std::vector<float> read() const {
    EXPECT_TRUE(bytes_.canaries_are_whole());
    return decode(bytes_.read(), element_);
  }

 private:
  Element element_;
  DeviceBytes bytes_;
};

template <class T>
std::span<const std::byte> as_bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

/// Waits for what was launched. Fails the test where that failed.
inline void expect_ran() {
  expect_ok(cudaGetLastError());
  expect_ok(cudaDeviceSynchronize());
}

inline void expect_within(const std::vector<float>& found, const std::vector<double>& expected,
                          const std::vector<double>& bounds, const std::string& what) {
  const Comparison comparison = compare_matmul(found, expected, bounds);
  EXPECT_TRUE(comparison) << what << ": " << comparison.message;
}

}  // namespace subbyte::testing
