#pragma once
// A model that answers many requests at once, step by step.
//
//   Session::open(model) -> add(request) ... -> step() -> deltas -> step() -> ... -> idle()
//                                      ^                    |
//                                      +--- add, cancel ----+
//
// generate() is that loop for who wants the whole answers.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "subbyte/answer.h"
#include "subbyte/device.h"
#include "subbyte/request.h"

namespace subbyte {  // parts of a session, of the library's own layers
class KvPool;
class Scheduler;
struct PreparedRequest;
struct ReadyModel;
struct TextSetup;
}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

/// How keys and values are stored; kE4M3 with scales.
enum class CacheType : uint8_t { kF32, kF16, kBF16, kE4M3 };

/// The type of a name: "f32", "f16", "bf16"; "fp8", "fp8_e4m3" and "e4m3" are kE4M3.
std::optional<CacheType> find_cache_type(std::string_view name);
/// Those that commands have for it, in alphabetical order.
std::vector<std::string> cache_type_names();

struct SessionOptions {
  DeviceOptions device = {};
  /// Positions of a sample at most, prompt and answer; 0: 4096, or those that the model was made
  /// for where they are fewer.
  int64_t context = 0;
  int64_t max_sequences = 8;  // that run at the same time, 1 to 65536; others wait
  /// That all share; 0: a context for each sequence. More than the memory of the host has room for
  /// is refused (usage.cache_memory).
  int64_t cache_positions = 0;
  CacheType cache_type = CacheType::kF16;
  int64_t step_tokens = 0;  // that a step computes at most; 0: what suits the machine
  /// Times as long as without them that a step may take for the prompts in it, above 1, where
  /// samples answer meanwhile and one of the prompts is longer than step_tokens: answers go on, and
  /// prompts wait longer. With n answers and m prompts 1 + (max_slowdown - 1)(n + m) / n times.
  /// 0: as long as it takes.
  double max_slowdown = 0;
  int head_bits = 16;           // 4 or 8: embedding and head are quantized while they are loaded
  bool scores_prompts = false;  // keeps memory for requests that score their prompts
  /// Keeps what requests begin with in the cache while there is room, so that it is computed once.
  /// False: samples of a request share their prompt alone.
  bool prefix_cache = true;
  /// Bytes for states of recurrent layers from where later requests go on, beside those of the
  /// requests that run; -1: a quarter of the cache. Other models have none.
  int64_t state_cache_bytes = -1;
  /// For what requests leave open, before what the model's generation_config.json says.
  Sampling sampling = {};
  /// Messages are put into this template instead of the model's own, unless it is empty.
  std::string chat_template = {};
  /// Called while loading with the bytes read so far and in all, and told once what "auto" took.
  std::function<void(uint64_t done, uint64_t total)> progress = {};
  std::function<void(const std::string& choice)> on_device = {};
};

/// Facts of a model, from config.json.
struct ModelInfo {
  std::string type;  // "qwen3"
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
  int64_t weight_bytes = 0;          // in memory
  std::vector<TokenId> stop_tokens;  // that end an answer
  std::filesystem::path directory;   // of its files
  std::string device;                // a description of the machine that it runs on
};

/// A loaded model with its cache. One thread at a time uses it, and several sessions share nothing.
class Session {
 public:
  /// Opens and loads a model: a directory, a model file of OrinMLLM, or "org/name[@revision]" in
  /// the cache of Hugging Face. Codes: model.*, config.*, file.*, safetensors.*, import.*,
  /// tokenizer.*, device.*, isa.*, cuda.*, memory, memory.device, session.size, usage.context.
  static Result<Session> open(const std::filesystem::path& model,
                              const SessionOptions& options = {});

  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  ModelInfo model() const;
  const Tokenizer& tokenizer() const;
  int64_t context() const;  // positions of a sample at most

  /// Puts a request at the end of the queue; nothing is computed. Codes: session.prompt (not one of
  /// prompt, tokens and messages), scheduler.request,
  /// generate.empty_prompt, sampling.range, model.token_range, model.context_full, chat.*.
  Result<RequestId> add(const Request& request);
  /// The same for a prompt that encode() has made tokens of.
  Result<RequestId> add(const Request& request, std::vector<TokenId> prompt);
  /// One step and what came of it, in the order of the requests and their samples; nothing where
  /// idle(), and of steps that compute prompts alone. An error is one of the machine: the requests
  /// stay as they were, and may be cancelled.
  Result<std::vector<Delta>> step();
  /// Ends a request; what it has computed stays known as that of one that ends by itself does.
  /// The last deltas of its samples that had not ended, with text that was held back and the reason
  /// kCaller, or error file.changed when the weights were written to since they were loaded; none
  /// where it has ended.
  std::vector<Delta> cancel(RequestId request);
  /// Says whether all requests have ended.
  bool idle() const;

  /// Forgets all that requests begin with, but what those that run have.
  void forget();

  /// Answers one request of one sample. `on_delta`, if there is one, is called as it comes; false
  /// ends the answer, and it throws nothing. Codes: those of add and step, that of the sample,
  /// session.busy while other requests run, session.samples for several of them.
  Result<Completion> generate(const Request& request,
                              const std::function<bool(const Delta& delta)>& on_delta = nullptr);
  /// Answers several requests at the same time: all samples of the first, of the second, ...
  /// The first error ends all of them.
  Result<std::vector<Completion>> generate_all(std::span<const Request> requests);

  /// The tokens that a request goes on with, for their number and for logs.
  Result<std::vector<TokenId>> encode(const Request& request) const;

  /// Perplexity of tokens in windows that do not overlap; the first of each is not scored, and a
  /// last one of one token is left out. Codes: perplexity.too_short, perplexity.window (below 2),
  /// session.busy, usage.context.
  Result<Perplexity> perplexity(std::span<const TokenId> tokens, int64_t window = 512);
  /// Logits after each token: [tokens][vocab_size]. Codes: session.busy, model.*, kv.memory,
  /// logits.not_finite.
  Result<std::vector<float>> logits(std::span<const TokenId> tokens);

  // What follows is of the library.

  /// The second half of open(): loads a model that is open; `text` stays where it is. Codes:
  /// session.size for a context or max_sequences below 1, or a cache of fewer positions than a
  /// context; those of ReadyModel::load and Model::make_kv_pool; memory where the machine has too
  /// little.
  static Result<Session> load(ReadyModel opened, std::shared_ptr<const TextSetup> text,
                              const SessionOptions& options);
  /// Puts a request that TextSetup::prepare() has seen at the end of the queue: other threads may
  /// have done that, which is all that takes time. Codes: those of Scheduler::add.
  Result<RequestId> add(const Request& request, PreparedRequest prepared);
  /// The parts that it was made of, and the state of its scheduler.
  const ReadyModel& ready() const;
  const TextSetup& text() const;
  const std::shared_ptr<const TextSetup>& shared_text() const;
  const KvPool& cache() const;
  const Scheduler& scheduler() const;

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

SUBBYTE_END_NAMESPACE
