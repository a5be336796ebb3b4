#pragma once
// Experts that are modules of their own, as the stacks that other formats keep them in.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/importer.h"
#include "checkpoints/modules.h"
#include "models/model_config.h"

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

/// How many experts a layer may have, asked before anything is made for each of them.
struct ExpertCount {
  int64_t experts = kMaxExperts;
  bool is_exact = false;  // a model that this version knows has so many in each stack

  /// Reads what config.json says; of families that are not known here it is the most, if it is
  /// said.
  static ExpertCount of(const Result<SideFile>& config, const Result<ModelConfig>& model);

  /// Checks a stack of `count`, or a module that may be an expert; `file` has it. Code
  /// model.weight_shape.
  Status check_stack(std::string_view stack, int64_t count,
                     const std::filesystem::path& file) const;
  Status check_module(const FoundModule& module) const;
};

/// Names of the modules of gate and up, whose rows take turns in `joint`, a stack of gpt-oss or one
/// expert of it: "experts.gate_proj" and "experts.up_proj" for "experts.gate_up_proj". Empty for
/// other names.
std::vector<std::string> names_apart(std::string_view joint);

/// The inverse for a gate: "experts.gate_up_proj" of "experts.gate_proj". Empty for other names.
std::string joint_name(std::string_view gate);

/// A bias of experts as several.
struct BiasParts {
  std::vector<std::string> names;  // of expert 0, of expert 1, ...
  std::size_t turns = 1;           // 2: gate and up, element by element in turns
  uint64_t rows = 0;               // of each
};
/// A stacked bias of gpt-oss, [experts][rows], or that of the joined gate and up of one expert, as
/// the tensors that llm-compressor and AutoRound write of it: experts.E.gate_proj.bias and
/// experts.E.up_proj.bias, experts.E.down_proj.bias; `joint`: a stacked one as one for each expert,
/// experts.E.gate_up_proj.bias. nullopt for other tensors.
std::optional<BiasParts> bias_parts(const FileTensor& tensor, bool joint = false);
/// Says whether there are such parts, without making a name for each.
bool has_bias_parts(const FileTensor& tensor);

/// The bytes of one of those tensors.
std::vector<std::byte> bias_part(const FileTensor& tensor, const BiasParts& parts,
                                 std::size_t index);

/// The stacks whose experts are all there, alike in shape and format. `joins_gate_up`: gate_proj
/// and up_proj, as llm-compressor writes them, become the gate_up_proj of gpt-oss.
std::vector<ExpertStack> find_stacks(const TensorSource& tensors,
                                     const std::vector<FoundModule>& modules, bool joins_gate_up);

}  // namespace subbyte
