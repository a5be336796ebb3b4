#include "app/command.h"
#include "app/output.h"
#include "app/plan_printer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <utility>

#include "app/interrupt.h"
#include "app/terminal.h"
#include "backends/processes.h"
#include "base/leftover.h"
#include "base/quote.h"
#include "engine/generation_config.h"
#include "models/tensor_spec.h"

namespace subbyte::app {
namespace {

constexpr int kBarWidth = 24;
constexpr double kRedrawSeconds = 0.05;
constexpr double kSureSeconds = 3;  // before the time that is left is told

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// --threads, else SUBBYTE_THREADS, else 0 (all).
Result<int> thread_count(const Invocation& invocation) {
  if (invocation.threads != 0) return invocation.threads;
  const char* text = std::getenv("SUBBYTE_THREADS");
  if (text == nullptr || *text == '\0') return 0;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end == '\0' && value >= 1 && value <= 1024) return static_cast<int>(value);
  return Error{"usage.threads",
               fmt::format("SUBBYTE_THREADS must be between 1 and 1024, found {}", quote(text))};
}

/// --pin, else SUBBYTE_PIN.
Result<bool> pin_threads(const Invocation& invocation) {
  const char* text = std::getenv("SUBBYTE_PIN");
  const std::string_view value = text == nullptr ? "" : text;
  if (invocation.pin_threads || value == "1") return true;
  if (value.empty() || value == "0") return false;
  return Error{"usage.pin", fmt::format("SUBBYTE_PIN must be 0 or 1, found {}", quote(value))};
}

/// Shorter than `columns`, so that the cursor stays in the line: the note is left out first, then
/// the bar.
std::string progress_line(const std::string& title, double share, const std::string& note,
                          int columns) {
  const auto filled = static_cast<int>(share * kBarWidth);
  const std::string bar =
      fmt::format(" [{}{}]", std::string(filled, '='), std::string(kBarWidth - filled, ' '));
  const std::string percent = fmt::format(" {:3.0f}%", share * 100);
  const auto room = static_cast<std::size_t>(columns - 1);
  std::string line = title + bar + percent + " " + note;
  if (line.size() > room) line = title + bar + percent;
  if (line.size() > room) line = title + percent;
  return line.substr(0, room);
}

/// MXFP8 is refused where it does nothing.
Status check_activations(const Invocation& invocation, const ReadyModel& ready) {
  if (invocation.activations != "mxfp8" || expert_stack_of(ready.config)) return {};
  return Error{"usage.activations", fmt::format("--activations mxfp8 is for inputs of experts; "
                                                "{} has no experts",
                                                ready.files.path().string())};
}

/// SUBBYTE_STEP_TOKENS, else 8.
Result<int> step_kernel_tokens() {
  const char* text = std::getenv("SUBBYTE_STEP_TOKENS");
  const std::string_view value = text == nullptr ? "" : text;
  if (value.empty()) return DeviceOptions{}.step_kernel_tokens;
  if (value.size() == 1 && value[0] >= '0' && value[0] <= '8') return value[0] - '0';
  return Error{"usage.step_tokens",
               fmt::format("SUBBYTE_STEP_TOKENS must be 0 to 8, found {}", quote(value))};
}

/// --gpu-layers, as DeviceOptions has it.
Result<int> gpu_layers(const Invocation& invocation) {
  const std::string& value = invocation.gpu_layers;
  if (value == "all" || value == "-1") return -1;
  if (value == "auto") return kGpuLayersThatFit;
  int layers = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), layers);
  if (error == std::errc() && end == value.data() + value.size() && layers >= 0) return layers;
  return Error{"usage.value",
               fmt::format("--gpu-layers: expected a number of layers, all or auto, found {}",
                           quote(value))};
}

