#pragma once
// What the CUDA kernels are told of a packed matrix.

#include <cstddef>

#include "kernels/cuda/common/arguments.h"
#include "kernels/gpu/packed_weights.h"

namespace subbyte::cuda {

/// The kernels' view of a packed matrix that lies at `packed`; `codebook` becomes numbers of type
/// `number`.
WeightArguments weight_arguments(const std::byte* packed, const PackedFormat& format,
                                 double tensor_scale, Number number);

}  // namespace subbyte::cuda
