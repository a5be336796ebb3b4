#pragma once
// Where in a checkpoint the tensors of a model are: under which prefix, matrix by matrix or joined,
// experts as modules of their own or in stacks. Found by the names that are there, for all families
// alike.
//
//   prefix                   head                      who writes it
//   model.                   lm_head                   most
//   model.language_model.    lm_head                   models that read pictures, too
//   language_model.model.    language_model.lm_head    the same before transformers 4.52
//                            lm_head                   a model saved without its head
//   backbone.                lm_head                   Nemotron-H, whose table is "embeddings"
//
// Mixtral and MiniMax-M2 have "block_sparse_moe.", w1, w3 and w2 in published files, LFM2-MoE such
// names of experts under "feed_forward.". Files with the names of transformers' modules have
// "mlp.", gate_proj, up_proj and down_proj instead.
//
//   experts of "layers.3.mlp.experts.gate_up_proj"
//     modules   layers.3.mlp.experts.E.gate_proj, layers.3.mlp.experts.E.up_proj
//     joined    layers.3.mlp.experts.E.gate_up_proj
//     a stack   layers.3.mlp.experts.gate_up_proj

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/importer.h"
#include "models/tensor_spec.h"

namespace subbyte {

/// A module of a checkpoint.
struct FileMatrix {
  std::string module;   // "model.layers.3.self_attn.q_proj"
  int64_t experts = 1;  // more: a stack of them
  int64_t rows = 0;     // of each expert
  int64_t cols = 0;
  bool inputs_first = false;  // ImportContext::stacks_have_inputs_first, if it is a stack of floats
};

/// A tensor that is no matrix, or is that of the biases of experts.
struct FileVector {
  std::string name;
  Shape shape;
};

/// How the parts of a tensor lie in a file.
enum class PartOrder : uint8_t {
  kApart,        // in matrices of their own; of experts, all parts of one after those of another
  kOneByOne,     // the rows of the first, then those of the second
  kAlternating,  // a row of the first, a row of the second
};

/// Tensors of a TensorSpec that a checkpoint has, or should have.
struct FileTensors {
  std::vector<FileMatrix> matrices;
  std::vector<FileVector> vectors;
  PartOrder rows = PartOrder::kApart;
  PartOrder biases = PartOrder::kApart;
};

class CheckpointNames {
 public:
  /// `tensors` must outlive this. Code model.names when the tensors have a prefix that no software
  /// writes.
  /// `usual`: the prefix where there are no tensors to tell it by.
  static Result<CheckpointNames> find(const TensorSource& tensors, ExpertLayout experts,
                                      std::string_view usual = "model.");

  /// The name in the checkpoint: "model.layers.3.mlp.gate" of "layers.3.mlp.gate".
  std::string full(std::string_view name) const;
  FileTensors tensors_of(const TensorSpec& spec) const;
  /// Its parts, or itself where it has none, with the names that they have, or would have, in the
  /// checkpoint; of experts those of stacks (expert_name() of checkpoints/expert_names.h).
  std::vector<PartSpec> parts_of(const TensorSpec& spec) const;
  /// Says whether its experts are modules of their own, or should be where there are none.
  bool has_experts_apart(const TensorSpec& spec) const {
    return spec.is_of_experts() && !stacks_apart(spec).empty();
  }
  ExpertLayout experts() const { return experts_; }
  /// The text before "layers.3.mlp.gate", and the name of the head.
  std::string_view prefix() const { return prefix_; }
  std::string_view head() const { return head_; }

 private:
  CheckpointNames(const TensorSource& tensors, ExpertLayout experts)
      : tensors_(&tensors), experts_(experts) {}

  /// Says whether the biases that config.json speaks of are there: of linear layers transformers
  /// takes zeros where a file has none for the modules of that name in any layer.
  bool has_biases(const TensorSpec& spec, std::span<const PartSpec> parts) const;
  std::vector<PartSpec> stacks_apart(const TensorSpec& spec) const;
  FileTensors experts_of(const TensorSpec& spec) const;
  bool has_inputs_first(const TensorSpec& spec) const;

  const TensorSource* tensors_;
  ExpertLayout experts_;
  std::string_view prefix_, head_, table_;
  bool has_module_names_ = false;  // of transformers 5 where published files have others
  std::set<std::string> biased_;   // modules with a bias, without the layer's number
};

/// describe_module() and the import with the dimensions in their order.
ImportContext context_of(const ImportContext& context, const FileMatrix& matrix);

/// describe_module() of a matrix of a list. Codes: those, and import.shape.
Result<ModuleInfo> describe_matrix(const ImportContext& context, const TensorSpec& spec,
                                   const FileMatrix& matrix);

/// A tensor of a list, and what a checkpoint has of it.
struct FoundTensor {
  TensorSpec spec;
  FileTensors file;
  std::vector<ModuleInfo> infos;  // of file.matrices
};

/// Modules of a file that nobody reads (left_modules_of), with their names there.
std::set<std::string, std::less<>> left_modules(const CheckpointNames& names,
                                                const ModelConfig& config);

/// Finds all tensors of a model by the headers, before weights are read. Of one that is tied to
/// another, `file` is empty where the checkpoint does not have it.
/// Codes: those of describe_module; import.missing and import.shape for other tensors; model.layout
/// in their place for names that other software has for them;
/// model.weight_shape when a module disagrees with `config`; model.surplus for tensors of another
/// architecture or of layers that config.json does not count; import.config for a quantization
/// method that no module has.
Result<std::vector<FoundTensor>> find_tensors(const ImportContext& context,
                                              const CheckpointNames& names,
                                              const ModelConfig& config);

/// Tensors that some tools save and no model here reads: tables of the rotary embedding, which
/// follow from config.json, and scales for a key-value cache in FP8, which holds floats here.
bool is_ignored_tensor(std::string_view name);

/// A bias whose numbers are all 0, which changes nothing: some tools save one for every layer.
bool is_zero_bias(const FileTensor& tensor);

}  // namespace subbyte
