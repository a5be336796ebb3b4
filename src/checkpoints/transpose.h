#pragma once
// Transpositions that importers need, at the speed of memory: files hold what belongs to one input
// side by side, canonical matrices what belongs to one output.
//
// A block of 16 rows of 16 bytes is transposed in vectors of 16 bytes, which every machine has;
// blocks are gathered in a small tile, from which whole cache lines go to the result.

#include <cstddef>
#include <cstdint>

#include "base/mapped_file.h"
#include "subbyte/executor.h"

namespace subbyte {

/// to[n][k] = from[k][n] for elements of `width` bytes (1, 2 or 4), from [rows][cols]. The result
/// does not overlap. Any addresses, any sizes. Where `file` is given, `from` lies in it, and its
/// pages are given back as soon as they were read: no more than 8 MiB of them are resident at once.
void transpose(std::byte* to, const std::byte* from, int64_t rows, int64_t cols, int width,
               Executor& executor, const MappedFile* file = nullptr);

/// The order of outputs in a word of eight nibbles: nibble i belongs to output
/// {0, 2, 4, 6, 1, 3, 5, 7}[i] of eight. Words are little-endian, from [rows][words].
///
/// to[8 * words][rows / 2]: nibble k of row n is what row k of `from` holds for output n. `rows` is
/// even. `file` as above.
void transpose_awq_nibbles(std::byte* to, const std::byte* from, int64_t rows, int64_t words,
                           Executor& executor, const MappedFile* file = nullptr);

/// to[8 * words][rows]: the same with a byte for each nibble.
void transpose_awq_nibbles_to_bytes(std::byte* to, const std::byte* from, int64_t rows,
                                    int64_t words, Executor& executor);

}  // namespace subbyte
