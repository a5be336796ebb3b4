#pragma once
// Many requests at once on one model: which tokens of which sequences each step computes.
//
//   add() -> waiting --admit--> running --end--> gone     a step has the last token of every
//               ^                  |                      running sequence and, in what is left of
//               +---- no pages ----+                      its tokens, chunks of prompts, the
//                                                         oldest first
//
// Continuous batching: who ends gives its pages and its place to who waits, in the next step. A
// sequence takes pages as it grows. When the pool has none left, the caller gives back pages that
// no request has; then the youngest sequence gives its pages back, waits, and computes its tokens
// once more later; it keeps what it has generated and its random numbers, so nothing of it is lost
// and nothing fails. The oldest always goes on.
//
// The samples of a request share the pages of its prompt, which the first of them computes. In
// batch-invariant mode each sample has the tokens of a run alone, bit for bit.
//
// Where the machine takes a second step before the first is finished, and every token of that one
// follows from the first alone, it has it (engine/step_queue.h): tokens are the same, and who comes
// meanwhile waits a step longer. What is computed for a sample that ends in the first is dropped.
//
// One thread at a time uses a scheduler. A server that streams calls step() in one thread, hands
// out its events, and adds and cancels between two steps.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "engine/generation.h"
#include "engine/logprobs.h"
#include "engine/step_queue.h"

namespace subbyte {

struct ScheduledRequest {
  std::vector<int32_t> prompt;  // at least one token
  GenerateOptions options;      // max_tokens is not 0; sample i has the seed of sample 0 plus i
  int64_t num_samples = 1;      // 1 to kMaxSamples
  int64_t max_length = 0;       // positions of a sample at most; 0: what the model was made for
  /// Alternatives whose log probabilities are wanted, beside that of the token; nullopt: none
  /// at all, which costs nothing.
  std::optional<int64_t> num_top_logprobs{};
  /// The same for the tokens of the prompt after the first: events of sample 0 bring them.
  bool scores_prompt = false;
  /// The caller's sequence, of the same pool, that holds the first tokens of the prompt, fewer than
  /// all: those are not computed again. It is nobody else's until the request has ended, and holds
  /// then what its length says of the prompt and the answer. For one sample, without scores.
  Sequence* sequence = nullptr;
};

inline constexpr int64_t kMaxSamples = 128;
/// Tokens of prompts that are scored in one step: as many rows of logits, 77 MB of 150,000 each.
inline constexpr int64_t kScoredPromptTokens = 128;

/// A token of a sample, its end, or both; before those, how likely the next tokens of the prompt
/// are. `error` is an end, too: that of this sample alone.
struct SampleEvent {
  RequestId request = 0;
  int64_t sample = 0;
  std::optional<int32_t> token;
  std::optional<Logprobs> logprobs;  // with a token, where they are wanted
  std::vector<Logprobs> prompt_logprobs;
  std::optional<StopReason> stop;
  std::optional<int32_t> stop_token;  // with kStopToken
  std::optional<Error> error;

  bool is_end() const { return stop.has_value() || error.has_value(); }
};

struct SchedulerOptions {
  int64_t max_sequences = 8;  // that run at the same time
  int64_t step_tokens = 512;  // of a step; more than max_sequences, else prompts go token by token
  /// Gives pages of the pool back that no request has; false when there are none any more.
  std::function<bool()> give_back = nullptr;
};

class Scheduler {
 public:
  /// All must outlive this. Nothing else takes pages of the pool meanwhile, but for what
  /// `give_back` gives back, or uses the backend unless idle().
  Scheduler(const Model& model, Backend& backend, KvPool& pool, const SchedulerOptions& options)
      : model_(model), backend_(backend), pool_(pool), options_(options), steps_(model, backend) {}

  /// Puts a request at the end of the queue; nothing is computed. Codes: scheduler.request for
  /// numbers out of range, generate.empty_prompt, model.token_range, sampling.range,
  /// model.context_full for a prompt that leaves no room for a token in max_length or in the pool.
  Result<RequestId> add(const ScheduledRequest& request);

  /// Ends all samples of a request, or one of them: no event of it comes any more, and its pages
  /// are free at once. Nothing happens where it has ended. The last one of all waits for the step
  /// that is on its way.
  void cancel(RequestId request);
  void cancel(RequestId request, int64_t sample);

