// The random contents of tensors. Eight bytes of a tensor come from one or two 64-bit words whose
// place in the sequence follows from the place in the tensor, so any piece can be made alone.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "base/random.h"
#include "matrix/codebook.h"
#include "synth/synth_tensors.h"

namespace subbyte {
namespace {

constexpr uint64_t kEveryNibble = 0x1111111111111111u;
constexpr uint64_t kEveryByte = 0x0101010101010101u;

// Root mean squares of what is multiplied by a scale, from the definitions below.
constexpr double kInt4Deviation = 4.64;        // q - z: q in 0..15, z 7 or 8
constexpr double kE2M1Deviation = 4.63;        // e2m1 * (1 or 2)
constexpr double kE4M3Deviation = 107.2;       // of all codes, 448 twice as often
constexpr double kFourBytesDeviation = 147.8;  // sum of four bytes: 2 * sqrt((2^16 - 1) / 12)
constexpr int kFourBytesMean = 510;

/// FNV-1a.
uint64_t hash(std::string_view text) {
  uint64_t value = 0xCBF29CE484222325u;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return value;
}

/// The sequence of a tensor, as if `words` of its words were drawn already.
Random sequence(uint64_t seed, std::string_view name, uint64_t words) {
  Random random(Random(Random(seed).next() ^ hash(name)).next());
  random.skip(words);
  return random;
}

/// `make` gives the next eight bytes; the last may be cut.
template <typename Make>
void fill_words(std::span<std::byte> bytes, Make&& make) {
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = make();
    if (bytes.size() - i >= 8) {
      std::memcpy(bytes.data() + i, &word, 8);
    } else {
      std::memcpy(bytes.data() + i, &word, bytes.size() - i);
    }
  }
}

template <typename Round>
void fill_dense(std::span<std::byte> bytes, Random random, double center, double deviation,
                Round round) {
  const auto step = static_cast<float>(deviation / kFourBytesDeviation);
  const auto start = static_cast<float>(center) - step * kFourBytesMean;
  fill_words(bytes, [&] {
    uint64_t values = 0;
    for (int half = 0; half < 2; ++half) {
      const uint64_t word = random.next();
      const uint64_t pairs = (word & 0x00FF00FF00FF00FFu) + ((word >> 8) & 0x00FF00FF00FF00FFu);
      const uint64_t sums = pairs + (pairs >> 16);  // in bits 0..15 and 32..47
      const auto first = static_cast<float>(sums & 0xFFFFu);
      const auto second = static_cast<float>((sums >> 32) & 0xFFFFu);
      const uint64_t two = static_cast<uint64_t>(round(start + step * first).bits) |
                           static_cast<uint64_t>(round(start + step * second).bits) << 16;
      values |= two << (32 * half);
    }
    return values;
  });
}

/// Between 3/4 and 5/4 of what gives the deviation.
void fill_scales(std::span<std::byte> bytes, Random random, double deviation) {
  const auto middle = static_cast<float>(deviation / kInt4Deviation);
  const float step = 0.5f * middle / 65536;
  fill_words(bytes, [&] {
    const uint64_t word = random.next();
    uint64_t scales = 0;
    for (int i = 0; i < 64; i += 16) {
      const float scale = 0.75f * middle + step * static_cast<float>((word >> i) & 0xFFFFu);
      scales |= static_cast<uint64_t>(to_float16(scale).bits) << i;
    }
    return scales;
  });
}

/// Within 1/64 of it, as F32 for E4M3: a small matrix has one or two.
void fill_factors(std::span<std::byte> bytes, Random random, double deviation) {
  const auto middle = static_cast<float>(deviation / kE4M3Deviation);
  const float step = middle / 32 / 65536;
  fill_words(bytes, [&] {
    const uint64_t word = random.next();
    uint64_t factors = 0;
    for (int i = 0; i < 64; i += 32) {
      const float factor = 63.0f / 64 * middle + step * static_cast<float>((word >> i) & 0xFFFFu);
      factors |= static_cast<uint64_t>(std::bit_cast<uint32_t>(factor)) << i;
    }
    return factors;
  });
}

/// NaN has all seven bits of the magnitude set: there the last becomes 0.
uint64_t without_nan(uint64_t codes) {
  const uint64_t magnitudes = codes & 0x7F * kEveryByte;
  return codes ^ ((magnitudes + kEveryByte) >> 7 & kEveryByte);
}

/// One of two neighbouring powers of two.
void fill_exponents(std::span<std::byte> bytes, Random random, double deviation) {
  const double exponent = 127 + std::round(std::log2(deviation / kE2M1Deviation));
  const auto base = static_cast<uint64_t>(std::clamp(exponent, 0.0, 253.0));
  fill_words(bytes, [&] { return base * kEveryByte + (random.next() & kEveryByte); });
}

/// Codes of E4M4 for 1 and 17/16.
void fill_e4m4(std::span<std::byte> bytes, Random random) {
  fill_words(bytes, [&] { return 0xB0 * kEveryByte + (random.next() & kEveryByte); });
}

void fill_values(std::span<std::byte> bytes, uint64_t offset, Format element) {
  const std::vector<float> values = default_codebook(element);
  std::memcpy(bytes.data(), std::as_bytes(std::span(values)).data() + offset, bytes.size());
}

void fill_groups(std::span<std::byte> bytes, uint64_t offset, int64_t group_size) {
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    const auto group = static_cast<uint32_t>((offset + i) / 4 / group_size);
    std::memcpy(bytes.data() + i, &group, 4);
  }
}

}  // namespace

void SynthTensor::fill(std::span<std::byte> bytes, uint64_t offset, uint64_t seed) const {
  const uint64_t words = offset / 8 * (elements == RandomElements::kDense ? 2 : 1);
  Random random = sequence(seed, declaration.name, words);
  switch (elements) {
    case RandomElements::kCodes:
      fill_words(bytes, [&] { return random.next(); });
      break;
    case RandomElements::kZeros:
      fill_words(bytes, [&] { return 7 * kEveryNibble + (random.next() & kEveryNibble); });
      break;
    case RandomElements::kZerosLessOne:
      fill_words(bytes, [&] { return 6 * kEveryNibble + (random.next() & kEveryNibble); });
      break;
    case RandomElements::kScales:
      fill_scales(bytes, random, deviation);
      break;
    case RandomElements::kExponents:
      fill_exponents(bytes, random, deviation);
      break;
    case RandomElements::kE4M3:
      fill_words(bytes, [&] { return without_nan(random.next()); });
      break;
    case RandomElements::kFactors:
      fill_factors(bytes, random, deviation);
      break;
    case RandomElements::kE4M4:
      fill_e4m4(bytes, random);
      break;
    case RandomElements::kFactor: {
      const auto factor = static_cast<float>(deviation / center);
      std::memcpy(bytes.data(), &factor, bytes.size());
      break;
    }
    case RandomElements::kCodebook:
      if (!needs_codebook(element)) {
        fill_values(bytes, offset, element);
      } else {
        fill_dense(bytes, sequence(seed, "codebook", offset / 8 * 2), 0, center,
                   [](float value) { return to_float16(value); });
      }
      break;
    case RandomElements::kGroups:
      fill_groups(bytes, offset, group_size);
      break;
    case RandomElements::kDense:
      if (declaration.dtype == DType::kF16) {
        fill_dense(bytes, random, center, deviation, [](float value) { return to_float16(value); });
      } else {
        fill_dense(bytes, random, center, deviation,
                   [](float value) { return to_bfloat16(value); });
      }
      break;
  }
}

}  // namespace subbyte
