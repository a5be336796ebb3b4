#pragma once
// What all commands share. A command is one file with `void add_<name>(Program&, Invocation&)`,
// which declares its options and what is to run, and one line in commands.def. Data goes to stdout,
// everything else to stderr.

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "app/arguments.h"
#include "base/output_file.h"
#include "base/status.h"
#include "devices/devices.h"
#include "engine/sampler.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace subbyte::app {

/// The options that commands share.
struct Invocation {
  std::optional<std::string> device;  // none: auto, without a word where there is no GPU
  int threads = 0;
  bool pin_threads = false;
  std::string activations = "f32";
  bool batch_invariant = false;
  bool no_progress = false;
  bool quiet = false;
  std::string color = "auto";
};

/// The option --head-bits: 4, 8 or 16.
void add_head_bits(Command command, int& bits);

/// A progress bar on stderr: only on a terminal, and not with --no-progress or --quiet.
class Progress {
 public:
  Progress(const Invocation& invocation, std::string title);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // clears the line

  /// `note` stands after the bar. Redraws at most 20 times a second.
  void update(uint64_t done, uint64_t total, const std::string& note = {});
  /// The same for bytes, with MB/s as the note.
  void update_bytes(uint64_t done, uint64_t total);

 private:
  bool shown_;
  std::string title_;
  double started_;
  double drawn_ = 0;
};

/// Everything that a command with a model needs.
struct LoadedModel {
  std::filesystem::path path;
  std::filesystem::path directory;  // of tokenizer.json and generation_config.json
  ModelConfig config;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;  // once it is loaded
  double load_seconds = 0;
};

/// The values of --activations.
inline const std::map<std::string, Activations> kActivations = {{"f32", Activations::kF32},
                                                                {"bf16", Activations::kBF16},
                                                                {"int8", Activations::kInt8},
                                                                {"mxfp8", Activations::kMxfp8}};

/// The values of --kv-cache-type.
inline const std::map<std::string, KvType> kKvTypes = {{"f32", KvType::kF32},
                                                       {"f16", KvType::kF16},
                                                       {"bf16", KvType::kBF16},
                                                       {"fp8", KvType::kE4M3},
                                                       {"fp8_e4m3", KvType::kE4M3}};

/// The option --kv-cache-type.
void add_kv_cache_type(Command command, std::string& type);

/// Threads from --threads or SUBBYTE_THREADS, pinned by --pin or SUBBYTE_PIN.
Result<std::unique_ptr<Executor>> create_host(const Invocation& invocation);
/// What make_backend() and list_devices() are told: threads as above, kernels from SUBBYTE_ISA. The
/// names in it belong to the invocation and the environment.
Result<DeviceOptions> device_options(const Invocation& invocation);
/// The processors of this machine whatever --device says, for commands that only look at a model.
Result<std::unique_ptr<Backend>> host_backend(const Invocation& invocation);
/// Finds the model and makes the machine: what can be refused before the sizes of cache and steps
/// are known. Threads as above, kernels from SUBBYTE_ISA.
Result<LoadedModel> open(const Invocation& invocation, const std::string& name);
/// Loads the weights; `options` but for the progress bar. With --device auto a model that the GPU
/// does not take goes to the CPU, which is said on stderr.
Status load(const Invocation& invocation, LoadedModel& loaded, LoadOptions options);
/// The same, and a cache of `positions` for one sequence whose prompts come in chunks.
Result<KvPool> load_with_cache(const Invocation& invocation, LoadedModel& loaded, int head_bits,
                               const std::string& kv_cache_type, int64_t positions);
/// Whether a model has a tokenizer. Code file.not_found, which says what to do.
Status check_tokenizer(const std::filesystem::path& directory);
/// Codes: that of check_tokenizer, those of Tokenizer::load.
Result<Tokenizer> load_tokenizer(const std::filesystem::path& directory);

/// Sampling options on a command line; what is not given comes from the model or the defaults.
class SamplingFlags {
 public:
  void add_to(Command command);
  /// Codes: usage.seed, those of read_generation_config and check_sampling.
  Result<SamplingDefaults> resolve(const std::filesystem::path& directory) const;

 private:
  SamplingWishes wishes_;
  std::optional<std::string> seed_;
};

/// The output `path_or_dash`: a file beside which what earlier runs left of it is removed, or for
/// "-" the standard output unless that is a terminal. Codes: usage.output, those of OutputFile.
Result<OutputFile> open_output(const std::string& path_or_dash, bool overwrite);

/// Refuses a context that is longer than the model was made for. Code usage.context.
Status check_context(const ModelConfig& config, int64_t positions);

}  // namespace subbyte::app
