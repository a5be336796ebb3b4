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
#include "session/session.h"

namespace subbyte::app {

/// The options that commands share.
struct Invocation {
  std::optional<std::string> device;  // none: auto, without a word where there is no GPU
  int threads = 0;
  bool pin_threads = false;
  std::string activations = "f32";
  bool batch_invariant = false;
  int tensor_parallel = 1;
  int pipeline_parallel = 1;
  std::string gpu_layers = "all";
  bool no_progress = false;
  bool quiet = false;
  bool follow_links = false;
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
  ~Progress() { clear(); }

  static bool is_shown(const Invocation& invocation);

  /// Clears the line, for something else that is said there.
  void clear();
  /// `note` stands after the bar, and before the time that is left, once that is known. Redraws at
  /// most 20 times a second.
  void update(uint64_t done, uint64_t total, const std::string& note = {});
  /// The same for bytes, with MB/s as the note.
  void update_bytes(uint64_t done, uint64_t total);

 private:
  void begin(uint64_t done);
  std::string time_left(uint64_t done, uint64_t total) const;

  bool shown_;
  std::string title_;
  double started_ = 0;  // when something was told first
  uint64_t begun_ = 0;  // and how much was done then
  double drawn_ = 0;
};

/// The values of --activations.
inline const std::map<std::string, Activations> kActivations = {{"f32", Activations::kF32},
                                                                {"bf16", Activations::kBF16},
                                                                {"int8", Activations::kInt8},
                                                                {"mxfp8", Activations::kMxfp8},
                                                                {"fp8", Activations::kFp8}};

/// The option --kv-cache-type, and how its values are stored.
void add_kv_cache_type(Command command, std::string& type);
Element kv_element(const std::string& type);

/// Says what of earlier requests is known to later ones.
class PrefixFlags {
 public:
  void add_to(Command command);
  void set(SessionOptions& options) const;
  /// Says whether the memory for states was said.
  bool size_states() const { return state_bytes_.has_value(); }

 private:
  bool are_unknown_ = false;
  std::optional<int64_t> state_bytes_;
};

/// Says how large the cache is that requests share.
class CacheFlags {
 public:
  void add_to(Command command, const std::string& group);
  /// Says whether a size was said, and not only a share that it may have.
  bool is_given() const { return positions_ || bytes_; }
  /// Positions of the cache of a session with these options; unless something was said, what its
  /// sequences may take, of each at most 4096.
  Result<int64_t> positions(const ReadyModel& ready, const SessionOptions& options) const;

 private:
  std::optional<int64_t> positions_;
  std::optional<int64_t> bytes_;
  std::optional<double> share_;
};

/// The option --max-num-batched-tokens; 0: what suits the machine.
void add_step_tokens(Command command, int64_t& tokens, const std::string& group);

/// Threads from --threads or SUBBYTE_THREADS, pinned by --pin or SUBBYTE_PIN.
Result<std::shared_ptr<Executor>> create_host(const Invocation& invocation);
/// Options for make_backend() and list_devices(): threads as above, kernels from SUBBYTE_ISA.
Result<DeviceOptions> device_options(const Invocation& invocation);
/// The processors of this machine whatever --device says, for commands that only look at a model.
Result<std::unique_ptr<Backend>> host_backend(const Invocation& invocation);
/// ReadyModel::open() with threads as above, kernels from SUBBYTE_ISA; what --device auto takes is
/// said on stderr.
Result<ReadyModel> open(const Invocation& invocation, const std::string& name);
/// ReadyModel::load() with `options` but for the progress bar.
Status load(const Invocation& invocation, ReadyModel& ready, LoadOptions options);
/// The context that requests may have: `said`, or where that is 0 all positions that the model was
/// made for. Code usage.context.
Status set_context(ReadyModel& ready, int64_t said);
/// A session for one sequence at a time, to which none before it is known; the type is a value of
/// --kv-cache-type.
SessionOptions one_sequence(const std::string& kv_cache_type, int head_bits, int64_t context);
/// Session::load() with the same, and a progress bar.
Result<Session> load_session(const Invocation& invocation, ReadyModel ready,
                             std::unique_ptr<const TextSetup> text, SessionOptions options);

/// Sampling options on a command line; what is not given comes from the model or the defaults.
class SamplingFlags {
 public:
  void add_to(Command command);
  /// Codes: usage.seed, those of read_sampling_defaults.
  Result<SamplingDefaults> resolve(const SideFiles& files) const;
  bool has_seed() const { return seed_.has_value(); }

 private:
  Sampling wishes_;
  std::optional<std::string> seed_;
};

/// The output `path_or_dash`: a file beside which what earlier runs left of it is removed, or for
/// "-" the standard output unless that is a terminal. Codes: usage.output, those of OutputFile.
Result<OutputFile> open_output(const std::string& path_or_dash, bool overwrite);

}  // namespace subbyte::app
