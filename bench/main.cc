// ./dev bench: one table of what this machine does with whole models.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <fstream>

#include "base/thread_pool.h"
#include "bench/measure_kernels.h"
#include "bench/measure_model.h"
#include "engine/synth.h"
#include "kernels/cpu/cpu_kernels.h"

namespace subbyte::bench {
namespace {

namespace fs = std::filesystem;

struct Subject {
  std::string name;
  fs::path directory;
  SynthOptions synth;  // how to make it when it is not there; arch empty: it must be there
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
          {"gpt-oss 20b, 4 layers", folder / "gpt-oss-20b-4-layers-mxfp4", moe}};
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

void print_head(const ModelRun& run, Executor& pool) {
  const auto kernels = cpu::select_kernels();
  fmt::print("{}, {} threads, {} kernels, {:%Y-%m-%d}\n", processor_name(), pool.size(),
             kernels.ok() ? (*kernels)->name : "no", fmt::gmtime(std::time(nullptr)));
  fmt::print(
      "medians of {} rounds; prefill of {} tokens, decode of {}; B: read bandwidth between "
      "the rounds\n\n",
      run.rounds, run.prompt, run.decode);
  fmt::print("{:<22} {:>8} {:>9} {:>9} {:>9} {:>7} {:>9} {:>8} {:>9} {:>9}\n", "model", "B GB/s",
             "MB/token", "decode/s", "GB/s", "% of B", "prefill/s", "load s", "memory", "allowed");
}

void print_row(const std::string& name, const ModelFigures& f) {
  const double rate = f.bytes_per_token * f.decode_tokens;
  const double allowed = 1.15 * f.checkpoint_bytes + f.kv_bytes + (64 << 20);
  fmt::print(
      "{:<22} {:>8.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>7.0f} {:>9.1f} {:>8.2f} {:>9.0f} {:>9.0f}\n",
      name, f.read_bandwidth / 1e9, f.bytes_per_token / 1e6, f.decode_tokens, rate / 1e9,
      100 * rate / f.read_bandwidth, f.prefill_tokens, f.load_seconds, f.resident_bytes / 1e6,
      allowed / 1e6);
  std::fflush(stdout);
}

Status run_all(ModelRun run, const fs::path& folder, const std::string& only) {
  ThreadPool pool(run.threads);
  print_head(run, pool);
  for (const Subject& subject : subjects(folder)) {
    if (!only.empty() && subject.name.find(only) == std::string::npos) continue;
    if (!fs::exists(subject.directory) && !subject.synth.arch.empty()) {
      fs::create_directories(folder);
      fmt::print(stderr, "making {} ...\n", subject.directory.string());
      SUBBYTE_CHECK(synthesize(subject.directory, subject.synth, pool));
    }
    run.directory = subject.directory;
    SUBBYTE_TRY(const ModelFigures figures, measure_model(run));
    print_row(subject.name, figures);
  }
  fmt::print(
      "\nmemory: most resident MB while loading and running; allowed: 1.15 x checkpoint + KV "
      "cache + 64 MiB\n");
  return {};
}

}  // namespace
}  // namespace subbyte::bench

int main(int argc, char** argv) {
  CLI::App app("Measures whole models on this machine.", "subbyte_bench");
  subbyte::bench::ModelRun run;
  std::string folder = "build/bench-models";
  std::string only;
  bool kernels = false;
  std::string isa, precision;
  app.add_flag("--kernels", kernels);
  app.add_option("--isa", isa);
  app.add_option("--precision", precision);
  app.add_option("--folder", folder, "where synthetic models are kept (5 GB)")
      ->capture_default_str();
  app.add_option("--only", only, "only models whose name contains this");
  app.add_option("-t,--threads", run.threads, "0: all processors")->capture_default_str();
  app.add_option("--head-bits", run.head_bits, "of embedding and head; 16: as in the file")
      ->check(CLI::IsMember({4, 8, 16}))
      ->capture_default_str();
  app.add_option("--rounds", run.rounds)->capture_default_str()->check(CLI::Range(1, 1000));
  app.add_option("--prompt", run.prompt)->capture_default_str()->check(CLI::Range(1, 32768));
  app.add_option("--decode", run.decode)->capture_default_str()->check(CLI::Range(1, 32768));
  CLI11_PARSE(app, argc, argv);
  if (kernels) {
    using subbyte::cpu::Precision;
    auto execution = subbyte::Execution::create(
        {.num_threads = run.threads,
         .isa = isa,
         .precision = precision == "int8"   ? Precision::kInt8
                      : precision == "f32"  ? Precision::kF32
                      : precision == "bf16" ? Precision::kBF16
                                            : Precision::kAuto});
    if (!execution.ok()) return 1;
    subbyte::bench::KernelRun kernel_run;
    kernel_run.rounds = run.rounds;
    kernel_run.only = only;
    (void)measure_decode_kernels(**execution, kernel_run);
    (void)measure_prefill_kernels(**execution, kernel_run);
    return 0;
  }
  const subbyte::Status status = subbyte::bench::run_all(run, folder, only);
  if (status.ok()) return 0;
  fmt::print(stderr, "subbyte_bench: {}\n", status.error().message);
  return 1;
}
