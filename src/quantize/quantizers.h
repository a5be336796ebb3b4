#pragma once
// Quantizers as rows of formats name them (quantize_format.h), and the weights that they make.

#include "quantize/quantize_format.h"

namespace subbyte {

inline constexpr int k4Bits[] = {4};
inline constexpr int k8Bits[] = {8};
inline constexpr int64_t kGroupsOf16[] = {16};
inline constexpr int64_t kGroupsOf32[] = {32};
inline constexpr int64_t kGroupsOf128[] = {128};

MadeFormat integer_format, mxfp4_format, nvfp4_format, nf4_format, fp8_format, kbit_format,
    vq_format;

/// Those from 1 have zero points of at least 1; the factor of NVFP4 divides or multiplies in files.
Quantizer to_integers, to_integers_from_1, to_mxfp4, to_nvfp4_divided, to_nvfp4_multiplied;
Quantizer to_nf4, to_fp8, to_kbit, to_vq;

}  // namespace subbyte