/// The machine, whose steps are told as SUBBYTE_PRINT_PLAN says.
Result<std::unique_ptr<Backend>> make_machine(const DeviceOptions& device) {
  SUBBYTE_TRY(std::unique_ptr<Backend> backend, make_backend(device));
  const char* text = std::getenv("SUBBYTE_PRINT_PLAN");
  const std::string_view value = text == nullptr ? "" : text;
  if (value == "1" && exchange_of(*backend) != nullptr) {
    return Error{"usage.print_plan", "SUBBYTE_PRINT_PLAN=1 is not for processes of mpirun"};
  }
  if (value == "1") {
    backend = std::make_unique<PlanPrinter>(std::move(backend));
  } else if (!value.empty() && value != "0") {
    return Error{"usage.print_plan",
                 fmt::format("SUBBYTE_PRINT_PLAN must be 0 or 1, found {}", quote(value))};
  }
  return backend;
}

/// -1: a random one, which is printed so that it can be given the next time.
Result<uint64_t> choose_seed(const std::string& text) {
  if (text == "-1") {
    std::random_device random;
    const uint64_t seed = random();
    print_notice(fmt::format("--seed {}", seed));
    return seed;
  }
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return seed;
  return Error{"usage.seed",
               fmt::format("--seed must be -1 or between 0 and 2^64 - 1, found {}", quote(text))};
}

}  // namespace

void add_head_bits(Command command, int& bits) {
  command
      .option("--head-bits", bits,
              "quantize the embedding and lm_head to 4 or 8 bits; 16: as they are")
      .one_of({"4", "8", "16"})
      .shows_default();
}

void add_kv_cache_type(Command command, std::string& type) {
  command
      .option("--kv-cache-type", type,
              "what the key-value cache is stored as; fp8 is e4m3 with scales")
      .value("TYPE")
      .one_of(cache_type_names())
      .shows_default();
}

void PrefixFlags::add_to(Command command) {
  const Argument unknown =
      command.flag("--no-prefix-cache", are_unknown_,
                   "compute again what requests begin with that were answered before");
  command
      .option("--state-cache-memory-bytes", state_bytes_,
              "bytes for states of recurrent layers from where later requests go on (a quarter of "
              "the cache); one is 2.2 MB a layer with 32 heads of 128 by 128")
      .between(0, int64_t{1} << 50)
      .excludes(unknown);
}

void PrefixFlags::set(SessionOptions& options) const {
  options.prefix_cache = !are_unknown_;
  options.state_cache_bytes = state_bytes_.value_or(-1);
}

void CacheFlags::add_to(Command command, const std::string& group) {
  constexpr int64_t kMost = int64_t{1} << 50;
  const Argument positions =
      command
          .option("--cache-positions", positions_,
                  "tokens of the key-value cache that all share (what they may take, at most 4096 "
                  "each); when it is full, the youngest wait")
          .between(1, int64_t{1} << 40)
          .zero_is_default()
          .group(group);
  const Argument bytes =
      command.option("--kv-cache-memory-bytes", bytes_, "the same by the memory that it takes")
          .between(1, kMost)
          .zero_is_default()
          .group(group)
          .excludes(positions);
  command
      .option("--gpu-memory-utilization", share_,
              "the same by the share of a GPU's free memory that weights, cache and steps take, "
              "such as 0.9")
      .group(group)
      .excludes(positions)
      .excludes(bytes);
}

Result<int64_t> CacheFlags::positions(const ReadyModel& ready,
                                      const SessionOptions& options) const {
  if (share_ && !(*share_ > 0 && *share_ <= 1)) {
    return Error{
        "usage.cache_memory",
        fmt::format("--gpu-memory-utilization: expected a share above 0 and up to 1, found {}",
                    *share_)};
  }
  if (share_) return positions_within({.share = *share_}, ready, options);
  if (!is_given()) {
    constexpr int64_t kUsualPositions = 4096;
    const int64_t each = std::min(options.context, kUsualPositions);
    return std::max(options.context, options.max_sequences * each);
  }
  SessionOptions size = options;
  if (bytes_) {
    SUBBYTE_TRY(size.cache_positions, positions_within({.bytes = *bytes_}, ready, options));
  } else {
    size.cache_positions = kv_pages(*positions_) * kPagePositions;
  }
  if (size.cache_positions < options.context) {
    return Error{"usage.cache_positions",
                 fmt::format("--cache-positions: expected at least the {} tokens that a request "
                             "may take, found {}; a shorter one (--ctx-size) wants less",
                             options.context, positions_.value_or(size.cache_positions))};
  }
  SUBBYTE_CHECK(check_cache_memory(ready, size));
  return size.cache_positions;
}

