#pragma once
// The shared exponent of an MX block: which power of two scales a block whose largest magnitude is
// amax. The OCP specification has one rule, tools use three. With E = floor(log2 amax) and the
// largest exponent of the element M (2 for e2m1, 8 for e4m3, 15 for e5m2):
//
//   kFloor      E - M                         the specification, ggml, Triton's ROUND_DOWN
//   kCeil       ceil(log2(amax / max))        FlashInfer, Triton's default, transformers
//   kBump175    E - M, + 1 from 1.75 * 2^E    compressed-tensors
//
// kFloor clips what exceeds max * scale: up to a quarter of amax for e2m1, where 7.99 becomes
// 6. kCeil never clips. kBump175 clips a little and has the smallest error for e2m1, because
// 1.75 * 2^E is the middle between the largest element 1.5 * 2^E and the next power of two.

#include <cstdint>

#include "formats/format.h"
#include "subbyte/blocks.h"

namespace subbyte {

/// An e8m0 code, 0..254. `amax` >= 0. Beyond the range of e8m0 the scale is the nearest there is,
/// so amax 0 gives 0 (2^-127) and infinity gives 254; the block's elements follow the element's
/// own rule. NaN gives 255, e8m0's NaN.
uint32_t shared_exponent(double amax, const FormatInfo& element, ScaleRule rule);

}  // namespace subbyte
