// subbyte quantize: a model directory with weights of 4 bits.

#include "transform/quantize_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/destination.h"
#include "app/losses.h"
#include "app/near_words.h"
#include "app/output.h"
#include "checkpoints/model_path.h"
#include "transform/convert_model.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string source;
  std::string destination;
  QuantizeOptions quantize;
  bool json = false;
};

/// "AWQ" is "awq".
std::string spelled(std::string format) {
  std::ranges::transform(format, format.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return format;
}

/// How else a format that weights are not rounded to may come about.
std::string other_ways(const std::string& format) {
  const std::vector<std::string> known = conversion_formats();
  std::string name = format;
  std::ranges::replace(name, '_', '-');
  if (std::ranges::find(known, format) == known.end() &&
      std::ranges::find(known, name) == known.end()) {
    return did_you_mean(format, std::vector<std::string>{"awq"});
  }
  return "; `subbyte convert` makes gptq, gptq-v2, compressed-tensors and ak48 of that";
}

std::string as_json(const Options& options, const QuantizeReport& report, double seconds) {
  nlohmann::ordered_json root = {
      {"destination", options.destination},  {"format", options.quantize.format},
      {"modules", report.quantized_tensors}, {"kept_tensors", report.kept_tensors},
      {"source_bytes", report.source_bytes}, {"result_bytes", report.result_bytes}};
  root["signal_to_noise_db"] = finite_as_json(report.signal_to_noise_db);
  root["worst"] = worst_as_json(report.worst);
  root["seconds"] = seconds;
  return json_text(root, -1);
}

Result<ExitCode> run(const Invocation& invocation, Options options) {
  options.quantize.format = spelled(options.quantize.format);
  SUBBYTE_TRY(const auto source, find_model(options.source));
  SUBBYTE_TRY(const auto host, create_host(invocation));
  SUBBYTE_TRY(Destination destination, Destination::prepare(options.destination));
  const auto start = std::chrono::steady_clock::now();
  Result<QuantizeReport> quantized = [&] {
    Progress progress(invocation, "quantizing");
    return quantize_model(
        source, options.destination, options.quantize, *host,
        [&](uint64_t done, uint64_t total) { progress.update_bytes(done, total); });
  }();
  if (!quantized.ok() && quantized.error().code == "quantize.format") {
    return Error{"quantize.format",
                 quantized.error().message + other_ways(options.quantize.format)};
  }
  if (!quantized.ok() && quantized.error().code == "quantize.loss") {
    return Error{quantized.error().code,
                 quantized.error().message + " (--allow-lossy quantizes anyway)"};
  }
  SUBBYTE_TRY(const QuantizeReport report, std::move(quantized));
  destination.keep();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.json) print(stdout, as_json(options, report, seconds));
  note(
      line("{}: {} matrices in 4 bits, {} tensors kept, {:.1f} MB from {:.1f} MB, signal to noise "
           "{:.1f} dB{}, {:.1f} s",
           options.destination, report.quantized_tensors, report.kept_tensors,
           static_cast<double>(report.result_bytes) / 1e6,
           static_cast<double>(report.source_bytes) / 1e6, report.signal_to_noise_db,
           worst_as_text(report.worst), seconds));
  return kOk;
}

}  // namespace

void add_quantize(Program& program, Invocation& invocation) {
  Command command =
      program.add_command("quantize", "Quantize a model to 4 bits, rounding to nearest",
                          "  subbyte quantize ./Qwen3-8B ./Qwen3-8B-AWQ --format awq\n"
                          "  subbyte quantize Qwen/Qwen3-0.6B ./small --group-size 64 --json");
  auto options = std::make_shared<Options>();
  options->quantize.notice = print_notice;
  command.option("SRC", options->source, "directory or org/name[@revision], 16 or 32 bits")
      .required();
  command
      .option("DST", options->destination,
              "directory to make, with those above it; empty if it exists")
      .required();
  command.option("--format", options->quantize.format, "awq")
      .value("FORMAT")
      .such_as({"awq"})
      .shows_default();
  command
      .option("--group-size", options->quantize.group_size,
              "inputs that share a scale and a zero point")
      .shows_default();
  command.flag("--allow-lossy", options->quantize.allow_lossy,
               "also where little is left of a matrix; without it less than 10 dB of signal to "
               "noise are an error");
  command.flag("--json", options->json, "print one JSON object");
  command.shares(Shares::kThreads);
  command.run([options, &invocation] { return run(invocation, *options); });
}

}  // namespace subbyte::app
