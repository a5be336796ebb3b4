#pragma once
// Words of 32 bits as checkpoints of GPTQ and AWQ have them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace subbyte::torch_operators {

/// Code (k, n) of a matrix with `rows` outputs.
using CodeOf = uint32_t (*)(const uint32_t* words, int64_t k, int64_t n, int64_t rows, int bits);

/// GPTQ, I32 [K * bits / 32, N]: inputs from the low bits up.
uint32_t gptq_code(const uint32_t* words, int64_t k, int64_t n, int64_t rows, int bits);

/// AWQ, I32 [K, N * bits / 32]: outputs, the even ones of a word first.
uint32_t awq_code(const uint32_t* words, int64_t k, int64_t n, int64_t rows, int bits);

/// Makes canonical codes [N][K] of 4 or 8 bits, stored column k being row order[k] of the words.
std::vector<std::byte> canonical(const uint32_t* words, int64_t rows, int64_t cols, int bits,
                                 CodeOf code_of, std::span<const int32_t> order = {});

}  // namespace subbyte::torch_operators
