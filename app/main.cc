// subbyte: the command line.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <sstream>

#include "app/command.h"
#include "app/output.h"
#include "base/output_directory.h"

namespace subbyte::app {

#define SUBBYTE_COMMAND(name) void add_##name(CLI::App& app, Invocation& invocation);
#include "app/commands.def"
#undef SUBBYTE_COMMAND

namespace {

constexpr int kInterrupted = 128;

/// In a handler, which may do no more than this. What it cannot write is lost.
void write_stderr(const char* text) {
  static_cast<void>(::write(STDERR_FILENO, text, std::strlen(text)) < 0);
}

/// A path from the command line, without the characters that a terminal would obey.
void write_path(const char* path) {
  char plain[4096];
  std::size_t size = 0;
  for (; path[size] != '\0' && size + 1 < sizeof plain; ++size) {
    const auto c = static_cast<unsigned char>(path[size]);
    const bool is_c1 = size > 0 && static_cast<unsigned char>(path[size - 1]) == 0xC2 && c < 0xA0;
    plain[size] = c < 0x20 || c == 0x7F || is_c1 ? '?' : path[size];
  }
  plain[size] = '\0';
  write_stderr(plain);
}

extern "C" void remove_outputs_and_exit(int signal) {
  const char* stays = remove_partial_outputs();
  if (signal == SIGBUS) {
    write_stderr("subbyte: error: a file was cut short while it was read [file.changed]\n");
  }
  if (stays != nullptr) {
    write_stderr("subbyte: stopped; ");
    write_path(stays);
    write_stderr(
        " keeps what is finished, the same command goes on with it, `subbyte clean` removes it\n");
  }
  _exit(kInterrupted + signal);
}

void handle_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU, SIGBUS}) {
    std::signal(signal, remove_outputs_and_exit);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error of write(), not a death
}

int report(const Error& error) {
  print(stderr, line("subbyte: error: {} [{}]", error.message, error.code));
  // What is wrong with an option or a variable, and not with a file.
  for (const char* prefix : {"usage.", "isa.", "device.", "sampling.range", "synth.",
                             "quantize.format", "convert.format"}) {
    if (error.code.starts_with(prefix)) return kUsage;
  }
  return kFailure;
}

/// Help as it is, else what the parser complains of.
int end_parsing(const CLI::App& app, const CLI::ParseError& error) {
  std::ostringstream help, unused;
  if (app.exit(error, help, unused) != 0) {
    return report({"usage.arguments", std::string(error.what()) + " (see --help)"});
  }
  print(stdout, help.str());
  return kOk;
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
    return end_parsing(app, error);
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