void add_step_tokens(Command command, int64_t& tokens, const std::string& group) {
  command.option("--max-num-batched-tokens", tokens, "tokens of a step (what suits the machine)")
      .between(1, int64_t{1} << 20)
      .zero_is_default()
      .group(group);
}

Element kv_element(const std::string& type) {
  return element_of(*find_cache_type(type));
}

Progress::Progress(const Invocation& invocation, std::string title)
    : shown_(is_shown(invocation)), title_(std::move(title)) {}

bool Progress::is_shown(const Invocation& invocation) {
  return !invocation.no_progress && !invocation.quiet && moves_cursor();
}

void Progress::clear() {
  if (!shown_) return;
  print(stderr, "\r\033[K");
  set_bar_shown(false);
}

void Progress::begin(uint64_t done) {
  if (started_ != 0) return;
  started_ = now();
  begun_ = done;
}

std::string Progress::time_left(uint64_t done, uint64_t total) const {
  const double seconds = now() - started_;
  if (seconds < kSureSeconds || done <= begun_ || done >= total) return {};
  const double left =
      seconds * static_cast<double>(total - done) / static_cast<double>(done - begun_);
  return left < 90 ? fmt::format(", {:.0f} s left", left)
                   : fmt::format(", {:.0f} minutes left", left / 60);
}

void Progress::update(uint64_t done, uint64_t total, const std::string& note) {
  if (!shown_ || (done < total && now() - drawn_ < kRedrawSeconds)) return;
  begin(done);
  drawn_ = now();
  const double share = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
  set_bar_shown(true);
  print(stderr,
        "\r" + progress_line(title_, share, note + time_left(done, total), columns_of(stderr)) +
            "\033[K");
}

void Progress::update_bytes(uint64_t done, uint64_t total) {
  begin(done);  // not before: what is shown may begin later
  const double seconds = now() - started_;
  const double rate = seconds > 0 ? static_cast<double>(done - begun_) / seconds : 0;
  update(done, total,
         fmt::format("{:.0f} of {:.0f} MB, {:.0f} MB/s", static_cast<double>(done) / 1e6,
                     static_cast<double>(total) / 1e6, rate / 1e6));
}

Result<std::shared_ptr<Executor>> create_host(const Invocation& invocation) {
  SUBBYTE_TRY(const int threads, thread_count(invocation));
  SUBBYTE_TRY(const bool pin, pin_threads(invocation));
  return make_threads(threads, pin);
}

Result<DeviceOptions> device_options(const Invocation& invocation) {
  SUBBYTE_TRY(const int threads, thread_count(invocation));
  SUBBYTE_TRY(const bool pin, pin_threads(invocation));
  SUBBYTE_TRY(const int step_tokens, step_kernel_tokens());
  SUBBYTE_TRY(const int layers, gpu_layers(invocation));
  const char* isa = std::getenv("SUBBYTE_ISA");
  return DeviceOptions{.device = invocation.device.value_or("auto"),
                       .num_threads = threads,
                       .pin_threads = pin,
                       .isa = isa == nullptr ? "" : isa,
                       .activations = kActivations.at(invocation.activations),
                       .batch_invariant = invocation.batch_invariant,
                       .step_kernel_tokens = step_tokens,
                       .tensor_parallel_size = invocation.tensor_parallel,
                       .pipeline_parallel_size = invocation.pipeline_parallel,
                       .gpu_layers = layers};
}

Result<std::unique_ptr<Backend>> host_backend(const Invocation& invocation) {
  SUBBYTE_TRY(DeviceOptions device, device_options(invocation));
  device.device = "cpu";
  device.tensor_parallel_size = device.pipeline_parallel_size = 1;
  device.gpu_layers = -1;
  return make_backend(device);
}

