#pragma once
// The IQ types of ggml but for IQ4: a block names points of a grid, eight or four weights each. The
// magnitudes of a point are three or eight numbers, so that with their signs a codebook holds them.

#include <array>
#include <cstdint>
#include <span>

namespace subbyte::ggml {

/// Codes of the weights of a block.
using Codes = std::array<uint8_t, 256>;

/// Values of the codes, 16 or 8, of which the last two of 8 are no weight's.
std::span<const float> iq3_xxs_values();
std::span<const float> iq3_s_values();
std::span<const float> iq2_values();
std::span<const float> iq1_values();

void iq3_xxs_codes(const uint8_t* block, Codes& codes);
void iq3_s_codes(const uint8_t* block, Codes& codes);
void iq2_xxs_codes(const uint8_t* block, Codes& codes);
void iq2_xs_codes(const uint8_t* block, Codes& codes);
void iq2_s_codes(const uint8_t* block, Codes& codes);
void iq1_s_codes(const uint8_t* block, Codes& codes);
void iq1_m_codes(const uint8_t* block, Codes& codes);

/// The integers of two levels, odd ones, a byte for each group.
void iq3_xxs_integers(const uint8_t* block, uint8_t* scales, uint8_t*);
void iq3_s_integers(const uint8_t* block, uint8_t* scales, uint8_t*);
void iq2_xxs_integers(const uint8_t* block, uint8_t* scales, uint8_t*);
void iq2_xs_integers(const uint8_t* block, uint8_t* scales, uint8_t*);
void iq2_s_integers(const uint8_t* block, uint8_t* scales, uint8_t*);
void iq1_s_integers(const uint8_t* block, uint8_t* scales, uint8_t*);
void iq1_m_integers(const uint8_t* block, uint8_t* scales, uint8_t*);

/// The f16 of IQ1_M, whose four nibbles are the high ones of the words of its scales.
uint16_t iq1_m_factor(const uint8_t* block);

}  // namespace subbyte::ggml
