#pragma once
// Looking up rows of an embedding table.

#include <cstdint>
#include <span>

#include "matrix/matrix.h"

namespace subbyte {

/// y[i] = row ids[i] of a table [vocabulary][hidden], dense or quantized: the float next to
/// weight_at. Every id must be inside the table.
void embed(std::span<float> y, std::span<const int32_t> ids, const MatrixView& table);

}  // namespace subbyte
