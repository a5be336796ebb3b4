#pragma once
// What a conversion will write, decided before anything is written.

#include <optional>

#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/exporter.h"
#include "checkpoints/modules.h"
#include "models/tensor_spec.h"
#include "transform/expert_stacks.h"

namespace subbyte {

/// Where to: an exporter, or a dense type of floats.
struct ConvertTarget {
  const Exporter* exporter = nullptr;
  DType dense = DType::kF32;  // without an exporter
  bool orin = false;          // ak48: what the exporter of AWQ makes and F16, in a file of its own
  /// Layout of the family's experts: kModules are modules in every format; of kAlternatingStacks
  /// gate and up take turns wherever the format has stacks. nullopt: a family that is not known
  /// here, whose modules become stacks one by one.
  std::optional<ExpertLayout> experts = {};

  ExpertCount expert_count = {};  // of the source

  bool has_alternating_stacks() const { return experts == ExpertLayout::kAlternatingStacks; }
};

/// Makes the tensors of one group, out of modules or of one tensor that no module uses.
struct ConvertJob {
  std::vector<const FoundModule*> modules;  // several: experts that become one stack
  bool gate_up = false;                     // every two modules become one, row by row in turns
  bool apart = false;                       // every matrix becomes two, the rows in turns
  std::vector<const FileTensor*> biases;    // without modules: of experts, which become one tensor
  const FileTensor* tensor = nullptr;       // without modules
  std::optional<BiasParts> bias_parts;      // what becomes of `tensor`; nullopt: itself
  std::vector<std::string> names;           // of the new modules; several: experts of a stack
  TargetFormat target;                      // for an exporter
};

struct ConvertPlan {
  std::vector<FoundModule> modules;  // that the jobs point to
  std::vector<ConvertJob> jobs;
  std::vector<TensorGroup> groups;  // of each job
  ExportedModel exported;           // for the config, when there is an exporter
  int64_t activation_scales = 0;    // that will not be written
  std::vector<std::string> unread;  // quantized modules that nobody reads: they stay what they are
  bool drops_kv_cache = false;      // the new config cannot say how the cache is quantized
};

/// Codes: convert.not_quantized when an exporter finds nothing to do, convert.group_size when a
/// flavour has one size and no common one exists, recast.act_order, export.*, those of importers.
Result<ConvertPlan> plan_conversion(const ImportContext& context, const ConvertTarget& target);

/// Checks that all that stands beside the weights is written, too. Codes: convert.kv_cache,
/// convert.activation_scale.
Status check_left_out(const ImportContext& context, const ConvertTarget& target,
                      const ConvertPlan& plan);

}  // namespace subbyte
