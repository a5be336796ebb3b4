#pragma once
// The tensors of a model as a table that fits the screen.

#include <span>
#include <string>

#include "verify/tensor_kinds.h"

namespace subbyte::app {

/// A line for each kind, under a heading for those of the same layers:
///
///   name               #    MB  bits  format          shape
///   model.norm         1 0.001    16  bf16            384
///   model.layers.0-7
///     mlp.down_proj    8 2.376 4.156  u4 g128 scale f16 zero u8  384x1024
///
/// "#" says how many there are. As modules are named without ".weight", so are the others. Where
/// `columns` are too few, each has its numbers below its name.
std::string tensor_table(std::span<const TensorKind> kinds, int columns);

}  // namespace subbyte::app
