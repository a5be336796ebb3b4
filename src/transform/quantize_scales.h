#pragma once
// The type of the scales of formats that have E4M4 or F16 (kbit and vq). E4M4 is a byte less for 32
// weights, and has its precision for blocks down to 2^-14 of the largest; where a matrix has more
// than a few that are smaller, as one with a single huge weight does, F16 keeps them.

#include "transform/quantize_plan.h"

namespace subbyte {

/// The share of blocks below the range of E4M4 up to which it is taken. Such blocks hardly count in
/// a product, and rows that are nearly zero are no reason to store more.
inline constexpr double kShareOfSmallBlocks = 1.0 / 1024;

/// Gives each unit the type of its scales, and each set its largest magnitude. Reads all matrices
/// that will be quantized. Nothing happens where the format has no choice.
Status choose_scales(const QuantizeFormat& format, QuantizePlan& plan, Executor& pool);

}  // namespace subbyte
