#include "app/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <map>
#include <new>
#include <string_view>
#include <thread>

#include "app/build_info.h"
#include "app/command.h"
#include "app/help.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "app/parser.h"
#include "app/terminal.h"
#include "app/usage_codes.h"
#include "backends/processes.h"
#include "base/link_policy.h"
#include "session/follower.h"
#include "subbyte/json.h"

namespace subbyte::app {

#define SUBBYTE_COMMAND(name) void add_##name(Program& program, Invocation& invocation);
#include "app/commands.def"
#undef SUBBYTE_COMMAND

namespace {

/// The values of --color.
const std::map<std::string, Colours> kColours = {
    {"auto", Colours::kAuto}, {"always", Colours::kAlways}, {"never", Colours::kNever}};

/// The error, with the option that lets what is refused by default.
Error with_option(const Error& error) {
  const bool is_link = error.code == "file.link_outside" || error.code == "index.link_outside";
  return is_link ? Error{error.code, error.message + " (--follow-links follows it)"} : error;
}

/// Waits in a later process: the first one mostly refuses the same, and then mpirun ends this one
/// before it says so once more.
void let_first_process_say_it() {
  if (!is_later_process()) return;
  std::signal(SIGTERM, SIG_DFL);
  std::this_thread::sleep_for(std::chrono::seconds(3));
}

int report(const Error& error, const Json& beside = Json::object()) {
  let_first_process_say_it();
  print_error(with_option(error), beside);
  return is_usage_error(error.code) ? kUsage : kFailure;
}

/// How a model is divided.
void declare_division(Program& program, Invocation& invocation) {
  program
      .share(Shares::kModel, "--tensor-parallel", invocation.tensor_parallel,
             "ranks that divide every weight and the cache among them: as many GPUs, parts of a "
             "CPU's threads, or the processes that mpirun has started")
      .value("N")
      .between(1, 64)
      .shows_default();
  program
      .share(Shares::kModel, "--pipeline-parallel", invocation.pipeline_parallel,
             "stages that have some of the layers each, one after the other: as many GPUs, parts "
             "of a CPU's threads, or the processes that mpirun has started")
      .value("N")
      .between(1, 64)
      .shows_default();
  program
      .share(Shares::kModel, "--gpu-layers", invocation.gpu_layers,
             "layers on the GPU, the last ones, of which lm_head is one; those before are the "
             "CPU's; auto: all, or as many as its memory has room for")
      .value("N")
      .such_as({"all", "auto", "0"})
      .shows_default();
}

void declare(Program& program, Invocation& invocation) {
  program.topics = kTopics;
  program.summary = "Runs, verifies and converts language models with weights below eight bits.";
  program.footer =
      "MODEL is a directory with config.json, a GGUF, ak47 or ak48 file, or org/name[@revision] "
      "from the Hugging Face cache. `subbyte COMMAND --help` has the options and examples of a "
      "command.";
  program
      .share(Shares::kModel, "--device", invocation.device,
             "where a model runs: cpu, cuda or cuda:N (a GPU of NVIDIA, with activations of 16 "
             "bits), auto (the default: a GPU if there is one with room for the model); `subbyte "
             "devices` lists them")
      .value("DEVICE")
      .such_as({"auto", "cpu", "cuda", "cuda:0"});
  program
      .share(Shares::kThreads, "-t,--threads", invocation.threads,
             "threads to work with (SUBBYTE_THREADS; default: all processors)")
      .between(1, 1024)
      .zero_is_default();
  program
      .share(Shares::kModel, "--activations", invocation.activations,
             "precision of activations in matrix products: f32 (most accurate), bf16 (faster "
             "prompts) or int8 (fastest, 8 bits with a scale for 32 values); a processor that "
             "has no fast way for one takes the next better one; mxfp8: as f32, but experts read "
             "their inputs in MXFP8 (W4A8); fp8: as f32, but prompts are multiplied in E4M3 with "
             "weights in FP8 blocks that were made for that, on GPUs of Hopper (W8A8)")
      .value("TYPE")
      .one_of(kActivations)
      .shows_default();
  program.share_flag(Shares::kModel, "--batch-invariant", invocation.batch_invariant,
                     "a token's logits are the same bits whether it is computed alone or with "
                     "others (slower)");
  declare_division(program, invocation);
  program.share_flag(Shares::kThreads, "--pin", invocation.pin_threads,
                     "keep each thread on a processor of its own (SUBBYTE_PIN=1)");
  program.share_flag(Shares::kNothing, "--no-progress", invocation.no_progress, "no progress bars");
  program.share_flag(Shares::kNothing, "-q,--quiet", invocation.quiet,
                     "nothing on standard error but errors");
  program.share_flag(Shares::kNothing, "--follow-links", invocation.follow_links,
                     "links in a model's directory may lead anywhere, not only into the cache");
  program
      .share(Shares::kNothing, "--color", invocation.color,
             "colours; auto: on terminals, unless NO_COLOR is set")
      .value("WHEN")
      .one_of(kColours)
      .shows_default();
  program.share_flag(Shares::kNothing, "-h,--help", program.wants_help, "this text");
  program.share_flag(Shares::kNothing, "-V,--version", program.wants_version,
                     "version, commit and kernels of the program");
#define SUBBYTE_COMMAND(name) add_##name(program, invocation);
#include "app/commands.def"
#undef SUBBYTE_COMMAND
}

/// What is printed instead of running a command; none where one is to run.
std::string page(const Program& program, const CommandInfo* command) {
  if (program.wants_version) return build_info() + "\n";
  if (!program.wants_help) return {};
  return command == nullptr ? program_text(program, columns_of(stdout))
                            : command_text(program, *command, columns_of(stdout));
}

/// What is printed may still be in a buffer: only now is it known whether it could be written.
int finish_output(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return report({"file.io", "standard output: could not be written"});
}

/// Among how many a model is divided, whatever they are.
DeviceOptions division_of(const Invocation& invocation) {
  return {.tensor_parallel_size = invocation.tensor_parallel,
          .pipeline_parallel_size = invocation.pipeline_parallel};
}

/// Without the option each process of mpirun runs the command by itself, which is rarely meant.
void note_undivided(const Invocation& invocation, const CommandInfo& command) {
  const int processes = num_processes();
  const bool is_alone = processes == 1 || is_one_of_several(division_of(invocation));
  if (is_alone || is_later_process()) return;
  if (command.shares != Shares::kModel) return;
  print_notice(
      fmt::format("mpirun has started {} processes, and each of them does all of this by "
                  "itself; --tensor-parallel {} divides the model among them",
                  processes, processes));
}

/// Of the processes that mpirun has started the first one runs the command, and the others compute
/// with it.
Result<ExitCode> run_or_follow(const Invocation& invocation, CommandInfo& command) {
  if (is_follower(division_of(invocation))) {
    SUBBYTE_TRY(const DeviceOptions device, device_options(invocation));
    for (const int signal : {SIGTERM, SIGINT})
      std::signal(signal, SIG_IGN);  // the first one ends all
    SUBBYTE_CHECK(follow_first_rank(device));
    return kOk;
  }
  note_undivided(invocation, command);
  return command.run();
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
  Program program;
  Invocation invocation;
  declare(program, invocation);
  if (argc < 2) print(stderr, program_text(program, columns_of(stdout)) + "\n");
  const std::vector<std::string> arguments(argv + 1, argv + std::max(argc, 1));
  if (std::ranges::find(arguments, "--json") != arguments.end()) print_errors_as_json();
  const Result<CommandInfo*> command = parse(program, arguments);
  choose_colours(kColours.at(invocation.color));
  if (invocation.quiet) be_quiet();
  if (invocation.follow_links) follow_all_links();
  if (!command.ok()) return report(command.error());
  const std::string text = page(program, *command);
  print(stdout, text);
  const Result<ExitCode> result = text.empty() ? run_or_follow(invocation, **command) : Result(kOk);
  if (!result.ok()) {
    const bool has_members = prints_errors_as_json() && (*command)->error_members;
    return report(result.error(), has_members ? (*command)->error_members() : Json::object());
  }
  return finish_output(*result);
}

}  // namespace

int run_program(int argc, char** argv) {
  reserve_standard_streams();
  handle_signals();
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    return report({"memory", "not enough memory"});
  } catch (const std::exception& failure) {  // a mistake of ours, which is no reason to abort
    return report({"internal", std::string("an unexpected exception: ").append(failure.what())});
  } catch (...) {
    return report({"internal", "an unexpected exception"});
  }
}

}  // namespace subbyte::app
