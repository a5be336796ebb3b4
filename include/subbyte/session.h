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
#include <vector>

#include "subbyte/device.h"
#include "subbyte/tokenizer.h"

SUBBYTE_BEGIN_WRAPPED_NAMESPACE

using RequestId = uint64_t;

enum class Role : uint8_t { kSystem, kUser, kAssistant };

/// A message of a chat. Text in it is text, whatever it spells: control tokens come from the chat
/// format of the model alone.
struct Message {
  Role role = Role::kUser;
  std::string content;
  std::optional<std::string> reasoning = {};  // of an assistant, apart from the content
};

/// Effort of reasoning, for models that have such a setting (gpt-oss).
enum class ReasoningEffort : uint8_t { kLow, kMedium, kHigh };

/// A text, tokens or a chat to go on with: one of the first three, and how.
struct Request {
  std::string prompt = {};
  std::vector<TokenId> prompt_tokens = {};
  std::vector<Message> messages = {};
  SpecialTokens special = SpecialTokens::kAsText;  // in a prompt that is a text

  std::optional<bool> thinking = {};  // of a chat: false closes the reasoning before the answer
  std::optional<ReasoningEffort> effort = {};
  std::optional<std::string> date = {};  // that prompts state, as "2025-08-05"; else today

  Sampling sampling = {};
  int64_t max_tokens = -1;                   // -1: until the context is full; 0: the prompt alone
  int64_t min_tokens = 0;                    // before these neither tokens nor texts end the answer
  int64_t num_samples = 1;                   // 1 to 128
  std::vector<std::string> stops = {};       // texts that end the answer and do not belong to it
  std::vector<TokenId> stop_token_ids = {};  // beside those of the model
  bool ignore_eos = false;                   // without those of the model

  /// Alternatives whose log probabilities are wanted, 0 and up, beside that of each token.
  std::optional<int64_t> num_top_logprobs = {};
  /// The same for the tokens of the prompt after the first, by sample 0. The session was opened
  /// with SessionOptions::scores_prompts.
  bool scores_prompt = false;
  /// The next turn of a conversation that the session keeps in its cache, or the first of another:
  /// what its prompt has in common with the turn before is not computed again. One sample. Of all
  /// conversations max_sequences are kept, and the oldest goes where requests want its memory.
  bool is_turn = false;
};

/// The logarithm of the probability of a token, before any penalty, temperature or cut.
struct TokenLogprob {
  TokenId token = 0;
  double logprob = 0;  // natural
};

struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // the most likely first
};

enum class StopReason : uint8_t { kStopToken, kLength, kContextFull, kStopString, kCaller };

/// How a sample ended, and how fast it went.
struct SampleEnd {
  StopReason reason = StopReason::kLength;
  std::optional<TokenId> stop_token;  // with kStopToken
  std::string stop;                   // with kStopString
  int64_t num_tool_calls = 0;         // that the answer has
  int64_t prompt_tokens = 0;          // that were computed
  int64_t generated_tokens = 0;       // with the stop token
  double prefill_seconds = 0;         // from add() to the first token
  double decode_seconds = 0;          // of all later ones
};

/// Parts of an answer; of what is no chat all is kAnswer. kCommentary is a message to a tool where
/// there is a recipient, else a remark on what the model is about to do. kToolCall is a whole call
/// of a function that the request told the model of.
enum class Channel : uint8_t { kReasoning, kCommentary, kAnswer, kToolCall };

/// Text of one channel.
struct Piece {
  Channel channel = Channel::kAnswer;
  std::string recipient;  // a tool, such as "functions.search", or the function; else empty
  std::string text;       // valid UTF-8, not empty; of a call its arguments, an object in JSON
  bool begins_message = false;
  std::string call_id;  // of a call: unlike those of other calls
};

/// The text and tokens that a step adds to one sample.
struct Delta {
  RequestId request = 0;
  int64_t sample = 0;
  std::vector<TokenId> tokens;     // without those that end it
  std::vector<Logprobs> logprobs;  // of these tokens, where they are wanted
  /// Text that became certain: whole characters, nothing of a stop string. It may be of tokens of
  /// steps before.
  std::vector<Piece> pieces;
  std::vector<Logprobs> prompt_logprobs;  // of the next tokens of the prompt, where wanted
  std::optional<SampleEnd> end;           // then nothing comes after it
  std::optional<Error> error;             // an end, too: that of this sample alone

  /// The text of the answer, and of the reasoning, among the pieces.
  std::string text() const { return text_of(Channel::kAnswer); }
  std::string reasoning() const { return text_of(Channel::kReasoning); }
  std::string text_of(Channel channel) const;

  bool is_last() const { return end.has_value() || error.has_value(); }
};

/// A whole sample.
struct Completion {
  std::string text;  // of the answer
  std::string reasoning;
  std::string commentary;
  std::vector<Piece> tool_calls;
  std::vector<TokenId> tokens;
  std::vector<Logprobs> logprobs;
  std::vector<Logprobs> prompt_logprobs;
  SampleEnd end;
};

enum class CacheType : uint8_t { kF32, kF16, kBF16, kE4M3 };

struct SessionOptions {
  DeviceOptions device = {};
  /// Positions of a sample at most, prompt and answer; 0: 4096, or those that the model was made
  /// for where they are fewer.
  int64_t context = 0;
  int64_t max_sequences = 8;               // that run at the same time, 1 to 65536; others wait
  int64_t cache_positions = 0;             // of all together; 0: a context for each sequence
  CacheType cache_type = CacheType::kF16;  // of keys and values
  int64_t step_tokens = 0;      // that a step computes at most; 0: what suits the machine
  int head_bits = 16;           // 4 or 8: embedding and head are quantized while they are loaded
  bool scores_prompts = false;  // keeps memory for requests that score their prompts
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

struct Perplexity {
  double per_token = 0;
  double nats = 0;     // the sum of the negative log likelihoods
  int64_t scored = 0;  // tokens that were predicted
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

  const ModelInfo& model() const;
  const Tokenizer& tokenizer() const;  // a copy keeps the whole model in memory
  int64_t context() const;             // positions of a sample at most

  /// Puts a request at the end of the queue; nothing is computed. Codes: session.prompt (not one of
  /// prompt, tokens and messages), scheduler.request,
  /// generate.empty_prompt, sampling.range, model.token_range, model.context_full, chat.*.
  Result<RequestId> add(const Request& request);
  /// One step and what came of it, in the order of the requests and their samples; nothing where
  /// idle(), and of steps that compute prompts alone. An error is one of the machine: the requests
  /// stay as they were.
  Result<std::vector<Delta>> step();
  /// Ends a request and gives its memory back: the last deltas of its samples, with reason kCaller.
  std::vector<Delta> cancel(RequestId request);
  /// Says whether all requests have ended.
  bool idle() const;

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

  struct State;  // of the library

 private:
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

SUBBYTE_END_NAMESPACE
