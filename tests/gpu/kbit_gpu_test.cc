// bitsandbytes' kbit and vectors on a GPU against the host, bit by bit, through the C interface.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "device_bytes.h"
#include "formats/format.h"
#include "matrix/codebook.h"
#include "quantize/kbit.h"
#include "support/c_handles.h"

namespace subbyte::testing {
namespace {

constexpr Format kNumbers[] = {Format::kF16, Format::kBF16, Format::kF32};

int bytes_of(Format number) {
  return info(number).bits / 8;
}

/// Buffers of a description on the host, filled with what must be overwritten.
struct Buffers {
  Buffers(int k, int64_t n, int64_t k_dim, bool tiled, const std::vector<float>& codebook,
          Format scale = Format::kE4M4) {
    kbit.n = n;
    kbit.k_dim = k_dim;
    kbit.k = k;
    kbit.tiled = tiled ? 1 : 0;
    kbit.absmax_dtype = static_cast<int32_t>(scale);
    EXPECT_EQ(subbyte_kbit_measure(&kbit, &kbit.packed_words, &kbit.absmax_elements), SUBBYTE_OK);
    kbit.packed_words += 3;  // more than are needed become 0, too
    packed.resize(static_cast<std::size_t>(kbit.packed_words * 4), std::byte{0xAB});
    absmax.resize(static_cast<std::size_t>(kbit.absmax_elements * bytes_of(scale)),
                  std::byte{0xAB});
    kbit.codebook = codebook.data();
    kbit.packed = reinterpret_cast<uint32_t*>(packed.data());
    kbit.absmax = absmax.data();
  }

  /// Of vectors, [256][p].
  Buffers(int p, int64_t n, int64_t k_dim, bool tiled, const std::vector<uint16_t>& vectors,
          Format scale = Format::kE4M4)
      : Buffers(8 / p, n, k_dim, tiled, std::vector<float>(), scale) {
    kbit.k = 0;
    kbit.p = p;
    kbit.codebook = vectors.data();
  }

  subbyte_kbit kbit = c_struct<subbyte_kbit>();
  std::vector<std::byte> packed;
  std::vector<std::byte> absmax;
};

/// The same buffers on the GPU.
struct OnDevice {
  explicit OnDevice(const Buffers& host)
      : packed(host.packed), absmax(host.absmax), kbit(host.kbit) {
    kbit.packed = reinterpret_cast<uint32_t*>(packed.data());
    kbit.absmax = absmax.data();
  }

  void expect_bytes_of(const Buffers& host) const {
    expect_ok(cudaDeviceSynchronize());
    EXPECT_TRUE(packed.read() == host.packed);
    EXPECT_TRUE(absmax.read() == host.absmax);
    EXPECT_TRUE(packed.canaries_are_whole() && absmax.canaries_are_whole());
  }

