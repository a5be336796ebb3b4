// subbyte synth: a checkpoint of a real shape with random weights.

#include "synth/synth.h"
#include "synth/synth_shapes.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/output.h"

namespace subbyte::app {
namespace {

struct Options {
  std::string destination;
  SynthOptions synth;
  bool json = false;
};

Result<ExitCode> run(const Invocation& invocation, const Options& options) {
  SUBBYTE_TRY(const auto host, create_host(invocation));
  const auto start = std::chrono::steady_clock::now();
  uint64_t bytes = 0;
  const Status written = [&] {
    Progress progress(invocation, "writing");
    return synthesize(options.destination, options.synth, *host,
                      [&](uint64_t done, uint64_t total) {
                        bytes = total;
                        progress.update_bytes(done, total);
                      });
  }();
  SUBBYTE_CHECK(written);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const SynthOptions& synth = options.synth;
  if (options.json) {
    print(stdout, json_text({{"directory", options.destination},
                             {"arch", synth.arch},
                             {"shape", synth.shape},
                             {"format", synth.format},
                             {"seed", synth.seed},
                             {"weight_bytes", bytes},
                             {"seconds", seconds}},
                            -1));
  }
  print(stderr,
        line("{}: {} {} in {}, {:.1f} MB of random weights in {:.1f} s", quote(options.destination),
             synth.arch, synth.shape, synth.format, static_cast<double>(bytes) / 1e6, seconds));
  return kOk;
}

}  // namespace

void add_synth(CLI::App& app, Invocation& invocation) {
  Command command = add_command(
      app, "synth", "Write a checkpoint of a published shape with random weights",
      "  subbyte synth ./qwen3-8b --arch qwen3 --shape 8b --format awq\n"
      "  subbyte synth ./gpt-oss-20b --arch gpt-oss --shape 20b --format mxfp4 --seed 7\n"
      "  subbyte synth ./small --shape 0.6b --format gptq --group-size 64 --layers 4\n"
      "  subbyte synth ./tiny --shape tiny --format bf16 --json");
  auto options = std::make_shared<Options>();
  options->synth.notice = print_notice;
  SynthOptions& synth = options->synth;
  command.option("DST", options->destination, "directory to make; it must not exist").required();
  synth.arch = usual_arch();
  command.option("--arch", synth.arch, shape_archs()).shows_default();
  command.option("--shape", synth.shape, all_shape_names()).shows_default();
  command.option("--format", synth.format, all_synthetic_formats()).shows_default();
  command.option("-s,--seed", synth.seed, "same seed, same bytes").shows_default();
  command.option("--layers", synth.layers, "only the first layers, this many of them (0: all)")
      .shows_default();
  command.option("--group-size", synth.group_size, "inputs that share a scale (awq, gptq)")
      .shows_default();
  command.flag("--json", options->json, "print one JSON object");
  command.callback([options, &invocation] {
    invocation.run = [options, &invocation] { return run(invocation, *options); };
  });
}

}  // namespace subbyte::app