  /// One step and what came of it, in the order of the requests and their samples; nothing where
  /// idle(), and of a step whose samples have all ended meanwhile. An error is one of the machine:
  /// those of Model::forward. The samples stay as they were.
  Result<std::vector<SampleEvent>> step();

  /// Error file.changed when the weights were written to since they were loaded. A sample that ends
  /// by itself was checked; who ends one for a reason of his own asks here.
  Status verify_unchanged() const { return model_.verify_unchanged(); }

  bool idle() const { return samples_.empty(); }
  int64_t max_sequences() const { return options_.max_sequences; }
  int64_t num_running() const { return num_running_; }
  int64_t num_waiting() const { return std::ssize(samples_) - num_running_; }
  /// Times that a sequence gave its pages to an older one.
  int64_t num_preemptions() const { return num_preemptions_; }
  /// Tokens that steps have computed, those computed again included, without those of steps that
  /// were taken back.
  int64_t num_computed_tokens() const { return num_computed_tokens_; }

 private:
  struct Sample {
    Sample(RequestId id, int64_t number, KvPool& pool, int64_t max_length,
           const ScheduledRequest& scheduled, const GenerateOptions& options)
        : request(id),
          index(number),
          num_top_logprobs(scheduled.num_top_logprobs),
          scores_prompt(scheduled.scores_prompt && number == 0),
          own_sequence(pool, max_length),
          sequence(scheduled.sequence != nullptr ? *scheduled.sequence : own_sequence),
          generation(sequence, scheduled.prompt, options, sequence.length()) {}
    Sample(const Sample&) = delete;
    Sample& operator=(const Sample&) = delete;

    /// Rows of logits that the next `tokens` tokens are wanted for to score the prompt: those of
    /// the last ones, without what a step before has given.
    int64_t rows_to_score(int64_t tokens) const {
      return is_scored() ? 0 : std::max<int64_t>(sequence.length() + tokens - num_scored, 0);
    }
    /// Says whether nothing of the prompt is still to be scored.
    bool is_scored() const {
      return !scores_prompt || num_scored + 1 >= generation.prompt_tokens();
    }

    /// Says whether the cache holds all of the prompt that its samples share.
    bool has_prompt() const { return had_prompt(0); }
    /// The same before the last `tokens` tokens.
    bool had_prompt(int64_t tokens) const {
      return sequence.length() - tokens + 1 >= generation.prompt_tokens();
    }

    RequestId request;
    int64_t index;
    std::optional<int64_t> num_top_logprobs;
    bool scores_prompt;
    int64_t num_scored = 0;  // tokens of the prompt that the next one is scored of
    Sequence own_sequence;
    Sequence& sequence;  // that one, or the caller's
    Generation generation;
    bool is_running = false;
  };
  using Samples = std::list<Sample>;  // the oldest first; a generation knows where its sequence is

  Status check(const ScheduledRequest& request, int64_t max_length) const;
  void admit();
  bool waits_for_prompt(const Sample& sample) const;
  bool keeps_prompt(const Sample& sample) const;
  bool has_pages_for(const Sample& sample) const;
  using Owners = std::vector<Sample*>;  // of the parts of a step; nullptr: it has ended

  /// One step on its way, or two.
  Status enqueue_steps();
  std::vector<Part> next_parts(Owners& owners);
  bool can_go_ahead();
  std::vector<Part> parts_ahead();
  bool give_back() const { return options_.give_back && options_.give_back(); }
  bool reserve_of_nobody(Sample& sample, int64_t tokens) const;
  bool reserve(Sample& sample, int64_t tokens);
  void preempt(Sample& sample);
  void share_prompt(const Sample& from);
  SampleEvent accept(Sample& sample, const Part& part, int32_t token,
                     std::span<const float> logits);
  std::vector<Logprobs> score_prompt(Sample& sample, const Part& part, int64_t first_row) const;
  Error locate_not_finite(Sample& sample, int64_t tokens, const Error& error);
  void clear_steps();
  Samples::iterator find(const Sample& sample);
  Samples::iterator erase(Samples::iterator sample);

  const Model& model_;
  Backend& backend_;
  KvPool& pool_;
  SchedulerOptions options_;
  Samples samples_;
  RequestId next_request_ = 1;
  int64_t num_running_ = 0;
  int64_t num_preemptions_ = 0;
  int64_t num_computed_tokens_ = 0;
  Logits logits_;
  StepQueue steps_;            // ends before the sequences of the samples
  std::deque<Owners> owners_;  // of the parts of each
};

}  // namespace subbyte
