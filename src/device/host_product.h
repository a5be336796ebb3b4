#pragma once
// Products on the CPU, with what follows them.

#include "base/status.h"
#include "device/host_weights.h"
#include "device/product.h"

namespace subbyte::device {

/// Multiplies on the threads of `execution`; the operands have been checked, and lie on the host.
/// Sums are in f32 and rounded once, to nearest even; rows of x with infinities and NaN are
/// multiplied by the definition. y may overlap x. Allocates nothing after the first call of a size.
/// Codes: linear.unsupported.
Status multiply(Execution& execution, const HostWeights& weights, const Product& product);

}  // namespace subbyte::device
