// The part of transform.h that only looks.

#include "verify/verify.h"

#include <utility>

#include "checkpoints/model_path.h"
#include "cpp_interface/threads.h"
#include "devices/devices.h"
#include "subbyte/transform.h"
#include "transform/diff_models.h"
#include "verify/inspect.h"

namespace subbyte::wrapped {
namespace {

static_assert(static_cast<int>(Severity::kError) == static_cast<int>(subbyte::Severity::kError));
static_assert(static_cast<int>(Severity::kNote) == static_cast<int>(subbyte::Severity::kNote));
using OwnVerdict = subbyte::ComparedWeight::Verdict;
using Verdict = ComparedWeight::Verdict;
static_assert(static_cast<int>(Verdict::kSameValues) == static_cast<int>(OwnVerdict::kSameValues));
static_assert(static_cast<int>(Verdict::kDifferent) == static_cast<int>(OwnVerdict::kDifferent));
static_assert(static_cast<int>(Verdict::kShape) == static_cast<int>(OwnVerdict::kShape));
static_assert(static_cast<int>(Verdict::kOnlyFirst) == static_cast<int>(OwnVerdict::kOnlyFirst));
static_assert(static_cast<int>(Verdict::kOnlySecond) == static_cast<int>(OwnVerdict::kOnlySecond));

/// A machine that computes in the memory of the host, to see whether a model would run there.
Result<std::unique_ptr<Backend>> make_host_backend(Executor& threads) {
  return make_backend({.device = "cpu", .executor = &threads});
}

Result<subbyte::VerifyReport> verify_all(const std::filesystem::path& model,
                                         const VerifyOptions& options) {
  const auto threads = threads_or_own(options.threads);
  SUBBYTE_TRY(const auto path, find_checkpoint(model.string()));
  SUBBYTE_TRY(const auto backend, make_host_backend(*threads));
  return subbyte::verify(
      path,
      {.checksums = options.checksums, .progress = options.progress, .backend = backend.get()},
      *threads);
}

Result<subbyte::Inspection> inspect_all(const std::filesystem::path& model, Executor& threads) {
  SUBBYTE_TRY(const auto path, find_checkpoint(model.string()));
  SUBBYTE_TRY(const auto backend, make_host_backend(threads));
  return subbyte::inspect(path, threads, backend.get());
}

Result<subbyte::ModelDiff> diff(const std::filesystem::path& first,
                                const std::filesystem::path& second, Executor& threads) {
  SUBBYTE_TRY(const auto a, find_model(first.string()));
  SUBBYTE_TRY(const auto b, find_model(second.string()));
  return subbyte::diff_models(a, b, threads);
}

}  // namespace

std::string to_string(const Finding& finding) {
  subbyte::Finding own;
  own.expected = finding.expected;
  own.found = finding.found;
  return subbyte::to_string(own);
}

int64_t VerifyReport::count(Severity severity) const {
  int64_t found = 0;
  for (const Finding& finding : findings) found += finding.severity == severity ? 1 : 0;
  return found;
}

Result<VerifyReport> verify(const std::filesystem::path& model, const VerifyOptions& options) {
  auto verified = verify_all(model, options);
  if (!verified.ok()) return std::move(verified).error();
  VerifyReport report;
  report.architecture = verified->architecture;
  report.quantization = verified->quantization;
  report.num_tensors = verified->num_tensors;
  report.bytes = verified->bytes;
  for (const subbyte::Finding& finding : verified->findings) {
    report.findings.push_back({std::string(finding.code), static_cast<Severity>(finding.severity),
                               finding.where, finding.expected, finding.found});
  }
  for (const TensorChecksum& checksum : verified->checksums) {
    report.checksums[checksum.tensor] = checksum.sha256;
  }
  return report;
}

Result<Inspection> inspect(const std::filesystem::path& model, std::shared_ptr<Executor> given) {
  const auto threads = threads_or_own(std::move(given));
  auto found = inspect_all(model, *threads);
  if (!found.ok()) return std::move(found).error();
  Inspection inspection;
  inspection.architecture = found->architecture;
  inspection.quantization = found->quantization;
  inspection.problems = found->problems;
  inspection.notes = found->notes;
  inspection.parameters = found->parameters;
  inspection.bytes = found->bytes;
  for (const InspectedWeight& weight : found->weights) {
    inspection.weights.push_back({weight.name, weight.importer, weight.format, weight.shape,
                                  weight.parameters, weight.bytes, weight.act_order});
  }
  return inspection;
}

bool ModelDiff::same_values() const {
  for (const ComparedWeight& weight : weights) {
    if (weight.verdict > ComparedWeight::Verdict::kSameValues) return false;
  }
  return true;
}

Result<ModelDiff> diff_models(const std::filesystem::path& first,
                              const std::filesystem::path& second,
                              std::shared_ptr<Executor> given) {
  const auto threads = threads_or_own(std::move(given));
  const auto found = diff(first, second, *threads);
  if (!found.ok()) return found.error();
  ModelDiff result;
  for (const subbyte::ComparedWeight& weight : found->weights) {
    result.weights.push_back({weight.name, static_cast<ComparedWeight::Verdict>(weight.verdict),
                              weight.first, weight.second, weight.difference.max,
                              weight.difference.signal_to_noise_db()});
  }
  return result;
}

}  // namespace subbyte::wrapped
