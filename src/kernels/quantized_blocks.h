#pragma once
// Activations, or weights, as blocks of small floats that share a scale: what mxfp8_quantize() and
// its like for MXFP4 and NVFP4 compute, on any machine to the same bits.
//
//   format        element  group  scale
//   kMxfp8E4M3    e4m3     32     e8m0      MXFP8 of FlashInfer, Transformer Engine
//   kMxfp8E5M2    e5m2     32     e8m0
//   kMxfp4        e2m1     32     e8m0
//   kNvfp4        e2m1     16     e4m3      and one float for the tensor
//
// x is [rows][cols], numbers of f32, f16 or bf16. With amax the largest magnitude of a group:
//
//   MX      scale = shared_exponent(amax, element, rule) of formats/mx_scale.h
//           code  = x / scale, which is exact, rounded to nearest even, at most the element's max
//   NVFP4   scale = amax / (6 * tensor_scale) as e4m3, rounded to nearest even, at most 448
//           code  = x * (1 / (scale * tensor_scale)) as e2m1; every operation in f32, rounded
//
//   in a group             MX scale   NVFP4 scale   codes
//   zeros only             0, 2^-127  0             zeros with their signs
//   amax underflows        0          0             MX: by the rule above; NVFP4: signed zeros
//   an infinity, no NaN    254        448           the infinity: max; the others by the rule above
//   a NaN                  255        NaN (0x7F)    all NaN; 0 for e2m1, which has none
//
// E5M2's infinity is never written. Subnormal inputs count as what they are: the calling thread
// must not have set FTZ or DAZ.
//
// Codes are [rows][padded_cols()], e2m1 two a byte with the even input in the low half;
// padded_cols() is cols in multiples of `alignment`. Padding is zeros with scale 0. Scales, a byte
// each:
//
//   kLinear   [rows][padded_cols() / group]
//   k128x4    atoms of 128 rows x 4 groups, the scales of tensor cores; rows in 128s, groups in
//             fours (foreign_layouts/flashinfer.h has the picture)
//   k8x4      atoms of 8 rows x 4 groups, row after row; rows in 8s, groups in fours

#include <cstdint>
#include <span>

#include "base/status.h"
#include "formats/mx_scale.h"
#include "subbyte/blocks.h"

namespace subbyte {

/// "ocp_floor", "ceil", "bump_175"; code blocks.rule.
Result<ScaleRule> find_scale_rule(std::string_view name);

/// Where the scale of a row and a group lies.
int64_t scale_byte(const BlockQuantization& blocks, int64_t row, int64_t group);

/// Activations as MXFP8 holds them (E4M3, rule kCeil), as floats again; x in 32s. What products of
/// MXFP8 with weights of 4 bits (W4A8) multiply.
void round_to_mxfp8(std::span<float> x);

}  // namespace subbyte
