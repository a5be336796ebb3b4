#pragma once
// What a model takes of the memory of a machine, from config.json and the headers of its files.

#include <functional>
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

/// Bytes that a matrix takes on a machine, as MachineMemory::matrix_bytes() has it.
using MatrixBytes = std::function<Result<int64_t>(const MatrixShape& shape)>;

inline MatrixBytes form_of(const MachineMemory& memory) {
  return [&memory](const MatrixShape& shape) { return memory.matrix_bytes(shape); };
}

/// The need of the matrices of a model.
struct WeightNeed {
  WeightBytes bytes;    // of each tensor that the machine holds
  int64_t staging = 0;  // MemoryNeed
};

/// The one count of all that divides a model or plans it. An upper bound: matrices that are joined
/// may take a little less. Codes: those of `matrix_bytes` (naming the module) and head_format.
Result<WeightNeed> weight_need(std::span<const FoundTensor> tensors, int head_bits,
                               const MatrixBytes& matrix_bytes);

/// The plan of a model by its files' headers, whose handles have bytes as `matrix_bytes` says.
/// Codes: those of load_model and of `matrix_bytes`.
Result<StepPlan> plan_of(const ModelFiles& files, Executor& pool, const MatrixBytes& matrix_bytes);

/// The need of a machine that has these. `plan`: of the model, without its weights.
MemoryNeed memory_need(std::span<const FoundTensor> tensors, const WeightNeed& weights,
                       const StepPlan& plan, const LoadOptions& options,
                       const MachineMemory& memory);
/// The same of a machine with memory of its own, from the files. Codes: those of load_model.
Result<MemoryNeed> memory_need(const ModelFiles& files, Backend& backend,
                               const LoadOptions& options);

}  // namespace subbyte
