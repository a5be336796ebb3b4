#pragma once
// What products of CPUs can multiply by, and the refusals of what they cannot.

#include <string_view>

#include "base/status.h"
#include "kernels/cpu/cpu_kernels.h"
#include "matrix/matrix.h"

namespace subbyte {

/// Kernels look vectors up four lanes at a time, which have 32 inputs. With other groups they are
/// dequantized to f32, a few rows at a time, and these are multiplied.
bool is_decoded(const MatrixView& weights);

/// The format that the kernels multiply.
WeightFormat kernel_format(const MatrixView& weights);

/// "matrix 4 x 8, u4 g32 ...: WHAT", code linear.unsupported.
Error refuse_weights(const MatrixView& weights, std::string_view what);

/// The refusal of weights whose kernel_format() has no kernel; it names those that have.
Error refuse_format(const cpu::Kernels& kernels, const MatrixView& weights);

}  // namespace subbyte
