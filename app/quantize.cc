// subbyte quantize: a model directory with weights of 2 to 8 bits.

#include "transform/transform.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdio>

#include "app/checkpoint_json.h"
#include "app/command.h"
#include "app/losses.h"
#include "app/output.h"
#include "app/quantize_probe.h"
#include "app/text_input.h"
#include "app/written_directory.h"
#include "base/quote.h"
#include "checkpoints/model_path.h"
#include "transform/format_hints.h"
#include "transform/report_json.h"
#include "verify/written_model.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string source;
  std::string destination;
  QuantizeOptions quantize;
  bool symmetric = false;
  bool asymmetric = false;
  std::string text;
  bool json = false;
};

std::string as_json(const Options& options, const QuantizeReport& report, double seconds,
                    json::Value notices) {
  json::Value root = with_checkpoint(options.source, {{"destination", options.destination}});
  root.update(to_json(report));
  root["seconds"] = seconds;
  root["notices"] = std::move(notices);
  return json_text(root, -1);
}

void print_report(const Options& options, const QuantizeReport& report, double seconds) {
  const int64_t usual_group = find_quantize_format(report.format)->default_group;
  note(line(
      "{}: {} matrices rounded to nearest as {}{}{} in {:.2f} bits per weight, {} tensors "
      "unchanged, "
      "{:.1f} MB from {:.1f} MB, signal to noise {:.1f} dB{}{}, {:.1f} s",
      options.destination, report.quantized_matrices, report.format,
      options.quantize.group_size || !options.quantize.rules.empty() ||
              report.group_size == usual_group
          ? ""
          : fmt::format(" in groups of {}, which divide the inputs of all", report.group_size),
      report.matrices_with_f16_scales == 0
          ? ""
          : fmt::format(" ({} with scales in f16, as their blocks differ by more than e4m4 holds)",
                        report.matrices_with_f16_scales),
      report.bits_per_weight, report.kept_tensors, static_cast<double>(report.result_bytes) / 1e6,
      static_cast<double>(report.source_bytes) / 1e6, report.signal_to_noise_db,
      worst_as_text(report.worst),
      report.resumed_tensors == 0
          ? ""
          : fmt::format(" (but for {} tensors that an earlier run wrote)", report.resumed_tensors),
      seconds));
}

Result<ExitCode> run(const Invocation& invocation, Options options) {
  if (options.symmetric || options.asymmetric) options.quantize.symmetric = options.symmetric;
  SUBBYTE_TRY(const auto source, find_model(options.source));
  SUBBYTE_TRY(const auto host, create_host(invocation));
  json::Value notices = json::Value::array();
  options.quantize.notice = kept_notice(notices);
  options.quantize.check = [&](const std::filesystem::path& result) {
    return check_with_bar(invocation, source, result, "quantize.result", *host,
                          options.quantize.notice);
  };
  Progress choosing(invocation, "choosing widths");
  options.quantize.measured = [&](int64_t done, int64_t all) {
    choosing.update(static_cast<uint64_t>(done), static_cast<uint64_t>(all),
                    fmt::format("{} of {} matrices", done, all));
    if (done == all) choosing.clear();
  };
  const double bits = options.quantize.bits.value_or(0);
  const bool is_mean = bits != std::floor(bits);
  if (!options.text.empty() && !is_mean) {
    return Error{"usage.text",
                 "--text: expected --bits with a mean of widths, such as 3.4, which it chooses"};
  }
  if (is_mean) {
    std::string text;
    if (!options.text.empty()) {
      SUBBYTE_TRY(text, read_text(options.text));
      if (text.empty()) {
        return Error{"usage.text",
                     fmt::format("{}: expected a text, found nothing", quote(options.text))};
      }
    }
    SUBBYTE_TRY(auto backend, host_backend(invocation));
    options.quantize.measure = measure_by_text(
        source, std::move(text), std::move(backend), [&](int64_t done, int64_t all) {
          choosing.update(0, 1, fmt::format("{} of {} tokens of samples", done, all));
        });
  }
  auto quantized = write_directory<QuantizeReport>(
      invocation, options.destination, "quantizing", [&](const ByteProgress& update) {
        return quantize_model(source, options.destination, options.quantize, *host, update);
      });
  if (!quantized.ok() && quantized.error().code == "quantize.already_quantized") {
    return Error{quantized.error().code,
                 quantized.error().message + " (`subbyte convert --to f32` makes floats of them)"};
  }
  if (!quantized.ok() && quantized.error().code == "quantize.loss") {
    return Error{quantized.error().code,
                 quantized.error().message + " (--allow-lossy quantizes anyway)"};
  }
  SUBBYTE_TRY(const auto written, std::move(quantized));
  const auto& [report, seconds] = written;
  if (options.json) print(stdout, as_json(options, report, seconds, std::move(notices)));
  print_report(options, report, seconds);
  return kOk;
}

}  // namespace

