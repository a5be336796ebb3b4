#pragma once
// The codes of a lane in its words, for tests of decoders: by bit_place(), one bit at a time.

#include <array>
#include <cstdint>
#include <functional>

#include "base/random.h"
#include "formats/format.h"
#include "kernels/gpu/packed_weights.h"

namespace subbyte::gpu {

inline constexpr int kSlots = kSteps * 8;  // of a lane: step, register, half

/// The codes of a lane, by (step, register, half).
using Codes = std::array<uint32_t, kSlots>;

/// Below `count`.
inline Codes random_codes(Random& random, uint32_t count) {
  Codes codes;
  for (uint32_t& code : codes) code = static_cast<uint32_t>(random.below(count));
  return codes;
}
/// Every code goes through all `count` of them as `by` does.
inline Codes moved(Codes codes, uint32_t by, uint32_t count) {
  for (uint32_t& code : codes) code = (code + by) % count;
  return codes;
}

inline Slot slot_at(int i) {
  return {.lane = 0, .step = i / 8, .reg = i / 2 % 4, .high = i % 2};
}

/// Where a bit of a code is put. Tests of the tests put it elsewhere.
using Place = std::function<BitPlace(Slot slot, int bit)>;

inline Place place_of(int bits, CodeOrder order) {
  return [=](Slot slot, int bit) { return bit_place(slot, bit, bits, order); };
}

inline std::array<uint32_t, 16> pack(const Codes& codes, int bits, const Place& place) {
  std::array<uint32_t, 16> words{};
  for (int i = 0; i < kSlots; ++i) {
    for (int bit = 0; bit < bits; ++bit) {
      const BitPlace at = place(slot_at(i), bit);
      words[at.word % 16] |= (codes[i] >> bit & 1) << at.bit % 32;
    }
  }
  return words;
}

template <class Number>
const FormatInfo& type_of() {
  return info(Number::kIsF16 ? Format::kF16 : Format::kBF16);
}

}  // namespace subbyte::gpu
