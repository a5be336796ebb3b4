#pragma once
// Experts that are modules of their own, as the stacks that other formats keep them in.

#include <string>
#include <vector>

#include "checkpoints/importer.h"
#include "checkpoints/modules.h"

namespace subbyte {

/// All experts of one matrix of a layer.
struct ExpertStack {
  std::string name;  // "model.layers.0.mlp.experts.gate_up_proj"
  std::vector<const FoundModule*> modules;
  /// The modules are gate and up of each expert in turns: their rows alternate in the stack.
  bool gate_up = false;
  std::vector<const FileTensor*> biases;  // of the modules; empty where they have none

  int64_t num_experts() const { return static_cast<int64_t>(modules.size()) / (gate_up ? 2 : 1); }
};

/// The stacks whose experts are all there, alike in shape and format. `joins_gate_up`: gate_proj
/// and up_proj, as llm-compressor writes them, become the gate_up_proj of gpt-oss.
std::vector<ExpertStack> find_stacks(const TensorSource& tensors,
                                     const std::vector<FoundModule>& modules, bool joins_gate_up);

}  // namespace subbyte
