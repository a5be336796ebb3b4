#pragma once
// Looking at a checkpoint for what is wrong with it (subbyte/verify.h): every tensor is read, and a
// problem with one does not keep the others from being looked at.

#include <filesystem>

#include "base/status.h"
#include "ops/backend.h"
#include "subbyte/executor.h"
#include "subbyte/verify.h"

namespace subbyte {

/// For a path that find_checkpoint() has found, on `pool`. The report is the same for any number of
/// threads; at most one module is in memory at a time. With a `backend`, which computes in the
/// memory of the host, what keeps the model of a directory or a model file from running there is a
/// finding. Codes: file.*, index.no_checkpoint, index.pickle_only; file.changed when it is written
/// to meanwhile.
Result<VerifyReport> verify(const std::filesystem::path& path, const VerifyOptions& options,
                            Executor& pool, Backend* backend = nullptr);

}  // namespace subbyte
