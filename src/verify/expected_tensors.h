#pragma once
// Which tensors the model of a config.json has, and in which shapes.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/containers/tensor_source.h"
#include "models/model_config.h"

namespace subbyte {

/// A linear layer, an embedding, or the matrices of several experts.
struct ExpectedModule {
  std::string name;  // "model.layers.0.mlp.up_proj"
  int64_t experts = 1;
  int64_t rows = 0;
  int64_t cols = 0;
};

/// A norm, a bias, a sink.
struct ExpectedTensor {
  std::string name;
  Shape shape;
};

struct ExpectedTensors {
  std::vector<ExpectedModule> modules;
  std::vector<ExpectedTensor> plain;
};

/// nullopt for families whose tensors are not known here. Experts have the names that `tensors` has
/// for the first one: a stack, or modules of their own (WeightLoader::experts).
std::optional<ExpectedTensors> expected_tensors(const ModelConfig& config,
                                                const TensorSource& tensors);

}  // namespace subbyte
