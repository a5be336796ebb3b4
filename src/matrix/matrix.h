#pragma once
// Bytes of matrices, and their weights one by one. The form is told in subbyte/matrix.h.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "formats/weight_format.h"
#include "subbyte/matrix.h"

namespace subbyte {

/// kHuge asks for 2 MiB pages, which small buffers share, for what will be filled and streamed;
/// kSmall keeps to small pages, for what is filled bit by bit and may stay half empty: there may be
/// more of it than the machine has.
enum class Pages : uint8_t { kHuge, kSmall };

/// Zeroed bytes, aligned to 64, from 2 KiB on whole pages that writing makes resident. Throws.
std::shared_ptr<std::byte[]> allocate_bytes(std::size_t size, Pages pages = Pages::kHuge);

/// Code (row, col) of the canonical stream; of vectors the place of the number in the codebook.
uint32_t code_at(const MatrixView& matrix, int64_t row, int64_t col);

/// The dequantized weight (row, col) in double precision: the oracle of every test. `col` is the
/// stored column; with act-order it belongs to input input_order[col].
double weight_at(const MatrixView& matrix, int64_t row, int64_t col);

}  // namespace subbyte
