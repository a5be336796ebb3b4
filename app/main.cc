// subbyte: the command line.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <new>

#include "app/command.h"
#include "base/output_file.h"

namespace subbyte::app {

#define SUBBYTE_COMMAND(name) void add_##name(CLI::App& app, Invocation& invocation);
#include "app/commands.def"
#undef SUBBYTE_COMMAND

namespace {

constexpr int kInterrupted = 128;

extern "C" void remove_outputs_and_exit(int signal) {
  remove_partial_outputs();
  _exit(kInterrupted + signal);
}

void handle_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU}) {
    std::signal(signal, remove_outputs_and_exit);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error of write(), not a death
}

int report(const Error& error) {
  print_error(error);
  // What is wrong with an option or a variable, and not with a file.
  for (const char* prefix : {"usage.", "isa.", "device.", "sampling.range", "synth.",
                             "quantize.format", "convert.format"}) {
    if (error.code.starts_with(prefix)) return kUsage;
  }
  return kFailure;
}

void declare(CLI::App& app, Invocation& invocation) {
  app.set_version_flag("--version", "subbyte " SUBBYTE_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option(
         "--device", invocation.device,
         "where a model runs: cpu, cuda or cuda:N (a GPU of NVIDIA, with activations of 16 "
         "bits), auto (a GPU if there is one with room for the model); `subbyte devices` lists "
         "them")
      ->capture_default_str();
  app.add_option("-t,--threads", invocation.threads,
                 "threads to work with (SUBBYTE_THREADS; default: all processors)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--activations", invocation.activations,
                 "precision of activations in matrix products: f32 (most accurate), bf16 (faster "
                 "prompts) or int8 (fastest, 8 bits with a scale for 32 values); a processor that "
                 "has no fast way for one takes the next better one")
      ->check(CLI::IsMember(subbyte::app::kActivations))
      ->capture_default_str();
  app.add_flag("--batch-invariant", invocation.batch_invariant,
               "a token's logits are the same bits whether it is computed alone or with others "
               "(slower)");
  app.add_flag("--pin", invocation.pin_threads,
               "keep each thread on a processor of its own (SUBBYTE_PIN=1)");
  app.add_flag("--no-progress", invocation.no_progress, "no progress bars");
  app.footer(
      "MODEL is a directory with config.json, or org/name[@revision] from the Hugging Face cache.\n"
      "Exit codes: 0 ok, 1 failure, 2 usage, 3 problems found.");
#define SUBBYTE_COMMAND(name) add_##name(app, invocation);
#include "app/commands.def"
#undef SUBBYTE_COMMAND
}

int run(int argc, char** argv) {
  CLI::App app("Runs, verifies and converts language models with weights below eight bits.",
               "subbyte");
  Invocation invocation;
  declare(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  const Result<ExitCode> result = invocation.run();
  if (!result.ok()) return report(result.error());
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return report({"file.io", "stdout: could not write"});
  }
  return *result;
}

}  // namespace
}  // namespace subbyte::app

int main(int argc, char** argv) {
  subbyte::app::handle_signals();
  try {
    return subbyte::app::run(argc, argv);
  } catch (const std::bad_alloc&) {
    return subbyte::app::report({"memory", "not enough memory"});
  }
}
