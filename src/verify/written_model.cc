#include "verify/written_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "checkpoints/model_path.h"

namespace subbyte {
namespace {

/// What keeps a model from running: errors, and a family that is not known.
Result<std::vector<Finding>> obstacles_of(const std::filesystem::path& model, Executor& pool,
                                          const Progress& progress) {
  VerifyOptions options;
  options.progress = progress;
  SUBBYTE_TRY(VerifyReport report, verify(model, options, pool));
  std::erase_if(report.findings, [](const Finding& finding) {
    return finding.severity != Severity::kError && finding.code != "config.model_type";
  });
  return std::move(report.findings);
}

}  // namespace

Status check_written(const std::filesystem::path& source, const std::filesystem::path& result,
                     std::string_view code, Executor& pool, const Progress& progress,
                     const Notice& notice) {
  SUBBYTE_TRY(const auto written, find_checkpoint(result.string()));
  SUBBYTE_TRY(const auto obstacles, obstacles_of(written, pool, progress));
  if (obstacles.empty()) return {};
  SUBBYTE_TRY(const auto before, obstacles_of(source, pool, nullptr));
  const auto text = [](const Finding& one) {
    return fmt::format("{}: {} ({})", quote(one.where), to_string(one), one.code);
  };
  for (const Finding& one : obstacles) {
    if (std::ranges::find(before, one.code, &Finding::code) != before.end()) continue;
    return Error{code,
                 fmt::format("what was written does not load: {}; nothing is kept", text(one))};
  }
  if (notice) {
    notice(fmt::format("what was written does not run, as the source does not: {}{}",
                       text(obstacles.front()),
                       obstacles.size() == 1 ? "" : "; `subbyte verify` has all"));
  }
  return {};
}

}  // namespace subbyte
