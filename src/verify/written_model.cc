#include "verify/written_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "checkpoints/model_path.h"

namespace subbyte {
namespace {

Result<std::vector<Finding>> errors_of(const std::filesystem::path& model, Executor& pool,
                                       const LoadProgress& progress) {
  VerifyOptions options;
  options.progress = progress;
  SUBBYTE_TRY(VerifyReport report, verify(model, options, pool));
  std::erase_if(report.findings,
                [](const Finding& finding) { return finding.severity != Severity::kError; });
  return std::move(report.findings);
}

}  // namespace

Status check_written(const std::filesystem::path& source, const std::filesystem::path& result,
                     std::string_view code, Executor& pool, const LoadProgress& progress) {
  SUBBYTE_TRY(const auto written, find_checkpoint(result.string()));
  SUBBYTE_TRY(const auto errors, errors_of(written, pool, progress));
  if (errors.empty()) return {};
  SUBBYTE_TRY(const auto before, errors_of(source, pool, nullptr));
  for (const Finding& error : errors) {
    if (std::ranges::find(before, error.code, &Finding::code) != before.end()) continue;
    return Error{code, fmt::format("what was written does not load: {}: {} ({}); nothing is kept",
                                   quote(error.where), to_string(error), error.code)};
  }
  return {};
}

}  // namespace subbyte
