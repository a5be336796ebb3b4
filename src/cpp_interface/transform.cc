// Making checkpoints of others, on threads of the caller's or own ones; what was made is opened.

#include <utility>

#include "checkpoints/model_path.h"
#include "cpp_interface/threads.h"
#include "transform/convert_model.h"
#include "transform/quantize_model.h"
#include "verify/written_model.h"

SUBBYTE_BEGIN_NAMESPACE

namespace {

/// Opens what was made unless the options say how.
template <typename Options>
Options checked(Options options, const std::filesystem::path& source, const char* code) {
  options.threads = wrapped::threads_or_own(std::move(options.threads));
  if (options.check) return options;
  options.check = [source, code, threads = options.threads](const std::filesystem::path& result) {
    return check_written(source, result, code, *threads);
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

SUBBYTE_END_NAMESPACE
