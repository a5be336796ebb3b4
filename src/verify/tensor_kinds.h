#pragma once
// The list of a model's tensors as a person reads it: one line for all layers, or experts, whose
// tensors are alike.
//
//   model.layers.0.mlp.up_proj, model.layers.1.mlp.up_proj, model.layers.3.mlp.up_proj
//   -> model.layers.0-1,3.mlp.up_proj

#include <span>
#include <string_view>
#include <vector>

#include "verify/inspect.h"

namespace subbyte {

struct TensorKind {
  InspectedWeight weight;  // its name stands for all of them; parameters and bytes are their sums
  int64_t count = 1;
};

/// Says whether `a` comes before `b` when the numbers between dots are compared as numbers.
bool comes_before(std::string_view a, std::string_view b);

/// Joins what differs in numbers between dots alone: importer, format, shape and act-order are the
/// same. Every name that the ranges of a line describe is there. In the order of comes_before().
std::vector<TensorKind> find_tensor_kinds(std::span<const InspectedWeight> weights);

}  // namespace subbyte
