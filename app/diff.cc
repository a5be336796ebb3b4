// subbyte diff: whether two directories hold the same model.

#include "transform/transform.h"

#include <fmt/format.h>

#include <cstdio>

#include "app/checkpoint_json.h"
#include "app/command.h"
#include "app/losses.h"
#include "app/output.h"
#include "checkpoints/model_path.h"
#include "transform/report_json.h"

namespace subbyte::app {
namespace {

using Verdict = ComparedWeight::Verdict;

struct Options {
  std::string first;
  std::string second;
  bool json = false;
};

std::string line_of(const ComparedWeight& weight) {
  std::string text = fmt::format("{:<18} {}", name_of(weight.verdict), weight.name);
  const std::string& both = weight.first.empty() ? weight.second : weight.first;
  text += weight.first == weight.second || weight.first.empty() || weight.second.empty()
              ? fmt::format("  {}", both)
              : fmt::format("  {} and {}", weight.first, weight.second);
  if (weight.difference.unequal > 0) {
    text += fmt::format("  {} of {} weights, max {:.3g}, mean {:.3g}, SQNR {:.1f} dB",
                        weight.difference.unequal, weight.difference.weights, weight.difference.max,
                        weight.difference.mean(), weight.difference.signal_to_noise_db());
  }
  return line("{}", text);
}

std::string as_text(const ModelDiff& diff) {
  std::string text;
  for (const ComparedWeight& weight : diff.weights) {
    const bool same =
        weight.verdict == Verdict::kSameBytes || weight.verdict == Verdict::kSameValues;
    if (!same) text += line_of(weight);
  }
  text += summary_of(diff);
  const char* separator = ": ";
  for (const Verdict verdict : ComparedWeight::kVerdicts) {
    if (diff.count(verdict) == 0) continue;
    text += fmt::format("{}{} {}", separator, diff.count(verdict), name_of(verdict));
    separator = ", ";
  }
  return text + worst_as_text(diff.worst()) + "\n";
}

/// What A is and what B is, and the members of `rest`.
json::Value as_json(const Options& options, const json::Value& rest = json::Value::object()) {
  json::Value root =
      with_checkpoint(options.first, {{"second_checkpoint", checkpoint_as_json(options.second)}});
  root.update(rest);
  return root;
}

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  SUBBYTE_TRY(const auto first, find_model(options.first));
  SUBBYTE_TRY(const auto second, find_model(options.second));
  SUBBYTE_TRY(const auto host, create_host(invocation));
  Result<ModelDiff> compared = [&] {
    Progress progress(invocation, "comparing");
    return diff_models(first, second, *host,
                       [&](uint64_t done, uint64_t total) { progress.update_bytes(done, total); });
  }();
  SUBBYTE_TRY(const ModelDiff diff, std::move(compared));
  const std::string text =
      options.json ? json_text(as_json(options, to_json(diff))) : fitted(as_text(diff), stdout, 4);
  print(stdout, text);
  return diff.same_values() ? kOk : kProblemsFound;
}

}  // namespace

void add_diff(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "diff",
      "Say whether two directories hold the same weights; exit code 0 when all values are equal, 3 "
      "when they are not",
      "  subbyte diff ./Qwen3-8B-AWQ ./Qwen3-8B-GPTQ\n"
      "  subbyte diff ./Qwen3-8B ./Qwen3-8B-AWQ --json");
  auto options = std::make_shared<Options>();
  command.option("A", options->first, "directory, GGUF, ak47 or ak48 file, or org/name[@revision]")
      .required();
  command.option("B", options->second, "directory, GGUF, ak47 or ak48 file, or org/name[@revision]")
      .required();
  command.flag("--json", options->json, "print one JSON object");
  command.shares(Shares::kThreads);
  command.run([options, &invocation] { return run(invocation, *options); });
  command.error_members([options] { return as_json(*options); });
}

}  // namespace subbyte::app
