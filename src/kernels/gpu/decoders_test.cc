// Every decoder on every code at every place, bit for bit against the formats' own decode().

#include "kernels/gpu/decoders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/random.h"
#include "formats/format.h"
#include "kernels/gpu/decoders_test_codes.h"
#include "kernels/gpu/packed_weights.h"

namespace subbyte::gpu {
namespace {

template <class Number>
uint16_t number_of(double value) {
  return static_cast<uint16_t>(type_of<Number>().encode(value, Rounding::kNearestEven));
}

/// The tables of a codebook as the kernels fill them.
template <class Decoder, class Number>
struct Tables {
  std::vector<uint32_t> pairs;
  std::array<uint16_t, 32> singles{};

  explicit Tables(Format element) {
    if constexpr (Decoder::kHasTable) {
      for (uint32_t code = 0; code < 1u << Decoder::kBits; ++code) {
        singles[code] = number_of<Number>(info(element).decode(code));
      }
      for (int i = 0; i < Decoder::kPairs; ++i) {
        pairs.push_back(singles[Decoder::low_code(i)] | uint32_t{singles[Decoder::high_code(i)]}
                                                            << 16);
      }
    }
  }
};

template <class Decoder>
CodeOrder order_of() {
  const DecoderKind kind = Decoder::kHasTable ? DecoderKind::kCodebook : DecoderKind::kIntegers;
  return code_order(kind, Decoder::kBits);
}

/// Decodes so that each slot has each code in turn, and counts the halves of registers that are not
/// the bits of the element less its zero point, over kGain.
template <class Decoder, class Number>
class Comparison {
 public:
  explicit Comparison(Format element)
      : element_(info(element)),
        tables_(element),
        place_(place_of(Decoder::kBits, order_of<Decoder>())) {
    // Without a period, so that any two slots differ. Where registers are pairs from a table, all
    // differences of two neighbours besides.
    Random random(5);
    for (int i = 0; i < 4; ++i) offsets_.push_back(random_codes(random, kCodes));
    for (uint32_t difference = 0; Decoder::kHasTable && difference < kCodes; ++difference) {
      offsets_.emplace_back();
      for (int i = 1; i < kSlots; i += 2) offsets_.back()[i] = difference;
    }
  }

  void put_codes_by(Place place) { place_ = std::move(place); }

  int64_t mismatches(int even_zero, int odd_zero) {
    int64_t bad = 0;
    for (const Codes& offsets : offsets_) {
      for (uint32_t code = 0; code < kCodes; ++code) {
        bad += mismatches_of(moved(offsets, code, kCodes), even_zero, odd_zero);
      }
    }
    return bad;
  }

 private:
  int64_t mismatches_of(const Codes& codes, int even_zero, int odd_zero) {
    int64_t bad = 0;
    const auto words = pack(codes, Decoder::kBits, place_);
    ZeroPair zero = {};
    if constexpr (Decoder::kHasZeros) zero = Decoder::zeros(even_zero, odd_zero);
    for (int step = 0; step < kSteps; ++step) {
      std::array<uint32_t, 4> registers{};
      decode_step<Decoder>(words.data(), step, zero, {tables_.pairs.data(), tables_.singles.data()},
                           registers.data());
      for (int i = 0; i < 8; ++i) {
        const double subtracted = i / 2 % 2 == 0 ? even_zero : odd_zero;
        const double decoded = element_.decode(codes[8 * step + i]);
        // Without an instruction NaN of E4M3 reads as the number after the largest.
        const double element = std::isnan(decoded) && !Number::kHasE4M3
                                   ? (codes[8 * step + i] < 128 ? 480 : -480)
                                   : decoded;
        // -0.0 - 0 is -0.0, and its sign should be kept.
        const double value = (element - subtracted) / Decoder::kGain;
        const uint16_t found = static_cast<uint16_t>(registers[i / 2] >> 16 * (i % 2));
        bad += found != number_of<Number>(value);
        if (!Decoder::kHasTable && !std::isnan(value)) {
          bad += type_of<Number>().decode(found) != value;
        }
      }
    }
    return bad;
  }

  static constexpr uint32_t kCodes = 1u << Decoder::kBits;

