// Making checkpoints of others, and comparing them, on threads of a caller or own ones; what was
// made is read before it has its name.

#include <utility>

#include "base/thread_pool.h"
#include "checkpoints/model_path.h"
#include "transform/transform.h"
#include "verify/written_model.h"

SUBBYTE_BEGIN_NAMESPACE

namespace {

/// Reads what was made unless the options say how.
template <typename Options>
Options checked(Options options, const std::filesystem::path& source, const char* code) {
  options.threads = threads_or_own(std::move(options.threads));
  if (options.check) return options;
  options.check = [source, code, threads = options.threads,
                   notice = options.notice](const std::filesystem::path& result) {
    return check_written(source, result, code, *threads, nullptr, notice);
  };
  return options;
}

}  // namespace

Result<QuantizeReport> quantize_model(const std::filesystem::path& source,
                                      const std::filesystem::path& destination,
                                      const QuantizeOptions& options) {
  SUBBYTE_TRY(const auto found, find_model(source.string()));
  const QuantizeOptions all = checked(options, found, "quantize.result");
  return subbyte::quantize_model(found, destination, all, *all.threads, all.progress);
}

Result<ConvertReport> convert_model(const std::filesystem::path& source,
                                    const std::filesystem::path& destination,
                                    const ConvertOptions& options) {
  SUBBYTE_TRY(const auto found, find_model(source.string()));
  const ConvertOptions all = checked(options, found, "convert.result");
  return subbyte::convert_model(found, destination, all, *all.threads, all.progress);
}

Result<ModelDiff> diff_models(const std::filesystem::path& first,
                              const std::filesystem::path& second,
                              std::shared_ptr<Executor> threads) {
  SUBBYTE_TRY(const auto a, find_model(first.string()));
  SUBBYTE_TRY(const auto b, find_model(second.string()));
  return subbyte::diff_models(a, b, *threads_or_own(std::move(threads)));
}

SUBBYTE_END_NAMESPACE
