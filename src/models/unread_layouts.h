#pragma once
// Ways in which other software names what a model has, that are known and not read: a checkpoint in
// one of them is refused by one line, not by one for each tensor.

#include <span>

#include "base/status.h"
#include "checkpoints/containers/tensor_source.h"
#include "models/tensor_spec.h"

namespace subbyte {

/// `error`, of a tensor that is missing or is none of the model's, or the layout that explains it,
/// code model.layout: one that no name of the model, which has `specs`, is in.
Error with_unread_layout(const TensorSource& tensors, std::span<const TensorSpec> specs,
                         Error error);

}  // namespace subbyte
