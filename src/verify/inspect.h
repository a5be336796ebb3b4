#pragma once
// Looking at what a checkpoint has (subbyte/verify.h).

#include <cstdint>
#include <filesystem>

#include "base/status.h"
#include "models/model_config.h"
#include "ops/backend.h"
#include "ops/cache_layout.h"
#include "subbyte/executor.h"
#include "subbyte/verify.h"

namespace subbyte {

/// State that a run keeps of sequences; none of a config that no step can be recorded of.
CacheLayout cache_of(const ModelConfig& model);

/// Bytes that the weights take on a CPU.
uint64_t weight_bytes(const Inspection& inspection);

/// Bytes that a run takes on a CPU with a full context, in f16.
uint64_t full_context_bytes(const Inspection& inspection, const ModelConfig& model);

/// Scales of more than so many bytes together are not read: that would take seconds.
inline constexpr uint64_t kMaxScaleBytes = uint64_t{1} << 30;

/// For a path that find_checkpoint() has found, on `pool`. With a `backend`, which computes in the
/// memory of the host, whatever keeps the model of a directory or a model file from running there
/// is a problem, too (check_loading, generation_config.json, tokenizer.json if there is one).
/// Codes: those of TensorSource and of config.json.
Result<Inspection> inspect(const ModelFiles& files, Executor& pool, Backend* backend = nullptr);

}  // namespace subbyte
