// subbyte quantize: a model directory with weights of 4 bits.

#include "transform/quantize_model.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "app/command.h"
#include "app/output.h"
#include "checkpoints/model_path.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string source;
  std::string destination;
  QuantizeOptions quantize;
  bool json = false;
};

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  SUBBYTE_TRY(const auto source, find_model(options.source));
  SUBBYTE_TRY(const auto host, create_host(invocation));
  const auto start = std::chrono::steady_clock::now();
  Result<QuantizeReport> quantized = [&] {
    Progress progress(invocation, "quantizing");
    return quantize_model(
        source, options.destination, options.quantize, *host,
        [&](uint64_t done, uint64_t total) { progress.update_bytes(done, total); });
  }();
  SUBBYTE_TRY(const QuantizeReport report, std::move(quantized));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.json) {
    const std::string noise = std::isfinite(report.signal_to_noise_db)
                                  ? fmt::format("{:.3f}", report.signal_to_noise_db)
                                  : "null";
    print(stdout, line("{{\"quantized_tensors\": {}, \"kept_tensors\": {}, \"source_bytes\": {}, "
                       "\"result_bytes\": {}, \"signal_to_noise_db\": {}, \"seconds\": {:.3f}}}",
                       report.quantized_tensors, report.kept_tensors, report.source_bytes,
                       report.result_bytes, noise, seconds));
  }
  print(
      stderr,
      line("{}: {} matrices in 4 bits, {} tensors kept, {:.1f} MB from {:.1f} MB, signal to noise "
           "{:.1f} dB, {:.1f} s",
           quote(options.destination), report.quantized_tensors, report.kept_tensors,
           static_cast<double>(report.result_bytes) / 1e6,
           static_cast<double>(report.source_bytes) / 1e6, report.signal_to_noise_db, seconds));
  return kOk;
}

}  // namespace

void add_quantize(CLI::App& app, Invocation& invocation) {
  Command command =
      add_command(app, "quantize", "Quantize a model to 4 bits, rounding to nearest",
                  "  subbyte quantize ./Qwen3-8B ./Qwen3-8B-AWQ --format awq\n"
                  "  subbyte quantize Qwen/Qwen3-0.6B ./small --group-size 64 --json");
  auto options = std::make_shared<Options>();
  options->quantize.notice = print_notice;
  command.option("SRC", options->source, "directory or org/name[@revision], 16 or 32 bits")
      .required();
  command.option("DST", options->destination, "directory to make; it must not exist").required();
  command.option("--format", options->quantize.format, "awq").shows_default();
  command
      .option("--group-size", options->quantize.group_size,
              "inputs that share a scale and a zero point")
      .shows_default();
  command.flag("--json", options->json, "print one JSON object");
  command.callback([options, &invocation] {
    invocation.run = [options, &invocation] { return run(invocation, *options); };
  });
}

}  // namespace subbyte::app
