#pragma once
// The kernels that torch runs before those of a device, where it looks after gradients.
//
// They cost nothing where nobody wants a gradient: a call with tensors of a CPU or a GPU of which
// none requires one goes on to the kernel of the device. All others, and those that are traced, go
// to the operator of the same name in the namespace kGradientSpace, whose kernels are in Python
// (python/subbyte/torch/_gradients.py): it computes the gradients that there are, or refuses.

#include <string_view>

#include "base/status.h"
#include "torch_operators/operators.h"

namespace subbyte::torch_operators {

inline constexpr const char* kGradientSpace = "subbyte_gradients";

/// Gives all operators these kernels; `has_cuda` where they have some for GPUs. Codes:
/// torch.library.
Status register_gradients(bool has_cuda);

/// Says why the call that Python has been handed on this thread is refused: no exception of it
/// comes through libtorch with its text.
void refuse_call(std::string_view line);

}  // namespace subbyte::torch_operators
