// ./dev bench: tables of what this machine does with kernels and whole models.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <map>

#include "base/cpu_features.h"
#include "bench/command_line.h"
#include "bench/make_model.h"
#include "bench/measure_barrier.h"
#include "bench/measure_delta_net.h"
#include "bench/measure_group.h"
#include "bench/measure_kernels.h"
#include "bench/measure_load.h"
#include "bench/measure_model.h"
#include "bench/peaks.h"
#include "kernels/cpu/cpu_kernels.h"

namespace subbyte::bench {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, Element> kKvTypes = {{"f32", Element::kF32},
                                                 {"f16", Element::kF16},
                                                 {"bf16", Element::kBF16},
                                                 {"fp8", Element::kE4M3}};

struct Arguments {
  std::string suite = "cpu";
  std::string folder = "build/bench-models";
  std::string only;
  std::string device = "cpu";
  std::string isa;
  std::string activations = "f32";
  std::string kv_cache_type = "f16";
  int64_t rows = KernelRun().rows;
  int64_t cols = KernelRun().cols;
  bool pin = false;
  ModelRun run;

  ExecutionOptions execution() const {
    static const std::map<std::string, cpu::Precision> kNames = {{"f32", cpu::Precision::kF32},
                                                                 {"bf16", cpu::Precision::kBF16},
                                                                 {"int8", cpu::Precision::kInt8}};
    return {.num_threads = run.threads,
            .isa = isa,
            .pin_threads = pin,
            .precision = kNames.at(activations)};
  }

