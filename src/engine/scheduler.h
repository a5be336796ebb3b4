#pragma once
// Many requests at once on one model: which tokens of which sequences each step computes.
//
//   add() -> waiting --admit--> running --end--> gone     a step has the last token of every
//               ^                  |                      running sequence and, in what is left of
//               +---- no pages ----+                      its tokens, chunks of prompts
//
// Continuous batching: who ends gives its pages and its place to who waits, in the next step. The
// lower the priority the sooner, and then the older. What is left of a step's tokens, or what
// max_slowdown leaves of them (engine/step_costs.h), goes to prompts, half of it to the first and
// the rest to those that are nearly done, so that a short one does not wait for a long one, and a
// long one goes on.
//
// A sequence takes pages as it grows. When the pool has none left, prefixes that no request has go
// (ops/prefix_cache.h); then the last sequence gives its pages to those prefixes, waits, and
// computes later what has gone meanwhile; it keeps what it has generated and its random numbers,
// so nothing of it is lost and nothing fails. The first always goes on.
//
// A prompt begins with the longest prefix that is known. Of those that begin alike the first
// computes what they have in common, and those after it wait for it, while others have their places
// in steps until they end; samples of a request are such.
// In batch-invariant mode each sample has the tokens of a run alone, bit for bit.
//
// Where the machine computes several steps at once, as each of its stages has one, those that
// answer are divided among them, and a sample is in one of them. What follows is of other machines.
//
// Where the machine takes a second step before the first is finished, and the tokens of that one
// follow from the first alone, it has it (engine/step_queue.h): tokens are the same, and who comes
// meanwhile waits a step longer. A sample whose next token needs the host is left out. What is
// computed for a sample that ends in the first is dropped.
//
// One thread at a time uses a scheduler. A server that streams calls step() in one thread, hands
// out its events, and adds and cancels between two steps.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/generation.h"
#include "engine/logprobs.h"
#include "engine/step_costs.h"
#include "engine/step_queue.h"
#include "ops/prefix_cache.h"

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
  int64_t priority = 0;      // the lower the sooner
  std::string cache_salt{};  // prefixes are shared with requests of the same alone
  /// Tokens of the prompt that the next one of a conversation is likely to begin with.
  int64_t boundary = 0;
};

inline constexpr int64_t kMaxSamples = 128;
/// Tokens of prompts that are scored in one step: as many rows of logits, 77 MB of 150,000 each.
inline constexpr int64_t kScoredPromptTokens = 128;

/// A token of a sample, its end, or both; before those, how likely the next tokens of the prompt
/// are. `error` is an end, too: that of this sample alone.
struct SampleEvent {
  RequestId request = 0;
  int64_t sample = 0;
  int64_t cached_tokens = 0;  // of the prompt, that were not computed for it
  std::optional<int32_t> token;
  std::optional<Logprobs> logprobs;  // with a token, where they are wanted
  std::vector<Logprobs> prompt_logprobs;
  std::optional<StopReason> stop;
  std::optional<int32_t> stop_token;  // with kStopToken
  std::optional<Error> error;

  bool is_end() const { return stop.has_value() || error.has_value(); }
};

/// Tokens of prompts that texts before had, too, and of those as many as pages were there for; a
/// state was there for the cached ones.
struct KnownTokens {
  int64_t in_common = 0;
  int64_t of_pages = 0;
};

struct SchedulerOptions {
  int64_t max_sequences = 8;  // that a step has
  int64_t step_tokens = 512;  // of a step; more than max_sequences, else prompts go token by token
  bool shares_prefixes = true;  // false: only samples of a request do
  /// Times as long as without them that a step may take for the prompts in it, where samples answer
  /// meanwhile and one of the prompts is longer than a step (StepCosts); 0: as long as it takes.
  double max_slowdown = 0;
  std::function<double()> seconds{};  // the time; empty: that of the machine
};

class Scheduler {
 public:
  /// All must outlive this. Nothing else takes pages of the pool meanwhile, or uses the backend
  /// unless idle().
  Scheduler(const Model& model, Backend& backend, KvPool& pool, const SchedulerOptions& options)
      : model_(model),
        backend_(backend),
        pool_(pool),
        options_(options),
        prefixes_(pool),
        steps_(model, backend) {}

