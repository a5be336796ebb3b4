#include "foreign_layouts/ggml_grids.h"

#include <bit>
#include <cstring>

#include "foreign_layouts/ggml_grid_points.h"

namespace subbyte::ggml {
namespace {

// ggml has d (2 s + 1) / 4 times 4, 12, ..., or d (2 s + 1) / 8 times 8, 25 and 43.
constexpr float kIq3Xxs[16] = {-15.5F, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15.5F};
constexpr float kIq3S[16] = {-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15};
constexpr float kIq2[8] = {-5.375F, -3.125F, -1, 1, 3.125F, 5.375F, 6, 7};
// -1, 0 and 1, an eighth less or more.
constexpr float kIq1[8] = {-1.125F, -0.875F, -0.125F, 0.125F, 0.875F, 1.125F, 2, 3};

uint32_t word_at(const uint8_t* bytes) {
  uint32_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

uint16_t half_at(const uint8_t* bytes) {
  uint16_t half = 0;
  std::memcpy(&half, bytes, sizeof half);
  return half;
}

int nibble_at(const uint8_t* bytes, int i) {
  return bytes[i / 2] >> (i % 2 * 4) & 15;
}

uint8_t odd(int integer) {
  return static_cast<uint8_t>(2 * integer + 1);
}

/// Signs of eight weights by seven bits: their number is even.
int with_parity(uint32_t seven) {
  return static_cast<int>(seven | (std::popcount(seven) & 1u) << 7);
}

/// `count` weights of a point with kBits for each magnitude: those with a sign lie below zero.
template <int kBits>
void put_point(uint8_t* codes, int point, int signs, int count) {
  constexpr int kLevels = kBits == 3 ? 8 : 3;
  for (int i = 0; i < count; ++i) {
    const int magnitude = point >> (kBits * i) & ((1 << kBits) - 1);
    const bool is_negative = (signs >> i & 1) != 0;
    codes[i] = static_cast<uint8_t>(is_negative ? kLevels - 1 - magnitude : kLevels + magnitude);
  }
}

void put_iq1(uint8_t* codes, int point, bool is_less) {
  for (int i = 0; i < 8; ++i) {
    codes[i] = static_cast<uint8_t>(2 * (point >> (2 * i) & 3) + (is_less ? 0 : 1));
  }
}

}  // namespace

std::span<const float> iq3_xxs_values() {
  return kIq3Xxs;
}
std::span<const float> iq3_s_values() {
  return kIq3S;
}
std::span<const float> iq2_values() {
  return kIq2;
}
std::span<const float> iq1_values() {
  return kIq1;
}

// d f16, 64 bytes of points, 8 words: four times 7 signs, and a scale of 4 bits.
void iq3_xxs_codes(const uint8_t* block, Codes& codes) {
  for (int i = 0; i < 64; ++i) {
    const uint32_t word = word_at(block + 66 + i / 8 * 4);
    const int signs = with_parity(word >> (i / 2 % 4 * 7) & 127);
    put_point<3>(&codes[4 * i], kIq3XxsGrid[block[2 + i]], signs >> (i % 2 * 4), 4);
  }
}
void iq3_xxs_integers(const uint8_t* block, uint8_t* scales, uint8_t*) {
  for (int g = 0; g < 8; ++g) scales[g] = odd(static_cast<int>(word_at(block + 66 + 4 * g) >> 28));
}

// d f16, 64 bytes of points, their 64 high bits, 256 signs, 8 scales of 4 bits.
void iq3_s_codes(const uint8_t* block, Codes& codes) {
  for (int i = 0; i < 64; ++i) {
    const int point = block[2 + i] | (block[66 + i / 8] >> (i % 8) & 1) << 8;
    put_point<3>(&codes[4 * i], kIq3SGrid[point], block[74 + i / 2] >> (i % 2 * 4), 4);
  }
}
void iq3_s_integers(const uint8_t* block, uint8_t* scales, uint8_t*) {
  for (int g = 0; g < 8; ++g) scales[g] = odd(nibble_at(block + 106, g));
}

// d f16, then for each 32 weights four bytes of points and a word as of IQ3_XXS.
void iq2_xxs_codes(const uint8_t* block, Codes& codes) {
  for (int i = 0; i < 32; ++i) {
    const uint8_t* const group = block + 2 + i / 4 * 8;
    const int signs = with_parity(word_at(group + 4) >> (i % 4 * 7) & 127);
    put_point<2>(&codes[8 * i], kIq2XxsGrid[group[i % 4]], signs, 8);
  }
}
void iq2_xxs_integers(const uint8_t* block, uint8_t* scales, uint8_t*) {
  for (int g = 0; g < 8; ++g) scales[g] = odd(static_cast<int>(word_at(block + 6 + 8 * g) >> 28));
}

// d f16, 32 halves: a point of 9 bits and 7 signs; 16 scales of 4 bits.
void iq2_xs_codes(const uint8_t* block, Codes& codes) {
  for (int i = 0; i < 32; ++i) {
    const uint32_t half = half_at(block + 2 + 2 * i);
    put_point<2>(&codes[8 * i], kIq2XsGrid[half & 511], with_parity(half >> 9), 8);
  }
}
void iq2_xs_integers(const uint8_t* block, uint8_t* scales, uint8_t*) {
  for (int g = 0; g < 16; ++g) scales[g] = odd(nibble_at(block + 66, g));
}

// d f16, 32 bytes of points, 256 signs, two high bits for each point, 16 scales of 4 bits.
void iq2_s_codes(const uint8_t* block, Codes& codes) {
  for (int i = 0; i < 32; ++i) {
    const int point = block[2 + i] | (block[66 + i / 4] >> (i % 4 * 2) & 3) << 8;
    put_point<2>(&codes[8 * i], kIq2SGrid[point], block[34 + i], 8);
  }
}
void iq2_s_integers(const uint8_t* block, uint8_t* scales, uint8_t*) {
  for (int g = 0; g < 16; ++g) scales[g] = odd(nibble_at(block + 74, g));
}

// d f16, 32 bytes of points, 8 halves: four times 3 high bits, a scale of 3, less or more.
void iq1_s_codes(const uint8_t* block, Codes& codes) {
  for (int i = 0; i < 32; ++i) {
    const int half = half_at(block + 34 + i / 4 * 2);
    const int point = block[2 + i] | (half >> (i % 4 * 3) & 7) << 8;
    put_iq1(&codes[8 * i], kIq1Grid[point], (half & 0x8000) != 0);
  }
}
void iq1_s_integers(const uint8_t* block, uint8_t* scales, uint8_t*) {
  for (int g = 0; g < 8; ++g) scales[g] = odd(half_at(block + 34 + 2 * g) >> 12 & 7);
}

// 32 bytes of points, 32 nibbles: 3 high bits, and less or more; 4 halves: four scales of 3 bits
// and a nibble of d.
void iq1_m_codes(const uint8_t* block, Codes& codes) {
  for (int i = 0; i < 32; ++i) {
    const int nibble = nibble_at(block + 32, i);
    put_iq1(&codes[8 * i], kIq1Grid[block[i] | (nibble & 7) << 8], (nibble & 8) != 0);
  }
}
void iq1_m_integers(const uint8_t* block, uint8_t* scales, uint8_t*) {
  for (int g = 0; g < 16; ++g) {
    scales[g] = odd(half_at(block + 48 + g / 4 * 2) >> (g % 4 * 3) & 7);
  }
}
uint16_t iq1_m_factor(const uint8_t* block) {
  int factor = 0;
  for (int i = 0; i < 4; ++i) factor |= half_at(block + 48 + 2 * i) >> 12 << (4 * i);
  return static_cast<uint16_t>(factor);
}

}  // namespace subbyte::ggml