Result<ReadyModel> open(const Invocation& invocation, const std::string& name) {
  SUBBYTE_TRY(const DeviceOptions device, device_options(invocation));
  // Choices are said, but that of the CPU where nobody asked and there is nothing else.
  const bool asked = invocation.device.has_value() || device.gpu_layers != -1;
  const auto say = [&invocation, asked](const std::string& choice) {
    if (!asked && !has_gpu()) return;
    Progress(invocation, {}).clear();
    print_notice("--device auto " + choice);
  };
  return ReadyModel::open(name, device, {.make = make_machine, .on_choice = say});
}

Status load(const Invocation& invocation, ReadyModel& ready, LoadOptions options) {
  SUBBYTE_CHECK(check_activations(invocation, ready));
  Progress progress(invocation, "loading");
  options.progress = [&](uint64_t done, uint64_t total) { progress.update_bytes(done, total); };
  return ready.load(options);
}

Status set_context(ReadyModel& ready, int64_t said) {
  ready.context = said > 0 ? said : ready.config.max_positions;
  return check_context(ready.config, ready.context);
}

SessionOptions one_sequence(const std::string& kv_cache_type, int head_bits, int64_t context) {
  return {.context = context,
          .max_sequences = 1,
          .cache_positions = context,
          .cache_type = *find_cache_type(kv_cache_type),
          .head_bits = head_bits,
          .prefix_cache = false};
}

Result<Session> load_session(const Invocation& invocation, ReadyModel ready,
                             std::unique_ptr<const TextSetup> text, SessionOptions options) {
  SUBBYTE_CHECK(check_activations(invocation, ready));
  Progress progress(invocation, "loading");
  options.progress = [&](uint64_t done, uint64_t total) { progress.update_bytes(done, total); };
  return Session::load(std::move(ready), std::move(text), options);
}

void SamplingFlags::add_to(Command command) {
  const std::string group = "Sampling (defaults: generation_config.json, else as given)";
  command.option("--temp,--temperature", wishes_.temperature, "0 is greedy (0.8)").group(group);
  command.option("--top-k", wishes_.top_k, "keep the k most likely tokens, 0 and -1 all (40)")
      .group(group);
  command.option("--top-p", wishes_.top_p, "keep the smallest set with this probability (0.95)")
      .group(group);
  command.option("--min-p", wishes_.min_p, "drop tokens below this share of the best (0.05)")
      .group(group);
  command
      .option("--repeat-penalty,--repetition-penalty", wishes_.repetition_penalty,
              "divide the logits of tokens that occurred (1)")
      .group(group);
  command
      .option("--presence-penalty", wishes_.presence_penalty,
              "take this off the logits of tokens that were generated (0)")
      .group(group);
  command
      .option("--frequency-penalty", wishes_.frequency_penalty,
              "the same for each time that a token was generated (0)")
      .group(group);
  command
      .option("-s,--seed", seed_,
              "of the random numbers: the same seed, the same text; -1: another one each time (0)")
      .value("N")
      .group(group);
}

Result<SamplingDefaults> SamplingFlags::resolve(const SideFiles& files) const {
  Sampling wishes = wishes_;
  if (seed_) {
    SUBBYTE_TRY(wishes.seed, choose_seed(*seed_));
  }
  return read_sampling_defaults(files, wishes);
}

Result<OutputFile> open_output(const std::string& path_or_dash, bool overwrite) {
  if (path_or_dash != "-") {
    std::error_code failure;
    const std::filesystem::path target = std::filesystem::absolute(path_or_dash, failure);
    if (!failure) remove_leftovers_of(target, print_notice);
    return OutputFile::create(path_or_dash, overwrite);
  }
  if (isatty(STDOUT_FILENO) == 0) {
    set_written();
    return OutputFile::standard_output();
  }
  const bool is_of_rank = !is_terminal(stdout);  // which changes ends of lines
  return Error{"usage.output",
               is_of_rank ? "standard output is a terminal that mpirun has made: name a file"
                          : "standard output is a terminal, expected a file or a pipe there"};
}

}  // namespace subbyte::app
