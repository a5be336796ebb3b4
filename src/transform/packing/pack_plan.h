#pragma once
// What packing a model will write, with the proof that it comes back; decided before anything is
// written.

#include <vector>

#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/modules.h"
#include "transform/expert_stacks.h"
#include "transform/packing/packed_module.h"

namespace subbyte {

/// Makes the tensors of one group.
struct PackJob {
  std::vector<const FoundModule*> sources;  // several: experts that become one stack
  PackedModule packed;                      // of the sources
  std::vector<const FileTensor*> biases;    // in Marlin's order, of each source
  const FileTensor* tensor = nullptr;       // without sources: stays what it is
};

struct PackPlan {
  std::vector<FoundModule> modules;  // that the jobs point to
  std::vector<PackJob> jobs;
  std::vector<TensorGroup> groups;  // of each job
};

/// The layout that was asked for, with all that decides its bytes.
struct PackTarget {
  const PackLayout* layout = nullptr;
  std::string tile;
  Format activations = Format::kNone;
  std::vector<std::string> keep;
  ExpertCount expert_count = {};  // of the model
};

/// The matrices of a job, in the order of its experts.
Result<std::vector<Matrix>> import_job(const ImportContext& context, const PackJob& job);

/// Reads all weights. Codes: those of pack_model(). `progress` counts bytes of the source.
Result<PackPlan> plan_packing(const ImportContext& context, const PackTarget& target,
                              const ByteProgress& progress);

}  // namespace subbyte