  const FormatInfo& element_;
  std::vector<Codes> offsets_;
  Tables<Decoder, Number> tables_;
  Place place_;
};

template <class Number, int kBits>
void expect_integers(Format element, Format with_offset, int largest_zero) {
  Comparison<Integers<Number, kBits>, Number> comparison(element);
  for (int zero = 0; zero <= largest_zero; ++zero) {
    EXPECT_EQ(comparison.mismatches(zero, largest_zero - zero), 0)
        << kBits << " bits, f16 " << Number::kIsF16 << ", zero points " << zero << " and "
        << largest_zero - zero;
  }
  // iN is uN with a constant zero point.
  Comparison<Integers<Number, kBits>, Number> offset(element);
  for (uint32_t code = 0; code < 1u << kBits; ++code) {
    EXPECT_EQ(info(element).decode(code) - (1 << (kBits - 1)), info(with_offset).decode(code));
  }
  EXPECT_EQ(offset.mismatches(1 << (kBits - 1), 1 << (kBits - 1)), 0);
}

// Zero points up to where the bits below a magic number end: 64 + zero for 4 bits in f16, 128 +
// zero in bf16. Formats have at most 2^bits. 8 bits: up to 256, which GPTQ v1 can mean.
template <class Number>
void expect_all_integers(int most, int most_of_4_bits) {
  expect_integers<Number, 2>(Format::kU2, Format::kI2, most);
  expect_integers<Number, 3>(Format::kU3, Format::kI3, most);
  expect_integers<Number, 4>(Format::kU4, Format::kI4, most_of_4_bits);
  expect_integers<Number, 5>(Format::kU5, Format::kI5, most);
  expect_integers<Number, 6>(Format::kU6, Format::kI6, most);
  expect_integers<Number, 8>(Format::kU8, Format::kI8, 256);
}

TEST(Decoders, integers_are_exact_for_every_code_and_zero_point) {
  expect_all_integers<F16>(255, 64);
  expect_all_integers<BF16>(128, 128);
}

/// Arithmetic that flushes subnormals, operands and results.
template <class Number>
struct Flushing : Number {
  static constexpr bool kHasSubnormals = false;
  static constexpr uint32_t kTwo = 0x40004000;
  static constexpr uint32_t kMinusFour = Number::kIsF16 ? 0xc400c400 : 0xc080c080;

