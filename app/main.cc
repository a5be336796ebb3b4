// subbyte: the command line.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "app/build_info.h"
#include "app/command.h"
#include "app/help.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "app/terminal.h"
#include "base/output_directory.h"
#include "base/quote.h"

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
  write_stop_note();
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
  print_error(error);
  // What is wrong with an option or a variable, and not with a file.
  for (const char* prefix : {"usage.", "isa.", "device.", "sampling.range", "synth.",
                             "quantize.format", "quantize.group_size", "convert.format"}) {
    if (error.code.starts_with(prefix)) return kUsage;
  }
  return kFailure;
}

void declare(CLI::App& app, Invocation& invocation) {
  app.set_version_flag("--version", build_info());
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option(
      "--device", invocation.device,
      "where a model runs: cpu, cuda or cuda:N (a GPU of NVIDIA, with activations of 16 "
      "bits), auto (the default: a GPU if there is one with room for the model); `subbyte "
      "devices` lists them");
  app.add_option("-t,--threads", invocation.threads,
                 "threads to work with (SUBBYTE_THREADS; default: all processors)")
      ->check(CLI::Range(1, 1024));
  app.add_option(
         "--activations", invocation.activations,
         "precision of activations in matrix products: f32 (most accurate), bf16 (faster "
         "prompts) or int8 (fastest, 8 bits with a scale for 32 values); a processor that "
         "has no fast way for one takes the next better one; mxfp8: as f32, but experts read "
         "their inputs in MXFP8 (W4A8)")
      ->check(CLI::IsMember(subbyte::app::kActivations))
      ->capture_default_str();
  app.add_flag("--batch-invariant", invocation.batch_invariant,
               "a token's logits are the same bits whether it is computed alone or with others "
               "(slower)");
  app.add_flag("--pin", invocation.pin_threads,
               "keep each thread on a processor of its own (SUBBYTE_PIN=1)");
  app.add_flag("--no-progress", invocation.no_progress, "no progress bars");
  app.footer(
      "MODEL is a directory with config.json, an ak47 or ak48 file, or org/name[@revision] from "
      "the\n"
      "Hugging Face cache. `subbyte COMMAND --help` has the options and examples of a command.");
#define SUBBYTE_COMMAND(name) add_##name(app, invocation);
#include "app/commands.def"
#undef SUBBYTE_COMMAND
}

/// --help of the program and of its commands.
class HelpFormatter : public CLI::FormatterBase {
 public:
  explicit HelpFormatter(const CLI::App& program) : program_(&program) {}
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    const ProgramHelp help = {describe_program(*program_), describe_commands(*program_)};
    if (app == program_) return program_text(help, terminal_columns());
    return command_text(help, describe_program(*app), terminal_columns());
  }

 private:
  const CLI::App* program_;
};

/// A mistake in the command line, in the form of all errors.
int report_usage(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const auto commands = app.get_subcommands();
  if (!commands.empty()) {
    const std::string& name = commands[0]->get_name();
    std::string what = error.what();
    std::ranges::replace(what, '\n', ' ');
    return report({"usage.arguments",
                   fmt::format("{}: {}; see `subbyte {} --help`", name, quote(what, 300), name)});
  }
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] == '-') continue;
    return report(
        {"usage.command", fmt::format("no command {}; `subbyte help` lists them", quote(argv[i]))});
  }
  if (argc > 1) return report({"usage.arguments", quote(error.what(), 300)});
  print(stderr, app.help());
  return report({"usage.command", "no command was given"});
}

/// What is printed may still be in a buffer: only now is it known whether it could be written.
int finish_output(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return report({"file.io", "standard output: could not be written"});
}

/// A program that is started without standard streams would open its files in their places, and
/// print into them.
void reserve_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    // Opened for what nobody does with it, so that the attempt is an error.
    const int flags = stream == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (::fcntl(stream, F_GETFD) < 0) static_cast<void>(::open("/dev/null", flags) < 0);
  }
}

int run(int argc, char** argv) {
  CLI::App app("Runs, verifies and converts language models with weights below eight bits.",
               "subbyte");
  Invocation invocation;
  app.formatter(std::make_shared<HelpFormatter>(app));
  declare(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return report_usage(app, error, argc, argv);
    return finish_output(app.exit(error));
  }
  const Result<ExitCode> result = invocation.run();
  if (!result.ok()) return report(result.error());
  return finish_output(*result);
}

}  // namespace
}  // namespace subbyte::app

int main(int argc, char** argv) {
  subbyte::app::reserve_standard_streams();
  subbyte::app::handle_signals();
  try {
    return subbyte::app::run(argc, argv);
  } catch (const std::bad_alloc&) {
    return subbyte::app::report({"memory", "not enough memory"});
  } catch (const std::exception& failure) {  // a mistake of ours, which is no reason to abort
    return subbyte::app::report(
        {"internal", std::string("an unexpected exception: ").append(failure.what())});
  } catch (...) {
    return subbyte::app::report({"internal", "an unexpected exception"});
  }
}