  DeviceBytes packed;
  DeviceBytes absmax;
  subbyte_kbit kbit;
};

void append(std::vector<std::byte>& to, Format number, uint32_t code) {
  const std::size_t at = to.size();
  to.resize(at + static_cast<std::size_t>(bytes_of(number)));
  std::memcpy(&to[at], &code, static_cast<std::size_t>(bytes_of(number)));
}

/// Finite numbers: every code of 16 bits in turn and as the largest of a block; floats of any size,
/// and those just below and above powers of two.
std::vector<std::byte> all_numbers(Format number) {
  const FormatInfo& type = info(number);
  std::vector<std::byte> bytes;
  Random random(11);
  const auto add = [&](double value) {
    append(bytes, number, type.encode(value, Rounding::kTowardZero));
  };
  if (number != Format::kF32) {
    for (uint32_t code = 0; code < 65536; ++code) {
      if (std::isfinite(type.decode(code))) append(bytes, number, code);
    }
  }
  const auto add_block = [&](double largest) {
    add(largest);
    for (int i = 1; i < 32; ++i) add(largest * (2 * random.uniform() - 1));
  };
  for (int exponent = number == Format::kF16 ? -24 : -140; exponent < 120; ++exponent) {
    if (number == Format::kF16 && exponent > 14) break;
    for (int step = -100; step <= 20; ++step) {
      const double one = std::ldexp(1.0, exponent);
      add_block(number == Format::kF32 ? one + step * std::ldexp(1.0, exponent - 24)
                                       : one * (1 + step / 64.0));
    }
  }
  return bytes;
}

std::vector<float> usual_codebook(int k) {
  return default_codebook(kbit_element(k));
}

/// Asymmetric, with a threshold among the least floats.
std::vector<float> odd_codebook(int k) {
  std::vector<float> values;
  const int size = 1 << k;
  for (int i = 0; i < size / 2; ++i) values.push_back(-3.0f + 0.17f * static_cast<float>(i));
  values.back() = 0;
  values.push_back(0x1p-120f);
  while (static_cast<int>(values.size()) < size) values.push_back(values.back() * 1.5f + 0.01f);
  return values;
}

/// Asymmetric, with values beyond the largest of a block, which none of its numbers is near to.
std::vector<float> wide_codebook(int k) {
  const auto size = std::size_t{1} << k;
  std::vector<float> values = {-1.4f};
  while (values.size() < size) {
    values.push_back(values.back() + 2.6f / static_cast<float>(size) +
                     0.003f * static_cast<float>(values.size() % 3));
  }
  return values;
}

/// The host has the original's bytes for all numbers, and says which of them no scale holds.
bool is_quantized_on_host(const CContext& context, const std::vector<std::byte>& numbers,
                          Format number, Buffers& host) {
  const std::string code = code_of(subbyte_kbit_quantize(context.get(), numbers.data(),
                                                         static_cast<int32_t>(number), &host.kbit));
  return code == "ok" || code == "quantize.loss" || code == "quantize.scale_overflow";
}

void expect_quantized_as_on_host(const std::vector<float>& codebook, int k, Format number,
                                 const std::vector<std::byte>& numbers, std::size_t offset = 0) {
  SCOPED_TRACE("k " + std::to_string(k) + ' ' + std::string(info(number).name));
  const CContext context = c_context();
  const auto count = static_cast<int64_t>(numbers.size()) / bytes_of(number);
  Buffers host(k, count, 0, false, codebook);
  const OnDevice device(host);
  std::vector<std::byte> moved(offset, std::byte{0});
  moved.insert(moved.end(), numbers.begin(), numbers.end());
  const DeviceBytes x(moved);
  ASSERT_TRUE(is_quantized_on_host(context, numbers, number, host));
  ASSERT_EQ(subbyte_kbit_quantize(context.get(), x.data() + offset, static_cast<int32_t>(number),
                                  &device.kbit),
            SUBBYTE_OK)
      << subbyte_last_error();
  device.expect_bytes_of(host);
}

TEST(GpuKbit, every_16_bit_number_and_floats_of_any_size_are_quantized_as_on_the_host) {
  for (const Format number : kNumbers) {
    const std::vector<std::byte> numbers = all_numbers(number);
    for (int k = 2; k <= 5; ++k) {
      expect_quantized_as_on_host(usual_codebook(k), k, number, numbers);
      expect_quantized_as_on_host(odd_codebook(k), k, number, numbers);
      expect_quantized_as_on_host(wide_codebook(k), k, number, numbers);
    }
  }
}

TEST(GpuKbit, odd_sizes_and_addresses_are_quantized_as_on_the_host) {
  for (const Format number : kNumbers) {
    const std::vector<std::byte> numbers = all_numbers(number);
    for (const int count : {1, 7, 31, 32, 33, 8191, 8193}) {
      const auto end = numbers.begin() + count * bytes_of(number);
      const std::vector<std::byte> some(numbers.begin(), end);
      expect_quantized_as_on_host(usual_codebook(3), 3, number, some);
      expect_quantized_as_on_host(usual_codebook(5), 5, number, some,
                                  static_cast<std::size_t>(bytes_of(number)));
    }
  }
}

/// Any bits are codes; scales are finite.
void fill_with_random_codes(Buffers& b) {
  Random random(5);
  for (std::byte& byte : b.packed) byte = static_cast<std::byte>(random.below(256));
  const auto scale = static_cast<Format>(b.kbit.absmax_dtype);
  std::vector<std::byte> scales;
  for (int64_t i = 0; i < b.kbit.absmax_elements; ++i) {
    const double value = std::ldexp(random.uniform(), static_cast<int>(random.below(20)) - 14);
    append(scales, scale,
           scale == Format::kE4M4 ? static_cast<uint32_t>(random.below(256))
                                  : info(scale).encode(value, Rounding::kNearestEven));
  }
  std::memcpy(b.absmax.data(), scales.data(), scales.size());
}

void expect_dequantized_as_on_host(const Buffers& host, Format number) {
  SCOPED_TRACE("k " + std::to_string(host.kbit.k) + " tiled " + std::to_string(host.kbit.tiled) +
               ' ' + std::string(info(number).name));
  const CContext context = c_context();
  const int64_t count =
      host.kbit.k_dim == 0 ? (host.kbit.n + 31) / 32 * 32 : host.kbit.n * host.kbit.k_dim;
  std::vector<std::byte> expected(static_cast<std::size_t>(count * bytes_of(number)));
  const OnDevice device(host);
  const DeviceBytes out(expected.size());
  ASSERT_EQ(subbyte_kbit_dequantize(context.get(), &host.kbit, static_cast<int32_t>(number),
                                    expected.data()),
            SUBBYTE_OK)
      << subbyte_last_error();
  ASSERT_EQ(subbyte_kbit_dequantize(context.get(), &device.kbit, static_cast<int32_t>(number),
                                    out.data()),
            SUBBYTE_OK)
      << subbyte_last_error();
  expect_ok(cudaDeviceSynchronize());
  EXPECT_TRUE(out.read() == expected);
  EXPECT_TRUE(out.canaries_are_whole());
}

TEST(GpuKbit, codes_are_dequantized_as_on_the_host) {
  for (int k = 2; k <= 5; ++k) {
    const std::vector<float> codebook = k % 2 == 0 ? usual_codebook(k) : odd_codebook(k);
    for (const Format scale : {Format::kE4M4, Format::kF16, Format::kF32}) {
      Buffers flat(k, 9999, 0, false, codebook, scale);
      Buffers tiled(k, 384, 32 * (k + 3), true, codebook, scale);
      fill_with_random_codes(flat);
      fill_with_random_codes(tiled);
      for (const Format number : kNumbers) {
        expect_dequantized_as_on_host(flat, number);
        expect_dequantized_as_on_host(tiled, number);
      }
    }
  }
}

TEST(GpuKbit, buffers_are_repacked_as_on_the_host) {
  for (int k = 2; k <= 5; ++k) {
    for (const int64_t k_dim : {32, 64, 96, 512, 544, 2112}) {
      for (const int64_t n : {128, 640}) {
        SCOPED_TRACE("k " + std::to_string(k) + " K " + std::to_string(k_dim));
        const std::vector<float> codebook = usual_codebook(k);
        Buffers flat(k, n, k_dim, false, codebook);
        fill_with_random_codes(flat);
        Buffers tiled(k, n, k_dim, true, codebook);
        Buffers again(k, n, k_dim, false, codebook);
        const OnDevice flat_there(flat), tiled_there(tiled), again_there(again);
        ASSERT_EQ(subbyte_kbit_repack(&flat.kbit, &tiled.kbit), SUBBYTE_OK) << subbyte_last_error();
        ASSERT_EQ(subbyte_kbit_repack(&flat_there.kbit, &tiled_there.kbit), SUBBYTE_OK)
            << subbyte_last_error();
        tiled_there.expect_bytes_of(tiled);
        ASSERT_EQ(subbyte_kbit_repack(&tiled.kbit, &again.kbit), SUBBYTE_OK);
        ASSERT_EQ(subbyte_kbit_repack(&tiled_there.kbit, &again_there.kbit), SUBBYTE_OK)
            << subbyte_last_error();
        again_there.expect_bytes_of(again);
      }
    }
  }
}

/// Normal numbers, some of them twice, so that two vectors are as near.
std::vector<uint16_t> some_vectors(int p) {
  Random random(17);
  std::vector<uint16_t> values;
  for (int i = 0; i < 256 * p; ++i) {
    values.push_back(
        i % 64 >= 60
            ? values[i - 8]
            : static_cast<uint16_t>(
                  info(Format::kF16).encode(0.4 * random.normal(), Rounding::kNearestEven)));
  }
  return values;
}

TEST(GpuKbit, numbers_are_quantized_to_vectors_as_on_the_host) {
  const CContext context = c_context();
  for (const int p : {2, 4}) {
    const std::vector<uint16_t> vectors = some_vectors(p);
    for (const Format number : kNumbers) {
      SCOPED_TRACE("p " + std::to_string(p) + ' ' + std::string(info(number).name));
      const std::vector<std::byte> numbers = all_numbers(number);
      const int64_t count = std::ssize(numbers) / bytes_of(number) - 5;
      Buffers host(p, count, 0, false, vectors);
      const OnDevice device(host);
      const DeviceBytes x(numbers);
      ASSERT_TRUE(is_quantized_on_host(context, numbers, number, host));
      ASSERT_EQ(subbyte_kbit_quantize(context.get(), x.data(), static_cast<int32_t>(number),
                                      &device.kbit),
                SUBBYTE_OK)
          << subbyte_last_error();
      device.expect_bytes_of(host);
    }
  }
}

TEST(GpuKbit, vectors_are_dequantized_and_repacked_as_on_the_host) {
  for (const int p : {2, 4}) {
    const std::vector<uint16_t> vectors = some_vectors(p);
    for (const Format scale : {Format::kE4M4, Format::kF16, Format::kF32}) {
      Buffers flat(p, 4999, 0, false, vectors, scale);
      Buffers tiled(p, 256, 96, true, vectors, scale);
      fill_with_random_codes(flat);
      fill_with_random_codes(tiled);
      for (const Format number : kNumbers) {
        expect_dequantized_as_on_host(flat, number);
        expect_dequantized_as_on_host(tiled, number);
      }
    }
    Buffers flat(p, 256, 160, false, vectors);
    fill_with_random_codes(flat);
    Buffers tiled(p, 256, 160, true, vectors);
    const OnDevice flat_there(flat), tiled_there(tiled);
    ASSERT_EQ(subbyte_kbit_repack(&flat.kbit, &tiled.kbit), SUBBYTE_OK) << subbyte_last_error();
    ASSERT_EQ(subbyte_kbit_repack(&flat_there.kbit, &tiled_there.kbit), SUBBYTE_OK)
        << subbyte_last_error();
    tiled_there.expect_bytes_of(tiled);
  }
}

TEST(GpuKbit, buffers_on_two_machines_are_refused) {
  const std::vector<float> codebook = usual_codebook(4);
  Buffers flat(4, 128, 64, false, codebook);
  Buffers tiled(4, 128, 64, true, codebook);
  const OnDevice there(tiled);
  EXPECT_NE(subbyte_kbit_repack(&flat.kbit, &there.kbit), SUBBYTE_OK);
  EXPECT_STREQ(subbyte_last_error_code(), "c.argument");
  EXPECT_NE(subbyte_kbit_repack(&there.kbit, &flat.kbit), SUBBYTE_OK);
  EXPECT_STREQ(subbyte_last_error_code(), "c.argument");
}

}  // namespace
}  // namespace subbyte::testing