  /// Puts a request at the end of the queue; nothing is computed. Codes: scheduler.request for
  /// numbers out of range, generate.empty_prompt, model.token_range, sampling.range,
  /// model.context_full for a prompt that leaves no room for a token in max_length or in the pool.
  Result<RequestId> add(const ScheduledRequest& request);

  /// Ends all samples of a request, or one of them: no event of it comes any more, and its pages
  /// are those of prefixes at once. Nothing happens where it has ended. The last one of all waits
  /// for the step that is on its way.
  void cancel(RequestId request);
  void cancel(RequestId request, int64_t sample);

  /// One step and what came of it, in the order of the requests and their samples; nothing where
  /// idle(), and of a step whose samples have all ended meanwhile. An error is one of the machine:
  /// those of Model::forward. The samples stay as they were.
  Result<std::vector<SampleEvent>> step();

  /// Error file.changed when the weights were written to since they were loaded; then no prefix is
  /// known any more. A sample that ends by itself was checked; who ends one for a reason of his own
  /// asks here.
  Status verify_unchanged();

  /// Forgets all prefixes that no request has.
  void forget_prefixes() { prefixes_.clear(); }
  const PrefixCounts& prefix_counts() const { return prefixes_.counts(); }

  bool idle() const { return running_.empty() && waiting_.empty(); }
  /// Says whether one more sample would begin at once, but for pages.
  bool has_place() const { return has_place(std::ssize(waiting_)); }
  int64_t max_sequences() const { return options_.max_sequences; }
  /// Samples that are computed, and the others: those that wait for what another one computes, too.
  int64_t num_running() const { return std::ssize(running_) - num_awaiting(); }
  int64_t num_waiting() const { return std::ssize(waiting_) + num_awaiting(); }
  /// Times that a sequence gave its pages to one before it.
  int64_t num_preemptions() const { return num_preemptions_; }
  /// Tokens that steps have computed, those computed again included, without those of steps that
  /// were taken back.
  int64_t num_computed_tokens() const { return num_computed_tokens_; }
  /// Tokens of prompts that have begun to be computed, and those of them that were known.
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }
  int64_t num_cached_tokens() const { return num_cached_tokens_; }
  const KnownTokens& known_tokens() const { return known_; }
  /// Steps that were taken back, or whose samples had all ended before they were finished, and
  /// tokens that other steps computed for samples that had ended.
  int64_t num_discarded_steps() const { return num_discarded_steps_; }
  int64_t num_discarded_tokens() const { return num_discarded_tokens_; }

 private:
  /// Who comes before whom.
  struct Place {
    int64_t priority = 0;
    RequestId request = 0;
    int64_t index = 0;
    auto operator<=>(const Place&) const = default;
  };

  struct Sample {
    Sample(KvPool& pool, const Place& at, int64_t max_length, const ScheduledRequest& scheduled,
           const GenerateOptions& options)
        : place(at),
          num_top_logprobs(scheduled.num_top_logprobs),
          scores_prompt(scheduled.scores_prompt && at.index == 0),
          is_shared(scheduled.num_samples > 1),
          boundary(scheduled.boundary),
          kind{.salt = scheduled.cache_salt},
          sequence(pool, max_length),
          generation(sequence, scheduled.prompt, options) {}
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
    /// Tokens of its prompt, without those that it began with where they are known.
    int64_t tokens_to_compute() const {
      return generation.prompt_tokens() - std::max<int64_t>(num_cached, 0);
    }
    /// Positions that no step on its way is to compute.
    int64_t finished_length() const { return sequence.length() - on_its_way; }

    Place place;
    std::optional<int64_t> num_top_logprobs;
    bool scores_prompt;
    bool is_shared;              // other samples have its prompt
    int64_t boundary;            // ScheduledRequest
    TextKind kind;               // whose prefixes it shares
    int64_t num_scored = 0;      // tokens of the prompt that the next one is scored of
    int64_t num_cached = -1;     // tokens that it began with; -1: it has not begun
    int64_t num_kept = 0;        // positions that others may begin with
    PrefixCache::Found found{};  // when it began
    /// Where steps have to end, as prefixes are to be shared from there.
    std::set<int64_t> ends{};
    bool is_in_prompt = false;  // its last token that is known is not computed yet
    bool has_place = false;     // in steps
    /// Who computes a prefix of it, and how many positions; 0: nobody.
    Place leader{};
    int64_t num_awaited = 0;
    int64_t on_its_way = 0;  // tokens that steps on their way compute
    int64_t choice = 0;      // its place among those of the last step that it has one in
    Sequence sequence;
    Generation generation;
  };
  using Samples = std::map<Place, Sample>;  // a generation knows where its sequence is
  struct Request {
    int64_t priority = 0;
    int64_t num_samples = 0;
    int64_t num_left = 0;
  };
  struct Step {
    std::vector<Part> parts;
    std::vector<Sample*> owners;  // of the parts; nullptr: it has ended
    StepLoad load;
    double begin = 0;  // seconds
  };
  /// Tokens of a sample in a step.
  struct Share {
    Sample* sample = nullptr;
    int64_t most = 0;
    int64_t tokens = 0;
    bool is_prompt = false;
  };

  Status check(const ScheduledRequest& request, int64_t max_length) const;
  bool has_place(int64_t num_before) const;
  void admit();
  void begin(Sample& sample);
  void plan_ends(Sample& sample) const;
  bool still_lacks_room(const Sample& next);
  void follow(Sample& sample, int64_t known);
  bool is_led(const Sample& sample) const;
  int64_t num_awaiting() const;

  Status enqueue_steps();
  Status push(Step step);
  double now() const;
  void measure(const Step& done, double asked);
  Step next_step(bool is_ahead);
  bool takes_part(Sample& sample, bool is_ahead);
  int64_t most_tokens(const Sample& sample, int64_t rows_left) const;
  std::vector<Share> shares(bool is_ahead);
  int64_t most_prompt_tokens(std::span<Share* const> prompts, int64_t num_answering);
  void leave_to_others(std::vector<Share>& shares, int64_t num_answering) const;
  void give_tokens(std::vector<Share>& shares, int64_t num_answering);
  Part next_part(Sample& sample, int64_t tokens);
  bool make_room(const Sequence& sequence, int64_t tokens, int64_t spare = 0);
  bool reserve(Sample& sample, int64_t tokens);
  void preempt(Sample& sample);

  void keep(Sample& sample, bool has_choice);
  void keep_end(Sample& sample);
  std::optional<SampleEvent> take(Sample& sample, const Part& part, int32_t token,
                                  int64_t first_row);
  SampleEvent accept(Sample& sample, const Part& part, int32_t token,
                     std::span<const float> logits);
  std::vector<Logprobs> score_prompt(Sample& sample, const Part& part, int64_t first_row) const;
  Error locate_not_finite(Sample& sample, int64_t tokens, const Error& error);
  void clear_steps();
  Sample* find(const Place& place);
  void end(const Place& place);
  void erase(const Place& place);

  const Model& model_;
  Backend& backend_;
  KvPool& pool_;
  SchedulerOptions options_;
  PrefixCache prefixes_;
  Samples running_;
  Samples waiting_;
  std::unordered_map<RequestId, Request> requests_;
  RequestId next_request_ = 1;
  int64_t num_preemptions_ = 0;
  int64_t num_computed_tokens_ = 0;
  int64_t num_prompt_tokens_ = 0;
  int64_t num_cached_tokens_ = 0;
  KnownTokens known_;
  int64_t num_discarded_steps_ = 0;
  int64_t num_discarded_tokens_ = 0;
  Place lacking_{};            // who waited first and lacked pages when it was to begin
  std::vector<int64_t> held_;  // units of each group that sequences had then, or later
  bool lacks_room_ = false;    // a step ahead left out a sample for want of pages
  Logits logits_;
  StepQueue steps_;             // ends before the sequences of the samples
  std::deque<Step> submitted_;  // the same steps; their parts are there
  StepCosts costs_;
  double last_end_ = 0;       // of a step, in seconds
  bool is_end_seen_ = false;  // it was waited for
};

}  // namespace subbyte
