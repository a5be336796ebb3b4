// Codes of integers as they are, in registers and as bytes, at every place.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "base/random.h"
#include "kernels/gpu/decoders.h"
#include "kernels/gpu/decoders_test_codes.h"

namespace subbyte::gpu {
namespace {

/// Raw registers that are not kRawFactor (kRawOffset + code), times kRawOdd for odd ones, for every
/// code at every place.
template <class Number, int kBits>
int64_t raw_mismatches(const Place& place) {
  using Decoder = Integers<Number, kBits>;
  constexpr uint32_t kCodes = 1u << kBits;
  Random random(6);
  const Codes offsets = random_codes(random, kCodes);
  int64_t bad = 0;
  for (uint32_t first = 0; first < kCodes; ++first) {
    const Codes codes = moved(offsets, first, kCodes);
    const auto words = pack(codes, kBits, place);
    for (int step = 0; step < kSteps; ++step) {
      std::array<uint32_t, 4> registers{};
      Decoder::decode_raw(words.data(), step, registers.data());
      for (int i = 0; i < 8; ++i) {
        const double code = codes[8 * step + i] * (i / 2 % 2 == 0 ? 1.0 : Decoder::kRawOdd);
        const double value = type_of<Number>().decode(registers[i / 2] >> 16 * (i % 2) & 0xffff);
        bad += value != Decoder::kRawFactor * (Decoder::kRawOffset + code);
      }
    }
  }
  return bad;
}

template <class Number>
void expect_raw() {
  const CodeOrder halves = CodeOrder::kHalves;
  EXPECT_EQ((raw_mismatches<Number, 2>(place_of(2, halves))), 0);
  EXPECT_EQ((raw_mismatches<Number, 3>(place_of(3, halves))), 0);
  EXPECT_EQ((raw_mismatches<Number, 4>(place_of(4, halves))), 0);
  EXPECT_EQ((raw_mismatches<Number, 5>(place_of(5, halves))), 0);
  EXPECT_EQ((raw_mismatches<Number, 6>(place_of(6, halves))), 0);
  EXPECT_EQ((raw_mismatches<Number, 8>(place_of(8, halves))), 0);
  EXPECT_GT((raw_mismatches<Number, 2>(place_of(2, CodeOrder::kPairs))), 0);
  EXPECT_GT((raw_mismatches<Number, 3>(place_of(3, CodeOrder::kPairs))), 0);
  EXPECT_GT((raw_mismatches<Number, 4>(place_of(4, CodeOrder::kPairs))), 0);
}

TEST(Decoders, raw_integers_are_exact_for_every_code) {
  expect_raw<F16>();
  expect_raw<BF16>();
}

/// Bytes that are not the code of the input that byte_col() says, times kByteOdd for output g + 8.
template <int kBits>
int64_t byte_mismatches(const Place& place) {
  using Decoder = Integers<F16, kBits>;
  constexpr uint32_t kCodes = 1u << kBits;
  Random random(7);
  const Codes offsets = random_codes(random, kCodes);
  int64_t bad = 0;
  for (uint32_t first = 0; first < kCodes; ++first) {
    const Codes codes = moved(offsets, first, kCodes);
    const auto words = pack(codes, kBits, place);
    for (int i = 0; i < kSteps / 2 * 16; ++i) {
      const int pair = i / 16;
      const int r = i / 4 % 4;
      std::array<uint32_t, 4> registers{};
      Decoder::decode_bytes(words.data(), pair, registers.data());
      const Slot slot = slot_of(r % 2 * 8, 32 * pair + Decoder::byte_col(0, r / 2, i % 4));
      const int at = 8 * slot.step + 2 * slot.reg + slot.high;
      const uint32_t found = registers[r] >> (8 * (i % 4)) & 0xff;
      uint32_t expected = codes[at] * (r % 2 == 0 ? 1 : Decoder::kByteOdd);
      // The next register of the same input is output g + 8.
      if (r % 2 == 0 && Decoder::kBytesCarry) expected += codes[at + 2] * Decoder::kByteOdd;
      bad += slot.lane != 0 || found != expected;
    }
  }
  return bad;
}

template <int kBits>
void expect_bytes() {
  EXPECT_EQ(byte_mismatches<kBits>(place_of(kBits, CodeOrder::kHalves)), 0) << kBits;
  const Place wrong = [](Slot s, int bit) {
    return bit_place({s.lane, s.step ^ 1, s.reg, s.high}, bit, kBits, CodeOrder::kHalves);
  };
  EXPECT_GT(byte_mismatches<kBits>(wrong), 0) << kBits;
}

TEST(Decoders, integers_are_bytes_of_the_inputs_that_are_told) {
  expect_bytes<2>();
  expect_bytes<3>();
  expect_bytes<4>();
  expect_bytes<5>();
  expect_bytes<6>();
  expect_bytes<8>();
}

TEST(Decoders, every_input_of_two_steps_has_one_byte) {
  const auto inputs_of = [](auto decoder) {
    std::array<int, 32> seen{};
    for (int i = 0; i < 32; ++i) ++seen.at(decltype(decoder)::byte_col(i / 8, i / 4 % 2, i % 4));
    return seen;
  };
  std::array<int, 32> once{};
  once.fill(1);
  EXPECT_EQ(inputs_of(Integers<F16, 2>()), once);
  EXPECT_EQ(inputs_of(Integers<F16, 6>()), once);
}

}  // namespace
}  // namespace subbyte::gpu
