#pragma once
// SubbyteWeights of dequantize_c.h as the library's own types.

#include "base/status.h"
#include "kernels/dequantize_c.h"
#include "matrix/matrix.h"

namespace subbyte {

/// Nothing that the addresses lead to is read. Code: dequantize.argument.
Result<MatrixView> weights_of(const SubbyteWeights& weights);

/// "f32", "f16", "bf16", or another format. Code: dequantize.argument.
Result<Format> number_of(const char* name);

}  // namespace subbyte
