#include "verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/model_file.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/containers/gguf_file.h"
#include "checkpoints/containers/safetensors_codes.h"
#include "models/gguf_model.h"
#include "verify/checksums.h"
#include "verify/context.h"
#include "verify/refusals.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

using Check = Status (*)(VerifyContext& context);

constexpr std::array<Check, 3> kModelChecks = {&check_config, &check_weights, &check_tokenizer};
constexpr std::array<Check, 1> kFileChecks = {&check_weights};

/// There is nothing at `path` that could be checked; else what is there is broken, a finding.
bool is_unopened(const Error& error) {
  return error.code.starts_with("file.") || error.code == index_codes::kNoCheckpoint ||
         error.code == index_codes::kPickleOnly;
}

/// What can be opened. Problems of the container go to `problems`.
Result<TensorSource> tensors_of(Result<TensorSource> source, std::vector<Error>& problems) {
  if (source.ok() || is_unopened(source.error())) return source;
  problems.push_back(std::move(source).error());
  return TensorSource::empty();
}

/// A directory, or a model file whose header is sound: it stands for config.json.
Result<bool> has_config(const fs::path& path, const TensorSource& tensors) {
  SUBBYTE_TRY(const bool is_directory, is_folder(path));
  return is_directory || (is_model_file(path) && !tensors.files().empty());
}

/// Whether nothing but the order of tensors among the shards is wrong.
bool all_files_open(std::span<const Error> problems) {
  return std::ranges::all_of(problems, [](const Error& problem) {
    return problem.code == index_codes::kTensorTwice ||
           problem.code == index_codes::kTensorUnlisted ||
           problem.code == index_codes::kTensorMissing;
  });
}

/// Messages about a container begin with the path of the file.
std::string file_of(const Error& problem) {
  return fs::path(problem.message.substr(0, problem.message.find(": "))).filename().native();
}

/// What the index says of the bytes of all tensors. Writers disagree on tensors that share memory,
/// so it is no more than a note.
void check_total_size(VerifyContext& context) {
  const auto stated = context.tensors.stated_bytes();
  const uint64_t found = context.tensors.total_bytes();
  if (!stated || *stated == found) return;
  context.findings.add("verify.total_size", "model.safetensors.index.json",
                       fmt::format("metadata.total_size of {} bytes, as all tensors have", found),
                       std::to_string(*stated));
}

/// What the checks do not know of: they read the files in a way of their own, so that one problem
/// does not hide the others. After an error it is known that the model does not run; the tokenizer
/// was opened by check_tokenizer().
void check_refusals(VerifyContext& context, Backend& backend) {
  if (context.findings.has_errors()) return;
  for (const Refusal& refusal : find_refusals(context.files, backend, Reads::kHeaders, true)) {
    if (!context.findings.has(refusal.error.code)) {
      context.findings.add(refusal.error, refusal.where);
    }
  }
}

VerifyReport make_report(VerifyContext& context) {
  VerifyReport report;
  report.architecture = context.architecture;
  report.quantization = context.quantization ? context.quantization->method_name() : "unknown";
  if (report.quantization == "none" && is_gguf(context.files.path())) report.quantization = "gguf";
  report.num_tensors = context.tensors.tensors().size();
  report.bytes = context.tensors.total_bytes();
  report.findings = context.findings.take();
  return report;
}

}  // namespace

int64_t VerifyReport::count(Severity severity) const {
  return std::ranges::count(findings, severity, &Finding::severity);
}

bool VerifyReport::is_run_here() const {
  const bool has_tokenizer = std::ranges::none_of(
      findings, [](const Finding& finding) { return finding.code == "verify.no_tokenizer"; });
  return has_tokenizer && is_known();
}

bool VerifyReport::is_sound() const {
  return count(Severity::kError) == 0 && is_known();
}

bool VerifyReport::is_known() const {
  return std::ranges::none_of(findings, [](const Finding& finding) {
    return finding.code == "config.model_type" || finding.code == "tokenizer.unsupported";
  });
}

Result<VerifyReport> verify(const fs::path& path, const VerifyOptions& options, Executor& pool,
                            Backend* backend) {
  std::vector<Error> problems;
  const ModelFiles files(path);
  SUBBYTE_TRY(TensorSource tensors, tensors_of(open_tensors(files, &problems), problems));
  SUBBYTE_TRY(const bool is_model, has_config(path, tensors));
  VerifyContext context{files, pool, tensors};
  context.complete = all_files_open(problems);
  context.progress = options.progress;
  context.total_bytes = tensors.total_bytes() * (options.checksums ? 2 : 1);
  for (const Error& problem : problems) context.findings.add(problem, file_of(problem));
  const std::span<const Check> checks =
      is_model ? std::span<const Check>(kModelChecks) : std::span<const Check>(kFileChecks);
  if (problems.empty()) check_total_size(context);
  for (const Check check : checks) SUBBYTE_CHECK(check(context));
  if (is_model && backend != nullptr) check_refusals(context, *backend);
  VerifyReport report = make_report(context);
  if (!options.checksums) return report;
  SUBBYTE_TRY(report.checksums, compute_checksums(context));
  return report;
}

}  // namespace subbyte
