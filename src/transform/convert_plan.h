#pragma once
// The steps of a conversion, decided before anything is written.

#include <optional>

#include "checkpoints/exporter.h"
#include "checkpoints/modules.h"
#include "models/tensor_spec.h"
#include "transform/difference.h"
#include "transform/expert_stacks.h"
#include "transform/steps.h"

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

/// Modules that become others.
struct ConvertJob {
  std::vector<const FoundModule*> modules;  // several: experts that become one stack
  bool gate_up = false;                     // every two modules become one, row by row in turns
  bool apart = false;                       // every matrix becomes two, the rows in turns
  std::vector<std::string> names;           // of the new modules; several: experts of a stack
  TargetFormat target;                      // for an exporter
};

/// Weights that are not exact: to nearest even where that is allowed, else an error.
struct ConvertLoss {
  bool allowed = false;
  int64_t rounded = 0;  // modules and tensors
  Difference all = {};
  WorstLoss worst = {};
};

struct ConvertPlan {
  std::vector<FoundModule> modules;  // that the steps point to
  std::vector<WriteStep> steps;
  ExportedModel exported;         // for the config, when there is an exporter
  int64_t converted = 0;          // modules
  int64_t kept = 0;               // steps that have none
  int64_t activation_scales = 0;  // that will not be written
  bool drops_kv_cache = false;    // the new config cannot say how the cache is quantized
};

/// All that is passed must outlive the plan. Codes: convert.not_quantized when an exporter finds
/// nothing to do, convert.group_size when a flavour has one size and no common one exists,
/// recast.act_order, export.*, those of importers; of the steps convert.inexact, convert.overflow,
/// recast.*, export.* and those of importers.
Result<ConvertPlan> plan_conversion(const ImportContext& context, const ConvertTarget& target,
                                    ConvertLoss& loss);

/// A matrix of `module` in another format: exactly, or with scales rounded where that is allowed.
/// Codes: recast.*.
Result<Matrix> in_target(const Matrix& matrix, const TargetFormat& target, std::string_view module,
                         ConvertLoss& loss, Executor& pool);

/// Imports the modules of a job, joins or takes apart their rows, and puts what the target has of
/// them.
Status convert_modules(const ImportContext& context, const ConvertTarget& target,
                       const ConvertJob& job, ConvertLoss& loss, const PutBytes& put);

/// The floats of a tensor in another type.
WriteStep as_other_floats(const FileTensor& tensor, DType dtype, ConvertLoss& loss, Executor& pool);

/// Checks that all that stands beside the weights is written, too. Codes: convert.kv_cache,
/// convert.activation_scale.
Status check_left_out(const ImportContext& context, const ConvertTarget& target,
                      const ConvertPlan& plan);

}  // namespace subbyte
