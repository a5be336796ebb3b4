#pragma once
// A model that answers many requests at once, step by step: what makes it ready, its cache, its
// scheduler (engine/scheduler.h) and the texts of what it generates.
//
//   Session::open(name) -> add(request) ... -> step() -> deltas -> step() -> ... -> idle()
//                                     ^                    |
//                                     +--- add, cancel ----+
//
// Conversations whose requests say that they are turns stay in the cache, so that the next turn
// computes only what is new. Whose turn it is follows from its prompt.
//
// One thread at a time uses a session. A server that streams calls step() in one thread, hands out
// the deltas, and adds and cancels between two steps. Nothing here prints.

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "session/ready_model.h"
#include "session/sample_text.h"
#include "session/session_request.h"
#include "session/text_setup.h"

namespace subbyte {

/// How much a session computes at a time.
struct SessionSize {
  Element cache_type = Element::kF16;
  int64_t context = 0;          // positions of a sample at most
  int64_t cache_positions = 0;  // of all samples together, at least one context
  int64_t max_sequences = 8;    // that run at the same time
  int64_t step_tokens = 0;      // of a step at most; 0: Backend::prompt_chunk()
  /// Rows of logits that a step takes for scores of prompts, for the account of memory: 0, or
  /// kScoredPromptTokens where requests have scores_prompt.
  int64_t scored_rows = 0;
};

struct SessionOptions {
  DeviceOptions device;
  AutoDevice auto_device;
  int head_bits = 16;  // LoadOptions::head_bits
  /// A context of 0 is one of 4096 positions, or of those that the model was made for where they
  /// are fewer; cache_positions of 0 are a context for each sequence.
  SessionSize size;
  SamplingWishes sampling;  // before what generation_config.json says
  /// Messages are put into this template instead of the model's own, unless it is empty.
  std::string chat_template;
  uint64_t seed = 0;
  LoadProgress progress = nullptr;
};

class Session {
 public:
  /// Opens the model `name`, a path or a name in the cache of Hugging Face, loads it and makes its
  /// cache. Codes: those of ReadyModel::open, TextSetup::read, load, read_sampling_defaults and
  /// ChatTemplate::compile; usage.context for a context that is longer than the model was made for.
  static Result<std::unique_ptr<Session>> open(const std::string& name,
                                               const SessionOptions& options = {});
  /// The second half of it: loads a model that is open; `text` stays where it is. Codes:
  /// session.size for a context or max_sequences below 1, or a cache of fewer positions than a
  /// context; those of ReadyModel::load and Model::make_kv_pool; memory where the machine has too
  /// little.
  static Result<std::unique_ptr<Session>> load(ReadyModel opened,
                                               std::shared_ptr<const TextSetup> text,
                                               const SessionSize& size, int head_bits = 16,
                                               LoadProgress progress = nullptr);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Puts a request at the end of the queue; nothing is computed. Codes: those of
  /// TextSetup::encode and Scheduler::add.
  Result<RequestId> add(const SessionRequest& request);
  /// The same for a prompt that TextSetup::encode() has made tokens of.
  Result<RequestId> add(const SessionRequest& request, std::vector<TokenId> prompt);

  /// One step and what came of it, in the order of the requests and their samples; nothing where
  /// idle(), and of steps that compute prompts alone. An error is one of the machine, those of
  /// Model::forward: the requests stay as they were, and may be cancelled.
  Result<std::vector<Delta>> step();

  /// Ends a request; its pages are free at once, but those of a turn stay with its conversation.
  /// The last deltas of its samples that had not ended, with text that was held back and the reason
  /// kCaller, or error file.changed when the weights were written to since they were loaded; none
  /// where it has ended.
  std::vector<Delta> cancel(RequestId request);

  /// Tells whether all requests have ended.
  bool idle() const { return scheduler_.idle(); }

  /// The parts that it was made of, and the state of its scheduler.
  const ReadyModel& ready() const { return ready_; }
  const TextSetup& text() const { return *text_; }
  const std::shared_ptr<const TextSetup>& shared_text() const { return text_; }
  const KvPool& cache() const { return pool_; }
  const Scheduler& scheduler() const { return scheduler_; }
  /// Positions of a sample at most, and those that the conversation of the last turn fills.
  int64_t context() const { return context_; }
  int64_t kept_positions() const { return kept_.empty() ? 0 : kept_.front().sequence.length(); }
  /// Forgets the conversations that are kept, but those that a turn of is answered.
  void forget();

 private:
  using Clock = std::chrono::steady_clock;
  struct Sample {
    SampleText text;
    GenerateStats stats;
    bool has_ended = false;
  };
  struct Active {
    Clock::time_point start;
    bool is_prompt_only;
    std::map<TokenId, std::string> control_stops;
    std::deque<Sample> samples;
  };

  /// A conversation in the cache. Its pages are given back when requests want them.
  struct Conversation {
    Sequence sequence;
    std::vector<TokenId> tokens;  // that it holds, and those of the turn that is answered
    int64_t prompt_tokens = 0;    // of its last turn
    RequestId turn = 0;           // that is answered; 0: none
  };
  using Conversations = std::list<Conversation>;  // that of the last turn first

  Session(ReadyModel ready, std::shared_ptr<const TextSetup> text, KvPool pool,
          const SessionSize& size);

  Conversation& begin_turn(std::span<const TokenId> prompt);
  Conversation* find_turn(RequestId request);
  void end_turn(Conversation& conversation, bool is_known);
  bool forget_oldest();
  Delta take(SampleEvent& event);
  void take_token(SampleEvent& event, Active& active, Delta& delta);
  void end(Active& active, StopReason reason, Delta& delta);

  ReadyModel ready_;
  std::shared_ptr<const TextSetup> text_;
  KvPool pool_;
  int64_t context_;
  Conversations kept_;   // as many as sequences run at the same time, at most
  Scheduler scheduler_;  // ends before their sequences
  std::map<RequestId, Active> active_;
};

}  // namespace subbyte
