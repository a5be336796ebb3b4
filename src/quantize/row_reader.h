#pragma once
// Where quantizers take their weights from.

#include <cstdint>
#include <functional>

namespace subbyte {

/// Writes row `row` of a weight matrix, one float for each column, to `out`. Called from several
/// threads at a time, for different rows. Must not throw.
using RowReader = std::function<void(int64_t row, float* out)>;

}  // namespace subbyte
