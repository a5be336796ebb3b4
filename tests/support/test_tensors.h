#pragma once
// Tensors of tests: made of values or at random, written to files, and read back by formulas that
// share nothing with the code under test.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "checkpoints/containers/safetensors.h"
#include "support/safetensors_bytes.h"
#include "support/safetensors_file.h"

namespace subbyte {

struct TestTensor {
  std::string name;
  DType dtype;
  Shape shape;
  std::string bytes;

  template <typename T>
  T at(std::size_t index) const {
    T value;
    std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void set(std::size_t index, T value) {
    std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
  }
};

inline std::size_t bytes_of(DType dtype, const Shape& shape) {
  std::size_t count = 1;
  for (const uint64_t dimension : shape) count *= dimension;
  return count * static_cast<std::size_t>(bits(dtype)) / 8;
}

/// All bits at random.
inline TestTensor random_bits(std::string name, DType dtype, Shape shape, Random& random) {
  std::string bytes(bytes_of(dtype, shape), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.next());
  return {std::move(name), dtype, std::move(shape), std::move(bytes)};
}

/// Finite numbers of F16, BF16 or F32 with random sign, mantissa and moderate exponent.
inline TestTensor random_floats(std::string name, DType dtype, Shape shape, Random& random) {
  TestTensor tensor = random_bits(std::move(name), dtype, std::move(shape), random);
  const std::size_t width = static_cast<std::size_t>(bits(dtype)) / 8;
  for (std::size_t i = 0; i < tensor.bytes.size() / width; ++i) {
    const auto exponent = static_cast<uint32_t>(random.below(6));
    if (dtype == DType::kF16) {
      const uint32_t rest = tensor.at<uint16_t>(i) & 0x83FFu;
      tensor.set(i, static_cast<uint16_t>(rest | ((10 + exponent) << 10)));
    } else if (dtype == DType::kBF16) {
      const uint32_t rest = tensor.at<uint16_t>(i) & 0x807Fu;
      tensor.set(i, static_cast<uint16_t>(rest | ((122 + exponent) << 7)));
    } else {
      tensor.set(i, (tensor.at<uint32_t>(i) & 0x807FFFFFu) | ((122 + exponent) << 23));
    }
  }
  return tensor;
}

/// A tensor of 32-bit integers.
inline TestTensor int32_tensor(std::string name, Shape shape, std::span<const int32_t> values) {
  TestTensor tensor{std::move(name), DType::kI32, std::move(shape), {}};
  tensor.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return tensor;
}

/// A tensor all of whose elements are `value`.
template <typename T>
TestTensor filled(std::string name, DType dtype, Shape shape, T value) {
  TestTensor tensor{std::move(name), dtype, std::move(shape), {}};
  tensor.bytes.resize(bytes_of(dtype, tensor.shape));
  for (std::size_t i = 0; i < tensor.bytes.size() / sizeof(T); ++i) tensor.set(i, value);
  return tensor;
}

/// Value of an IEEE 754 pattern, sign and fraction and exponent by their definition.
inline double ieee_value(uint32_t pattern, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (pattern >> (exponent_bits + mantissa_bits)) != 0 ? -1 : 1;
  const auto exponent = static_cast<int>((pattern >> mantissa_bits) & ((1u << exponent_bits) - 1u));
  const double mantissa = pattern & ((1u << mantissa_bits) - 1u);
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign *
         std::ldexp(std::ldexp(1.0, mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

/// Element `index` of a tensor of F16, BF16 or F32.
inline double float_at(const TestTensor& tensor, std::size_t index) {
  if (tensor.dtype == DType::kF16) return ieee_value(tensor.at<uint16_t>(index), 5, 10);
  if (tensor.dtype == DType::kBF16) return ieee_value(tensor.at<uint16_t>(index), 8, 7);
  return ieee_value(tensor.at<uint32_t>(index), 8, 23);
}

/// Writes a file the regular way.
inline Status write_tensors(const std::filesystem::path& path,
                            const std::vector<TestTensor>& tensors) {
  std::vector<TensorDeclaration> declarations;
  for (const TestTensor& tensor : tensors) {
    declarations.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  return write_safetensors(path, declarations, [&](const TensorEntry& entry) {
    const auto found = std::ranges::find(tensors, entry.name, &TestTensor::name);
    return std::as_bytes(std::span(found->bytes));
  });
}

/// The bytes of such a file put together by hand, in the order given, with the header padded to
/// `remainder` modulo 8: anything but 0 lets the data begin at an address that fits no element.
inline std::string tensor_file(const std::vector<TestTensor>& tensors, std::size_t remainder = 0) {
  std::string header = "{";
  std::string data;
  for (const TestTensor& tensor : tensors) {
    if (header.size() > 1) header += ",";
    const std::size_t end = data.size() + tensor.bytes.size();
    header += "\"" + tensor.name + "\":{\"dtype\":\"" + std::string(name(tensor.dtype)) +
              "\",\"shape\":" + to_string(tensor.shape) + ",\"data_offsets\":[" +
              std::to_string(data.size()) + "," + std::to_string(end) + "]}";
    data += tensor.bytes;
  }
  header += "}";
  while (header.size() % 8 != remainder) header += " ";
  return safetensors_bytes(header, data);
}

}  // namespace subbyte
