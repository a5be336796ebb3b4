#pragma once
// y = W x + b for every weight format.

#include <cstdint>
#include <span>

#include "base/status.h"
#include "layouts/matrix.h"
#include "ops/execution.h"

namespace subbyte {

/// Whether linear() can multiply by `weights`; code linear.unsupported names what is supported.
/// Called once for each matrix when a model is loaded, so that linear() itself cannot fail.
Status check_linear(const Execution& execution, const MatrixView& weights);

/// y[m][rows] = x[m][cols] W^T + bias[rows], m >= 1 rows of activations; bias may be empty.
/// y must not overlap x.
void linear(Execution& execution, std::span<float> y, std::span<const float> x, int64_t m,
            const MatrixView& weights, std::span<const float> bias = {});

/// The same with float32 activations whatever the execution's precision: for small products that
/// decide something, such as which experts a token goes to.
void exact_linear(Execution& execution, std::span<float> y, std::span<const float> x, int64_t m,
                  const MatrixView& weights, std::span<const float> bias = {});

}  // namespace subbyte
