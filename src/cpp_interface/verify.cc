// Looking at checkpoints, on threads of the caller's or own ones.

#include "verify/verify.h"

#include <utility>

#include "checkpoints/model_path.h"
#include "cpp_interface/threads.h"
#include "transform/diff_models.h"
#include "verify/inspect.h"

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

Result<ModelDiff> diff_models(const std::filesystem::path& first,
                              const std::filesystem::path& second,
                              std::shared_ptr<Executor> threads) {
  SUBBYTE_TRY(const auto a, find_model(first.string()));
  SUBBYTE_TRY(const auto b, find_model(second.string()));
  return subbyte::diff_models(a, b, *wrapped::threads_or_own(std::move(threads)));
}

SUBBYTE_END_NAMESPACE
