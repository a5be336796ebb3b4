#pragma once
// Ways in which other software names what a model has, that are known and not read: a checkpoint in
// one of them is refused by one line, not by one for each tensor.

#include <optional>

#include "base/status.h"
#include "checkpoints/containers/tensor_source.h"

namespace subbyte {

/// The refusal of a checkpoint with names of such a layout, code model.layout; nullopt without one.
/// Of use where tensors of the model are missing.
std::optional<Error> find_unread_layout(const TensorSource& tensors);

/// `error`, or the layout that explains it: of a tensor that is missing, or is none of the model's.
Error with_unread_layout(const TensorSource& tensors, Error error);

}  // namespace subbyte
