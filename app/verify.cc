// subbyte verify: what is wrong with a checkpoint, weights included.

#include "verify/verify.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>

#include "app/checkpoint_json.h"
#include "app/command.h"
#include "app/output.h"
#include "checkpoints/model_path.h"
#include "verify/report_json.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string path;
  bool json = false;
  bool checksums = false;
  bool notes = false;
  bool strict = false;
};

std::string as_line(const Finding& finding) {
  const Style style = finding.severity == Severity::kError     ? Style::kError
                      : finding.severity == Severity::kWarning ? Style::kWarning
                                                               : Style::kDim;
  return styled(style, fmt::format("{:<8}", name(finding.severity)), stdout) +
         line(" {:<24} {}: {}", finding.code, finding.where, to_string(finding));
}

/// Notes of one code in one line, as sound models have one for each module.
std::string notes_as_lines(const VerifyReport& report) {
  std::map<std::string_view, std::pair<std::size_t, const Finding*>> kinds;
  for (const Finding& finding : report.findings) {
    if (finding.severity != Severity::kNote) continue;
    const auto kind = kinds.try_emplace(finding.code, 0, &finding).first;
    ++kind->second.first;
  }
  std::string text;
  for (const auto& [code, kind] : kinds) {
    const auto& [count, first] = kind;
    text += as_line(*first);
    if (count == 1) continue;
    text.pop_back();
    text += line(" (and {} more, see --notes)", count - 1);
  }
  return text;
}

std::string as_text(const VerifyReport& report, const Options& options) {
  std::string text;
  for (const auto& [tensor, sha256] : report.checksums) {
    text += line("{}  {}", sha256, tensor);
  }
  for (const Finding& finding : report.findings) {
    if (finding.severity != Severity::kNote || options.notes) text += as_line(finding);
  }
  if (!options.notes) text += notes_as_lines(report);
  const auto counted = [&](Severity severity) {
    const int64_t count = report.count(severity);
    return fmt::format("{} {}{}", count, name(severity), count == 1 ? "" : "s");
  };
  const bool runs = report.count(Severity::kError) > 0 || report.is_run_here();
  return text + line("{}: {} tensors, {:.1f} MB: {}, {}, {}{}", options.path, report.num_tensors,
                     static_cast<double>(report.bytes) / 1e6, counted(Severity::kError),
                     counted(Severity::kWarning), counted(Severity::kNote),
                     runs ? "" : "; `subbyte run` refuses it");
}

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  SUBBYTE_TRY(const auto path, find_checkpoint(options.path));
  SUBBYTE_TRY(const auto backend, host_backend(invocation));
  Result<VerifyReport> verified = [&] {
    Progress progress(invocation, "verifying");
    VerifyOptions verify_options;
    verify_options.checksums = options.checksums || options.json;
    verify_options.progress = [&](uint64_t done, uint64_t total) {
      progress.update_bytes(done, total);
    };
    return verify(path, verify_options, backend->host(), backend.get());
  }();
  SUBBYTE_TRY(const VerifyReport report, std::move(verified));
  const std::string text = options.json ? json_text(with_checkpoint(options.path, to_json(report)))
                                        : fitted(as_text(report, options), stdout, 9);
  print(stdout, text);
  const bool bad = !report.is_sound() || (options.strict && report.count(Severity::kWarning) > 0);
  return bad ? kProblemsFound : kOk;
}

}  // namespace

void add_verify(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "verify",
      "Read a whole checkpoint and list what is wrong; exit code 3 when there are errors, "
      "or what is not known here",
      "  subbyte verify demo/model\n"
      "  subbyte verify Qwen/Qwen3-8B-AWQ --strict\n"
      "  subbyte verify ./Qwen3-8B-GPTQ --json\n"
      "  subbyte verify model-00001-of-00002.safetensors --checksums");
  auto options = std::make_shared<Options>();
  command.model(options->path,
                "directory, GGUF, .safetensors or ak48 file, or org/name[@revision]");
  command.flag("--json", options->json, "print one JSON object, with the SHA-256 of tensors");
  command.flag("--checksums", options->checksums, "print the SHA-256 of every tensor");
  command.flag("--notes", options->notes, "print all notes, not the first of each kind");
  command.flag("--strict", options->strict, "exit with 3 for warnings, too");
  command.shares(Shares::kThreads);
  command.run([options, &invocation] { return run(invocation, *options); });
  command.error_members([options] { return with_checkpoint(options->path); });
}

}  // namespace subbyte::app
