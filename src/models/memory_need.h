#pragma once
// What a model takes of the memory of a machine, from config.json and the headers of its files.

#include <span>

#include "models/checkpoint_names.h"
#include "models/model.h"

namespace subbyte {

/// The largest step of a program that loads with these options, and its cache.
StepSize step_size(const LoadOptions& options);
CacheSize cache_size(const LoadOptions& options, const CacheLayout& layout);

/// Positions of the largest cache of at most so many bytes, whatever options.cache_positions says;
/// 0: not even that of a page is.
int64_t positions_within(LoadOptions options, const CacheLayout& layout, int64_t bytes);

/// An upper bound: matrices that are joined may take a little less. `plan`: of the model, without
/// its weights. Codes: those of MachineMemory::matrix_bytes (naming the module) and head_format.
Result<MemoryNeed> memory_need(std::span<const FoundTensor> tensors, const StepPlan& plan,
                               const LoadOptions& options, const MachineMemory& memory);
/// The same of a machine with memory of its own, from the files. Codes: those of load_model.
Result<MemoryNeed> memory_need(const ModelFiles& files, Backend& backend,
                               const LoadOptions& options);

}  // namespace subbyte
