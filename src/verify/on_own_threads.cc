// Looking at checkpoints on threads of the caller's or own ones.

#include <utility>

#include "backends/backends.h"
#include "checkpoints/model_path.h"
#include "verify/inspect.h"
#include "verify/verify.h"

SUBBYTE_BEGIN_NAMESPACE

Result<VerifyReport> verify(const std::filesystem::path& model, const VerifyOptions& options) {
  SUBBYTE_TRY(const auto path, find_checkpoint(model.string()));
  SUBBYTE_TRY(const auto backend, make_backend({.device = "cpu", .threads = options.threads}));
  return subbyte::verify(path, options, backend->host(), backend.get());
}

Result<Inspection> inspect(const std::filesystem::path& model, std::shared_ptr<Executor> threads) {
  SUBBYTE_TRY(const auto path, find_checkpoint(model.string()));
  SUBBYTE_TRY(const auto backend, make_backend({.device = "cpu", .threads = std::move(threads)}));
  return subbyte::inspect(path, backend->host(), backend.get());
}

SUBBYTE_END_NAMESPACE
