// subbyte inspect: what is in a checkpoint.

#include "verify/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/output.h"
#include "checkpoints/model_path.h"
#include "ops/kv_pool.h"
#include "verify/tensor_kinds.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string path;
  bool json = false;
  bool tensors = false;
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
  root["scales_read"] = inspection.reads_scales;
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

double megabytes(double bytes) {
  return bytes / 1e6;
}

/// Heads, experts and what a run takes, of an architecture that this version runs.
std::string model_lines(const Inspection& inspection, const ModelConfig& model) {
  std::string text =
      line("layers        {} of width {}, {} heads of {}, {} of keys and values", model.num_layers,
           model.hidden_size, model.num_heads, model.head_dim, model.num_kv_heads);
  if (model.num_experts > 0) {
    text += line("experts       {} a layer, {} of them for a token", model.num_experts,
                 model.experts_per_token);
  }
  text += line("vocabulary    {} tokens", model.vocab_size);
  text += line("context       {} positions", model.max_positions);
  const KvShape cache = {model.num_layers, model.num_kv_heads, model.head_dim, KvType::kF16};
  const auto position = static_cast<double>(cache.bytes_per_position());
  const double all = position * static_cast<double>(model.max_positions);
  const auto weights = static_cast<double>(inspection.bytes);
  return text + line(
                    "memory        about {:.1f} MB of weights and {:.1f} kB a position of the "
                    "key-value cache (f16): {:.1f} MB with a full context",
                    megabytes(weights), position / 1e3, megabytes(weights + all));
}

/// Without a config that is understood nobody says what is packed into integers.
bool knows_weights(const Inspection& inspection) {
  const bool is_understood =
      !inspection.architecture.empty() && inspection.quantization != "unsupported";
  return is_understood ||
         std::ranges::all_of(inspection.weights, [](const InspectedWeight& weight) {
           return weight.format.starts_with('f') || weight.format.starts_with("bf");
         });
}

std::string summary(const Inspection& inspection) {
  std::string text;
  if (!inspection.architecture.empty()) {
    text += line("architecture  {}", inspection.architecture);
    text += line("quantization  {}", inspection.quantization);
  }
  const auto bytes = static_cast<double>(inspection.bytes);
  const std::size_t files = inspection.files.size();
  const std::string size =
      fmt::format("{:.1f} MB in {} file{}", megabytes(bytes), files, files == 1 ? "" : "s");
  if (knows_weights(inspection)) {
    text += line("parameters    {:.3f} M", static_cast<double>(inspection.parameters) / 1e6);
    text += line("size          {}, {:.3f} bits a weight", size, bits_per_weight(inspection));
  } else {
    text += line("size          {}; there are integers, and no config says what is packed in them",
                 size);
  }
  if (inspection.model) text += model_lines(inspection, *inspection.model);
  return text;
}

std::string shape_text(const InspectedWeight& weight) {
  return fmt::format("{}", weight.shape) + (weight.act_order ? " act-order" : "");
}

std::string as_page(const Inspection& inspection, bool all_tensors) {
  std::vector<TensorKind> kinds;
  if (all_tensors) {
    for (const InspectedWeight& weight : inspection.weights) kinds.push_back({weight});
    std::ranges::sort(kinds, comes_before, [](const TensorKind& kind) { return kind.weight.name; });
  } else {
    kinds = find_tensor_kinds(inspection.weights);
  }
  std::string text = summary(inspection) + "\n";
  std::size_t format_width = 6;
  std::size_t shape_width = 5;
  for (const TensorKind& kind : kinds) {
    format_width = std::max(format_width, kind.weight.format.size());
    shape_width = std::max(shape_width, shape_text(kind.weight).size());
  }
  const auto row = [&](auto number, auto kind, auto bits, auto size, auto format, auto shape,
                       auto name) {
    text += line("{:>6} {:<8} {:>7} {:>10}  {:<{}}  {:<{}}  {}", number, kind, bits, size, format,
                 format_width, shape, shape_width, name);
  };
  row("number", "kind", "bits", "MB", "format", "shape", "name");
  for (const TensorKind& kind : kinds) {
    const InspectedWeight& weight = kind.weight;
    row(kind.count, weight.importer, fmt::format("{:.3f}", weight.bits_per_weight()),
        fmt::format("{:.3f}", megabytes(static_cast<double>(weight.bytes))), weight.format,
        shape_text(weight), weight.name);
  }
  if (!inspection.reads_scales) {
    text += line("scales of {:.1f} MB were not looked at: `subbyte verify` does",
                 megabytes(static_cast<double>(inspection.scale_bytes)));
  }
  if (inspection.problems.empty()) return text;
  text += "\n";
  for (const std::string& problem : inspection.problems) text += line("problem: {}", problem);
  return text;
}

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  SUBBYTE_TRY(const auto path, find_checkpoint(options.path));
  SUBBYTE_TRY(const auto backend, host_backend(invocation));
  SUBBYTE_TRY(const Inspection inspection, inspect(path, backend->host(), backend.get()));
  const std::string text =
      options.json ? as_json(inspection) : as_page(inspection, options.tensors);
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
      .option("MODEL", options->path,
              "directory, .safetensors, ak42, ak47 or ak48 file, or org/name[@revision]")
      .required();
  command.flag("--tensors", options->tensors, "a line for each tensor, not for each kind");
  command.flag("--json", options->json, "print one JSON object");
  command.callback([options, &invocation] {
    invocation.run = [options, &invocation] { return run(invocation, *options); };
  });
}

}  // namespace subbyte::app
