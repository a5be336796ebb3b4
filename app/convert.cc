// subbyte convert: the same weights in another format.

#include "transform/transform.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "app/checkpoint_json.h"
#include "app/command.h"
#include "app/losses.h"
#include "app/output.h"
#include "app/written_directory.h"
#include "base/quote.h"
#include "checkpoints/model_path.h"
#include "transform/report_json.h"
#include "verify/written_model.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string source;
  std::string destination;
  ConvertOptions convert;
  bool json = false;
};

std::string as_json(const Options& options, const ConvertReport& report, double seconds,
                    json::Value notices) {
  json::Value root = with_checkpoint(options.source, {{"destination", options.destination}});
  root.update(to_json(report));
  root["seconds"] = seconds;
  root["notices"] = std::move(notices);
  return json_text(root);
}

std::string loss_of(const ConvertReport& report) {
  std::string text = "every weight the same";
  if (report.rounded_matrices > 0) {
    text = fmt::format(
        "{} modules or tensors rounded (max difference {:.3g}, mean {:.3g}, SQNR {:.1f} dB{})",
        report.rounded_matrices, report.loss.max, report.loss.mean(),
        report.loss.signal_to_noise_db(), worst_as_text(report.worst));
  }
  if (report.dropped_activation_scales > 0) {
    text += fmt::format(", {} scales of activations left out", report.dropped_activation_scales);
  }
  return text;
}

/// Whether the option would have helped, or led to the next obstacle.
bool may_be_rounded(const Error& error) {
  for (const char* code : {"convert.inexact", "convert.activation_scale", "convert.kv_cache",
                           "recast.scale", "recast.factor"}) {
    if (error.code == code) return true;
  }
  return false;
}

/// GGUF is one file, and "a/" is none.
Status check_destination(const Options& options) {
  const bool names_file =
      options.destination != "-" && std::filesystem::path(options.destination).has_filename();
  if (options.convert.format != "gguf" || names_file) return {};
  return Error{"usage.value", fmt::format("DST: expected the name of a file, found {}",
                                          quote(options.destination))};
}

Result<ExitCode> run(const Invocation& invocation, Options options) {
  SUBBYTE_CHECK(check_destination(options));
  SUBBYTE_TRY(const auto source, find_model(options.source));
  SUBBYTE_TRY(const auto host, create_host(invocation));
  json::Value notices = json::Value::array();
  options.convert.notice = kept_notice(notices);
  options.convert.check = [&](const std::filesystem::path& result) {
    return check_with_bar(invocation, source, result, "convert.result", *host,
                          options.convert.notice);
  };
  auto converted = write_directory<ConvertReport>(
      invocation, options.destination, "converting", [&](const ByteProgress& update) {
        return convert_model(source, options.destination, options.convert, *host, update);
      });
  if (!converted.ok() && !options.convert.allow_lossy && may_be_rounded(converted.error())) {
    return Error{converted.error().code,
                 converted.error().message + " (--allow-lossy converts anyway)"};
  }
  SUBBYTE_TRY(const auto written, std::move(converted));
  const auto& [report, seconds] = written;
  if (options.json) print(stdout, as_json(options, report, seconds, std::move(notices)));
  note(line("{}: {} modules as {}, {}; {} {}, {:.1f} MB from {:.1f} MB, {:.1f} s",
            options.destination, report.converted_matrices, report.format, loss_of(report),
            report.kept_tensors,
            report.rounded_matrices > 0 ? "tensors of no module" : "tensors unchanged",
            static_cast<double>(report.result_bytes) / 1e6,
            static_cast<double>(report.source_bytes) / 1e6, seconds));
  return kOk;
}

}  // namespace

void add_convert(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "convert", "Store the same weights in another format, without loss",
      "  subbyte convert ./Qwen3-8B-AWQ ./Qwen3-8B-CT --to compressed-tensors\n"
      "  subbyte convert ./Qwen3-8B-GPTQ ./Qwen3-8B-AWQ --to awq\n"
      "  subbyte convert openai/gpt-oss-20b ./gpt-oss-bf16 --to bf16\n"
      "  subbyte convert ./Qwen3-8B-AWQ ./Qwen3-8B-ak48 --to ak48\n"
      "  subbyte convert ./Qwen3-8B-NF4 ./Qwen3-8B --to bf16 --allow-lossy --json");
  auto options = std::make_shared<Options>();
  command
      .option("SRC", options->source, "directory, GGUF, ak47 or ak48 file, or org/name[@revision]")
      .required();
  command.destination(options->destination);
  command
      .option("--to", options->convert.format,
              fmt::format("one of {}; the last three are unquantized, ak48 is a model file of "
                          "OrinMLLM, and DST becomes a file with gguf",
                          fmt::join(conversion_formats(), ", ")))
      .value("FORMAT")
      .such_as(conversion_formats())
      .required();
  command.flag("--allow-lossy", options->convert.allow_lossy,
               "round scales or weights that the format does not hold, and say how much is "
               "lost; without it such a conversion is refused");
  command.flag("--json", options->json, "print one JSON object");
  command.shares(Shares::kThreads);
  command.run([options, &invocation] { return run(invocation, *options); });
  command.error_members([options] { return with_checkpoint(options->source); });
}

}  // namespace subbyte::app
