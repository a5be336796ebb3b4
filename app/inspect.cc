// subbyte inspect: what is in a checkpoint.

#include "verify/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/output.h"
#include "checkpoints/model_path.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string path;
  bool json = false;
};

double bits_per_weight(const Inspection& inspection) {
  return inspection.parameters == 0 ? 0
                                    : 8.0 * static_cast<double>(inspection.bytes) /
                                          static_cast<double>(inspection.parameters);
}

std::string as_json(const Inspection& inspection) {
  nlohmann::ordered_json root = {{"architecture", inspection.architecture},
                                 {"quantization", inspection.quantization},
                                 {"parameters", inspection.parameters},
                                 {"bytes", inspection.bytes},
                                 {"bits_per_weight", bits_per_weight(inspection)}};
  root["problems"] = inspection.problems;
  root["files"] = inspection.files;
  for (const InspectedWeight& weight : inspection.weights) {
    root["tensors"].push_back({{"name", weight.name},
                               {"kind", weight.importer},
                               {"format", weight.format},
                               {"shape", weight.shape},
                               {"parameters", weight.parameters},
                               {"bytes", weight.bytes},
                               {"bits_per_weight", weight.bits_per_weight()},
                               {"act_order", weight.act_order}});
  }
  return json_text(root);
}

std::string as_table(const Inspection& inspection) {
  std::string text;
  if (!inspection.architecture.empty()) {
    text += line("architecture  {}", inspection.architecture);
    text += line("quantization  {}", inspection.quantization);
  }
  for (const std::string& problem : inspection.problems) {
    text += line("problem       {}", problem);
  }
  text += line("parameters    {:.3f} M", static_cast<double>(inspection.parameters) / 1e6);
  text += line("size          {:.1f} MB in {} file{}", static_cast<double>(inspection.bytes) / 1e6,
               inspection.files.size(), inspection.files.size() == 1 ? "" : "s");
  text += line("bits/weight   {:.3f}", bits_per_weight(inspection)) + "\n";
  text +=
      line("{:<8} {:>7} {:>10} {:<26} {:<18} {}", "kind", "bits", "MB", "format", "shape", "name");
  for (const InspectedWeight& weight : inspection.weights) {
    text +=
        line("{:<8} {:>7.3f} {:>10.3f} {:<26} {:<18} {}{}", weight.importer,
             weight.bits_per_weight(), static_cast<double>(weight.bytes) / 1e6, weight.format,
             fmt::format("{}", weight.shape), weight.name, weight.act_order ? " (act-order)" : "");
  }
  return text;
}

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  SUBBYTE_TRY(const auto path, find_checkpoint(options.path));
  SUBBYTE_TRY(const auto backend, host_backend(invocation));
  SUBBYTE_TRY(const Inspection inspection, inspect(path, backend->host(), backend.get()));
  const std::string text = options.json ? as_json(inspection) : as_table(inspection);
  print(stdout, text);
  return inspection.problems.empty() ? kOk : kProblemsFound;
}

}  // namespace

void add_inspect(CLI::App& app, Invocation& invocation) {
  Command command = add_command(
      app, "inspect",
      "Show architecture, formats, bits per weight and sizes; exit code 3 when there are problems",
      "  subbyte inspect demo/model\n"
      "  subbyte inspect Qwen/Qwen3-8B-AWQ --json\n"
      "  subbyte inspect model-00001-of-00002.safetensors");
  auto options = std::make_shared<Options>();
  command
      .option("PATH", options->path,
              "model directory, .safetensors, ak42, ak47 or ak48 file, or org/name[@revision]")
      .required();
  command.flag("--json", options->json, "print one JSON object");
  command.callback([options, &invocation] {
    invocation.run = [options, &invocation] { return run(invocation, *options); };
  });
}

}  // namespace subbyte::app