  static uint32_t flush(uint32_t pair) {
    const uint32_t exponent = Number::kIsF16 ? 0x7c00 : 0x7f80;
    const uint32_t low = (pair & exponent) == 0 ? pair & 0x8000 : pair & 0xffff;
    const uint32_t high = (pair >> 16 & exponent) == 0 ? pair & 0x80000000 : pair & 0xffff0000;
    return low | high;
  }
  static uint32_t fma(uint32_t a, uint32_t b, uint32_t c) {
    return flush(Number::fma(flush(a), flush(b), flush(c)));
  }
  static uint32_t min(uint32_t a, uint32_t b) {
    a = flush(a);
    b = flush(b);
    return Number::join(std::fmin(Number::low(a), Number::low(b)),
                        std::fmin(Number::high(a), Number::high(b)));
  }
};

TEST(Decoders, e2m1_is_exact_for_every_code) {
  EXPECT_EQ((Comparison<E2M1<F16>, F16>(Format::kE2M1).mismatches(0, 0)), 0);
  EXPECT_EQ((Comparison<E2M1<BF16>, BF16>(Format::kE2M1).mismatches(0, 0)), 0);
  EXPECT_EQ(E2M1<F16>::kGain, 16384);
  EXPECT_EQ(E2M1<BF16>::kGain, 1);
}

/// A machine that has no instruction for E4M3.
template <class Number>
struct MovingBits : Number {
  static constexpr bool kHasE4M3 = false;
};

TEST(Decoders, e4m3_is_exact_for_every_code) {
  using Half = MovingBits<F16>;
  using Brain = MovingBits<BF16>;
  EXPECT_EQ((Comparison<E4M3<F16>, F16>(Format::kE4M3).mismatches(0, 0)), 0);
  EXPECT_EQ((Comparison<E4M3<BF16>, BF16>(Format::kE4M3).mismatches(0, 0)), 0);
  EXPECT_EQ((Comparison<E4M3<Half>, Half>(Format::kE4M3).mismatches(0, 0)), 0);
  EXPECT_EQ((Comparison<E4M3<Brain>, Brain>(Format::kE4M3).mismatches(0, 0)), 0);
}

TEST(Decoders, e2m1_is_exact_where_subnormals_are_flushed) {
  using Half = Flushing<F16>;
  using Brain = Flushing<BF16>;
  EXPECT_EQ((Comparison<E2M1<Half>, Half>(Format::kE2M1).mismatches(0, 0)), 0);
  EXPECT_EQ((Comparison<E2M1<Brain>, Brain>(Format::kE2M1).mismatches(0, 0)), 0);
  EXPECT_EQ(E2M1<Half>::kGain, 0.25);
  // The flushing is real: the raw value of 0.5 does not survive it.
  EXPECT_EQ(Half::flush(0x82000200), 0x80000000);
}

template <class Number>
void expect_codebooks() {
  EXPECT_EQ((Comparison<Codebook<Number, 2>, Number>(Format::kNFL2).mismatches(0, 0)), 0);
  EXPECT_EQ((Comparison<Codebook<Number, 3>, Number>(Format::kNFL3).mismatches(0, 0)), 0);
  EXPECT_EQ((Comparison<Codebook<Number, 4>, Number>(Format::kNFL4).mismatches(0, 0)), 0);
  for (const Format element : {Format::kNF4, Format::kIQ4}) {
    EXPECT_EQ((Comparison<Codebook<Number, 4>, Number>(element).mismatches(0, 0)), 0);
  }
  EXPECT_EQ((Comparison<Codebook<Number, 5>, Number>(Format::kNFL5).mismatches(0, 0)), 0);
  // A table is no more than its entries: it decodes FP4 and integers as well.
  EXPECT_EQ((Comparison<Codebook<Number, 4>, Number>(Format::kE2M1).mismatches(0, 0)), 0);
  EXPECT_EQ((Comparison<Codebook<Number, 3>, Number>(Format::kU3).mismatches(0, 0)), 0);
}

TEST(Decoders, codebooks_bring_every_pair_of_codes) {
  expect_codebooks<F16>();
  expect_codebooks<BF16>();
}

/// Halves of registers that are not the bits of the number there.
int64_t float_mismatches(const Place& place) {
  Random random(9);
  int64_t bad = 0;
  for (int round = 0; round < 1000; ++round) {
    Codes codes;
    for (uint32_t& code : codes) code = static_cast<uint32_t>(random.below(1 << 16));
    const auto words = pack(codes, 16, place);
    for (int step = 0; step < kSteps; ++step) {
      std::array<uint32_t, 4> registers{};
      decode_step<Floats<BF16>>(words.data(), step, {}, {}, registers.data());
      for (int i = 0; i < 8; ++i) {
        bad += (registers[i / 2] >> 16 * (i % 2) & 0xffff) != codes[8 * step + i];
      }
    }
  }
  return bad;
}

TEST(Decoders, floats_are_the_registers) {
  EXPECT_EQ(code_order(DecoderKind::kFloats, 16), CodeOrder::kHalves);
  EXPECT_EQ(float_mismatches(place_of(16, CodeOrder::kHalves)), 0);
  EXPECT_GT(float_mismatches([](Slot s, int bit) {
              return bit_place({s.lane, s.step, s.reg ^ 1, s.high}, bit, 16, CodeOrder::kHalves);
            }),
            0);
}

/// Ways to put a code where it does not belong.
struct Fault {
  std::string name;
  std::function<Place(int bits, CodeOrder order)> place;
};

std::vector<Fault> faults() {
  return {
      {"halves swapped",
       [](int bits, CodeOrder order) -> Place {
         return [=](Slot s, int bit) {
           return bit_place({s.lane, s.step, s.reg, 1 - s.high}, bit, bits, order);
         };
       }},
      {"rows swapped",
       [](int bits, CodeOrder order) -> Place {
         return [=](Slot s, int bit) {
           return bit_place({s.lane, s.step, s.reg ^ 1, s.high}, bit, bits, order);
         };
       }},
      {"inputs 8 apart swapped",
       [](int bits, CodeOrder order) -> Place {
         return [=](Slot s, int bit) {
           return bit_place({s.lane, s.step, s.reg ^ 2, s.high}, bit, bits, order);
         };
       }},
      {"steps swapped",
       [](int bits, CodeOrder order) -> Place {
         return [=](Slot s, int bit) {
           return bit_place({s.lane, s.step ^ 1, s.reg, s.high}, bit, bits, order);
         };
       }},
      {"shifted by a bit",
       [](int bits, CodeOrder order) -> Place {
         return [=](Slot s, int bit) {
           const BitPlace at = bit_place(s, bit, bits, order);
           return BitPlace{at.word, (at.bit + 1) % 32};
         };
       }},
      {"bits of the code reversed",
       [](int bits, CodeOrder order) -> Place {
         return [=](Slot s, int bit) { return bit_place(s, bits - 1 - bit, bits, order); };
       }},
      {"last bit missing",
       [](int bits, CodeOrder order) -> Place {
         return [=](Slot s, int bit) {
           return bit + 1 == bits ? bit_place(s, 0, bits, order) : bit_place(s, bit, bits, order);
         };
       }},
      {"pairs for halves",
       [](int bits, CodeOrder order) -> Place {
         const auto other = order == CodeOrder::kPairs ? CodeOrder::kHalves : CodeOrder::kPairs;
         return place_of(bits, other);
       }},
  };
}

template <class Decoder, class Number>
void expect_faults_are_found(Format element) {
  for (const Fault& fault : faults()) {
    // 8 bits have the same order in both.
    if (Decoder::kBits == 8 && fault.name == "pairs for halves") continue;
    Comparison<Decoder, Number> comparison(element);
    comparison.put_codes_by(fault.place(Decoder::kBits, order_of<Decoder>()));
    EXPECT_GT(comparison.mismatches(0, 0), 0) << info(element).name << ": " << fault.name;
  }
}

TEST(Decoders, codes_in_a_wrong_place_are_noticed) {
  expect_faults_are_found<Integers<F16, 2>, F16>(Format::kU2);
  expect_faults_are_found<Integers<F16, 3>, F16>(Format::kU3);
  expect_faults_are_found<Integers<F16, 4>, F16>(Format::kU4);
  expect_faults_are_found<Integers<F16, 6>, F16>(Format::kU6);
  expect_faults_are_found<Integers<F16, 8>, F16>(Format::kU8);
  expect_faults_are_found<Integers<BF16, 4>, BF16>(Format::kU4);
  expect_faults_are_found<Integers<BF16, 8>, BF16>(Format::kU8);
  expect_faults_are_found<E2M1<F16>, F16>(Format::kE2M1);
  expect_faults_are_found<E2M1<BF16>, BF16>(Format::kE2M1);
  expect_faults_are_found<E4M3<F16>, F16>(Format::kE4M3);
  expect_faults_are_found<E4M3<BF16>, BF16>(Format::kE4M3);
  expect_faults_are_found<E4M3<MovingBits<F16>>, MovingBits<F16>>(Format::kE4M3);
  expect_faults_are_found<E4M3<MovingBits<BF16>>, MovingBits<BF16>>(Format::kE4M3);
  expect_faults_are_found<Codebook<F16, 2>, F16>(Format::kNFL2);
  expect_faults_are_found<Codebook<F16, 3>, F16>(Format::kNFL3);
  expect_faults_are_found<Codebook<F16, 4>, F16>(Format::kNF4);
  expect_faults_are_found<Codebook<F16, 5>, F16>(Format::kNFL5);
}

/// Numbers with a constant that is a bit off.
struct WrongMagic : F16 {
  static constexpr uint32_t kMagic = 0x64006401;
};
struct WrongSixteenth : F16 {
  static constexpr uint32_t kSixteenth = 0x28002c00;
};
struct WrongSixteen : BF16 {
  static constexpr uint32_t kSixteen = 0x41804181;
};
struct SwappedZeros : Integers<F16, 4> {
  static ZeroPair zeros(int even, int odd) { return Integers<F16, 4>::zeros(odd, even); }
};

TEST(Decoders, wrong_constants_are_noticed) {
  EXPECT_GT((Comparison<Integers<WrongMagic, 4>, F16>(Format::kU4).mismatches(0, 0)), 0);
  EXPECT_GT((Comparison<Integers<WrongMagic, 2>, F16>(Format::kU2).mismatches(0, 0)), 0);
  EXPECT_GT((Comparison<Integers<WrongSixteenth, 4>, F16>(Format::kU4).mismatches(0, 0)), 0);
  EXPECT_GT((Comparison<Integers<WrongSixteen, 8>, BF16>(Format::kU8).mismatches(0, 0)), 0);
  EXPECT_GT((Comparison<SwappedZeros, F16>(Format::kU4).mismatches(1, 2)), 0);
}

}  // namespace
}  // namespace subbyte::gpu
