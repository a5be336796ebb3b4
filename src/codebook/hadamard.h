#pragma once
// The Hadamard rotation of bitsandbytes (branch archive/kbit-gemv-v8), in host memory: each run of
// D numbers x becomes H S x / sqrt(D), H the matrix of Hadamard by Sylvester (H[i][j] is -1 to the
// number of bits that i and j have in common) and S the signs. H / sqrt(D) is its own inverse, so
// rotating weights and activations alike changes no product but by rounding.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "formats/format.h"

namespace subbyte::codebook {

/// Checks `count` numbers and words of signs, 0 for none, as hadamard_rotate() does.
Status check_hadamard(int64_t count, Format dtype, int64_t dim, int64_t sign_words);

/// Rotates runs of `dim` numbers in place: a power of two from 32 to 8192 (hadamard_rotate has 32
/// to 256, hadamard_rotate_full whole rows of 512 to 8192). `data` are f16 or bf16; sums are in
/// f32, rounded once more. Bit i % 32 of signs[i / 32] negates number i first; empty: none is
/// negated.
/// Codes: hadamard.dim, hadamard.signs, kbit.dtype, kbit.buffer.
Status hadamard_rotate(std::span<std::byte> data, Format dtype, int64_t dim,
                       std::span<const uint32_t> signs = {});

}  // namespace subbyte::codebook