  DeviceOptions device_options() const {
    static const std::map<std::string, Activations> kNames = {
        {"f32", Activations::kF32}, {"bf16", Activations::kBF16}, {"int8", Activations::kInt8}};
    return {.device = device,
            .num_threads = run.threads,
            .pin_threads = pin,
            .isa = isa,
            .activations = kNames.at(activations)};
  }
};

struct Subject {
  std::string name;
  fs::path directory;
  SynthOptions synth;  // how to make it when it is not there; arch empty: it must be there
  int head_bits = 16;
};

std::vector<Subject> subjects(const fs::path& folder) {
  SynthOptions qwen;
  SynthOptions moe;
  moe.arch = "gpt-oss";
  moe.shape = "20b";
  moe.format = "mxfp4";
  moe.layers = 4;
  SynthOptions none;
  none.arch.clear();
  return {{"demo (AWQ)", SUBBYTE_DEMO_MODEL, none},
          {"qwen3 0.6b (AWQ)", folder / "qwen3-0.6b-awq", qwen},
          {"qwen3 0.6b, head 4 bits", folder / "qwen3-0.6b-awq", qwen, 4},
          {"gpt-oss 20b, 4 layers", folder / "gpt-oss-20b-4-layers-mxfp4", moe}};
}

/// The peak that products with these activations could reach.
Peak peak_for(const std::vector<Peak>& peaks, const std::string& activations) {
  const std::string_view wanted = activations == "int8" ? "int8" : "bf16";
  Peak best = peaks.empty() ? Peak{"none", 1} : peaks.front();
  for (const Peak& peak : peaks) {
    const bool fits = activations == "f32" ? peak.name.starts_with("float")
                                           : peak.name.find(wanted) != std::string::npos;
    if (fits) best = peak;
  }
  return best;
}

Status print_machine(const Arguments& arguments, std::vector<Peak>& peaks) {
  SUBBYTE_TRY(const auto execution, Execution::create(arguments.execution()));
  const BarrierFigures barrier = measure_barrier(execution->pool());
  fmt::print("{}, {} threads, {} kernels, activations {}, {:%Y-%m-%d}\n", processor_name(),
             execution->pool().size(), execution->kernels().name, arguments.activations,
             fmt::gmtime(std::time(nullptr)));
  fmt::print("empty parallel loop: {:.2f} us (90 %: {:.2f})\n", 1e6 * barrier.median_seconds,
             1e6 * barrier.percentile_90_seconds);
  peaks = measure_peaks(execution->pool());
  for (const Peak& peak : peaks) {
    fmt::print("peak {:<26} {:>8.0f} G operations/s\n", peak.name, peak.rate / 1e9);
  }
  fmt::print("\n");
  return {};
}

void print_model_head(const ModelRun& run) {
  fmt::print(
      "whole models: medians of {} rounds; prefill of {} tokens, decode of {}; B: read bandwidth "
      "between the rounds\n",
      run.rounds, run.prompt, run.decode);
  fmt::print("{:<24} {:>8} {:>9} {:>9} {:>9} {:>7} {:>9} {:>8} {:>9} {:>9}\n", "model", "B GB/s",
             "MB/token", "decode/s", "GB/s", "% of B", "prefill/s", "load s", "memory", "allowed");
}

void print_row(const std::string& name, const ModelFigures& f) {
  const double rate = f.bytes_per_token * f.decode_tokens;
  const double allowed = 1.15 * f.checkpoint_bytes + f.kv_bytes + (64 << 20);
  fmt::print(
      "{:<24} {:>8.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>7.0f} {:>9.1f} {:>8.2f} {:>9.0f} {:>9.0f}\n",
      name, f.read_bandwidth / 1e9, f.bytes_per_token / 1e6, f.decode_tokens, rate / 1e9,
      100 * rate / f.read_bandwidth, f.prefill_tokens, f.load_seconds, f.resident_bytes / 1e6,
      allowed / 1e6);
  std::fflush(stdout);
}

Status run_models(const Arguments& arguments) {
  print_model_head(arguments.run);
  for (const Subject& subject : subjects(arguments.folder)) {
    if (!arguments.only.empty() && subject.name.find(arguments.only) == std::string::npos) continue;
    if (!subject.synth.arch.empty()) {
      SUBBYTE_CHECK(make_model(subject.directory, subject.synth));
    }
    ModelRun run = arguments.run;
    run.device = arguments.device_options();
    run.kv_type = kKvTypes.at(arguments.kv_cache_type);
    run.directory = subject.directory;
    run.head_bits = subject.head_bits;
    SUBBYTE_TRY(const ModelFigures figures, measure_model(run));
    print_row(subject.name, figures);
  }
  fmt::print(
      "memory: most resident MB while loading and running; allowed: 1.15 x checkpoint + KV cache "
      "+ 64 MiB\n\n");
  return {};
}

Status run_load(const Arguments& arguments) {
  SynthOptions shape;
  shape.shape = "8b";
  shape.layers = 4;
  LoadRun run;
  run.directory = fs::path(arguments.folder) / "qwen3-8b-4-layers-awq";
  run.threads = arguments.run.threads;
  run.rounds = arguments.run.rounds;
  SUBBYTE_CHECK(make_model(run.directory, shape));
  SUBBYTE_TRY(const LoadFigures f, measure_load(run));
  const auto share = [&f](double rate) { return 100 * f.load_rate / rate; };
  fmt::print(
      "loading qwen3 8b shape, 4 layers, AWQ, from the page cache: {:.0f} MB repacked at {:.1f} "
      "GB/s, {:.0f} MB mapped;\nshare of memcpy: {:.0f} % of {:.1f} GB/s into warm memory, {:.0f} "
      "% of {:.1f} into fresh memory,\n{:.0f} % of {:.1f} from the mapped file into fresh memory; "
      "extra memory {:.1f} %\n\n",
      f.repacked_bytes / 1e6, f.load_rate / 1e9, f.mapped_bytes / 1e6, share(f.copy_warm_rate),
      f.copy_warm_rate / 1e9, share(f.copy_fresh_rate), f.copy_fresh_rate / 1e9,
      share(f.copy_file_rate), f.copy_file_rate / 1e9,
      100 * (f.resident_bytes / f.allocated_bytes - 1));
  return {};
}

Status run_kernels(const Arguments& arguments, const Peak& peak) {
  SUBBYTE_TRY(const auto execution, Execution::create(arguments.execution()));
  KernelRun run = {.rows = arguments.rows, .cols = arguments.cols};
  run.rounds = arguments.run.rounds;
  run.only = arguments.only;
  run.peak = peak.rate;
  run.peak_name = peak.name;
  SUBBYTE_CHECK(measure_decode_kernels(*execution, run));
  if (arguments.suite == "decode") return {};
  SUBBYTE_CHECK(measure_prefill_kernels(*execution, run));
  if (!arguments.only.empty()) return {};
  SUBBYTE_CHECK(measure_odd_shapes(*execution, run));
  return measure_batch_invariance(arguments.execution(), run);
}

Status run_all(const Arguments& arguments) {
  std::vector<Peak> peaks;
  SUBBYTE_CHECK(print_machine(arguments, peaks));
  if (arguments.suite == "group") {
    return measure_group_gemm(arguments.execution(), {.rounds = arguments.run.rounds});
  }
  if (arguments.suite == "delta-net") {
    return measure_delta_nets(arguments.execution(), {.rounds = arguments.run.rounds});
  }
  if (arguments.suite != "models") {
    SUBBYTE_CHECK(run_kernels(arguments, peak_for(peaks, arguments.activations)));
  }
  if (arguments.suite != "kernels" && arguments.suite != "decode") {
    SUBBYTE_CHECK(run_models(arguments));
  }
  if (arguments.suite == "cpu") {
    SUBBYTE_CHECK(run_load(arguments));
  }
  return {};
}

struct Suite {
  const char* name;
  const char* summary;
};
constexpr Suite kSuites[] = {
    {"cpu", "Kernels, models and loading"},
    {"kernels", "Products of the CPU's kernels"},
    {"decode", "Kernels of 1 to 16 tokens"},
    {"models", "Whole models"},
    {"group", "FlashInfer's group GEMM beside linear()"},
    {"delta-net", "Gated delta nets beside the products of their layers"},
};

void add_suite(app::Program& program, const Suite& suite, Arguments& arguments) {
  app::Command command = program.add_command(
      suite.name, suite.summary, fmt::format("  subbyte_bench {} --rounds 3", suite.name));
  ModelRun& run = arguments.run;
  command.option("--folder", arguments.folder, "where synthetic models are kept (8 GB)")
      .shows_default();
  command.option("--only", arguments.only, "only formats or models whose name contains this");
  command.option("--rows", arguments.rows, "outputs of the matrices of kernels")
      .between(1, 1 << 20)
      .shows_default();
  command.option("--cols", arguments.cols, "their inputs, a multiple of 256")
      .between(256, 1 << 20)
      .shows_default();
  command.option("--device", arguments.device, "where models run: cpu, cuda, cuda:N or auto")
      .shows_default();
  command.option("--isa", arguments.isa,
                 "kernels to use (SUBBYTE_ISA; default: the best of this machine)");
  command.option("--activations", arguments.activations, "as for subbyte run")
      .one_of({"f32", "bf16", "int8"})
      .shows_default();
  command.option("--kv-cache-type", arguments.kv_cache_type, "as for subbyte run")
      .one_of(kKvTypes)
      .shows_default();
  command.flag("--pin", arguments.pin, "keep each thread on a processor of its own");
  command.option("-t,--threads", run.threads, "0: all processors").shows_default();
  command.option("--rounds", run.rounds, "of which the median is taken")
      .between(1, 1000)
      .shows_default();
  command.option("--prompt", run.prompt, "tokens of a prefill").between(1, 32768).shows_default();
  command.option("--decode", run.decode, "tokens of a decode").between(1, 32768).shows_default();
  command.run([name = suite.name, &arguments]() -> Result<app::ExitCode> {
    arguments.suite = name;
    SUBBYTE_CHECK(run_all(arguments));
    return app::kOk;
  });
}

int run(int argc, char** argv) {
  Arguments arguments;
  arguments.isa = variable("SUBBYTE_ISA");
  app::Program program;
  program.name = "subbyte_bench";
  program.summary = "Measures kernels and whole models on this machine; without a command, cpu.";
  for (const Suite& suite : kSuites) add_suite(program, suite, arguments);
  return run_program(program, argc, argv);
}

}  // namespace
}  // namespace subbyte::bench

int main(int argc, char** argv) {
  return subbyte::bench::run(argc, argv);
}
