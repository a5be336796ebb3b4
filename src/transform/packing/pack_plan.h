#pragma once
// The steps of packing a model, with the proof that it comes back; decided before anything is
// written.

#include <vector>

#include "transform/expert_stacks.h"
#include "transform/packing/packed_module.h"
#include "transform/steps.h"

namespace subbyte {

struct PackPlan {
  std::vector<FoundModule> modules;  // that the steps point to
  std::vector<WriteStep> steps;
  int64_t packed = 0;          // of `modules`
  int64_t packed_modules = 0;  // that they became
  bool has_act_order = false;  // any of them
  bool all_scales_bf16 = true;
};

/// The layout that was asked for, with all that decides its bytes.
struct PackTarget {
  const PackLayout* layout = nullptr;
  std::string tile;
  Format activations = Format::kNone;
  std::vector<std::string> keep;
  ExpertCount expert_count = {};  // of the model
};

/// Reads all weights; `context` must outlive the plan. Codes: those of pack_model(). `progress`
/// counts bytes of the source.
Result<PackPlan> plan_packing(const ImportContext& context, const PackTarget& target,
                              const ByteProgress& progress);

}  // namespace subbyte