void add_quantize(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "quantize", "Quantize a model to 2 to 8 bits, rounding to nearest",
      "  subbyte quantize ./Qwen3-8B ./Qwen3-8B-AWQ --format awq\n"
      "  subbyte quantize Qwen/Qwen3-0.6B ./small --format gptq --bits 3 --group-size 64 --json\n"
      "  subbyte quantize ./Qwen3-8B ./Qwen3-8B-NVFP4 --format nvfp4 --ignore model.layers.0\n"
      "  subbyte quantize ./Qwen3-8B ./small --format gptq --bits 3.4 --text novel.txt\n"
      "  subbyte quantize ./gpt-oss-bf16 ./gpt-oss-mxfp4 --format mxfp4");
  auto options = std::make_shared<Options>();
  command
      .option("SRC", options->source, "directory, GGUF file or org/name[@revision], 16 or 32 bits")
      .required();
  command.destination(options->destination);
  command
      .option("--format", options->quantize.format,
              fmt::format("one of {}", fmt::join(quantize_format_names(), ", ")))
      .value("FORMAT")
      .such_as(quantize_format_names())
      .shows_default();
  command
      .option("--bits", options->quantize.bits,
              "bits of a weight, where the format has several; 3.4 and the like are the mean of "
              "widths that are chosen by what each matrix loses")
      .value("N");
  command
      .option("--text", options->text,
              "for a mean of --bits: the text by whose predictions each matrix is judged (- is "
              "stdin); without it the model writes one")
      .value("FILE");
  command
      .option("--rules", options->quantize.rules,
              "a JSON file with bits, group_size and symmetric of single matrices, or keep")
      .value("FILE");
  command.option("--group-size", options->quantize.group_size,
                 "inputs that share a scale, 0 for whole rows; without it that of the format, "
                 "halved until it divides the inputs");
  const Argument symmetric =
      command.flag("--symmetric", options->symmetric, "no zero points; most formats' default");
  command.flag("--asymmetric", options->asymmetric, "a zero point in each group")
      .excludes(symmetric);
  command
      .option("--ignore", options->quantize.ignore,
              "keep matrices of this name, or whose names begin or end so; re: and a regular "
              "expression works, too, and the option may be repeated")
      .value("PATTERN");
  command.flag("--experts-only", options->quantize.experts_only, "quantize nothing but experts");
  command.flag("--head", options->quantize.head, "quantize lm_head, too");
  command.flag("--embedding", options->quantize.embedding,
               "quantize the embedding, too, with the lm_head that is tied to it");
  command.flag("--allow-lossy", options->quantize.allow_lossy,
               "also where little is left of a matrix; without it less than 10 dB of signal to "
               "noise (4 dB with 3 bits, none with 2) are an error");
  command.flag("--json", options->json, "print one JSON object");
  command.shares(Shares::kThreads);
  command.run([options, &invocation] { return run(invocation, *options); });
  command.error_members([options] { return with_checkpoint(options->source); });
}

}  // namespace subbyte::app
