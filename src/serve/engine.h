#pragma once
// The thread that steps the model for all requests of a server:
//
//   submit --inbox--> queue (priority, then age) --feed--> Session --step--> events --> deliver
//   cancel --inbox-----+-------------------------------------+
//
// The inbox is emptied between two steps, so a request whose client went away ends before the next
// one. No lock is held during a step. The session gets no more requests than it computes: who comes
// first is decided here.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "completions/answer.h"
#include "completions/request.h"
#include "session/session.h"

namespace subbyte::serve {

using Clock = std::chrono::steady_clock;

/// One prompt of a call, with its samples.
struct Prompt {
  CompletionRequest request;
  PreparedRequest prepared;  // which the session takes
  Echo echo;
};

/// A request of a client: prompts that are answered together.
struct Call {
  virtual ~Call() = default;

  std::vector<Prompt> prompts;
  int64_t priority = 0;    // the lower the sooner
  int64_t num_tokens = 0;  // of all prompts
  Clock::time_point arrived;
  /// When the first prompt left the queue; the engine says it with its first event.
  std::atomic<Clock::time_point> started;

 private:
  friend class Engine;
  uint64_t number_ = 0;  // in the order of submit()
  std::size_t num_added_ = 0;
  bool has_ended_ = false;
  std::vector<RequestId> running_;
};

struct EngineOptions {
  int64_t max_queued_calls = 1024;
  int64_t max_queued_tokens = 0;  // 0: as many as come
  int64_t max_queue_seconds = 600;
};

/// A part of what comes of a call. An error is the end of all of it.
struct Event {
  std::shared_ptr<Call> call;
  std::size_t prompt = 0;
  Delta delta;
};

/// Numbers that other threads may look at.
struct EngineState {
  std::atomic<int64_t> running = 0;
  std::atomic<int64_t> waiting = 0;
  std::atomic<int64_t> preemptions = 0;
  std::atomic<int64_t> computed_tokens = 0;
  std::atomic<int64_t> steps = 0;
  std::atomic<int64_t> discarded_steps = 0;
  std::atomic<int64_t> discarded_tokens = 0;
  // Of the prefixes that are kept.
  std::atomic<int64_t> common_tokens = 0;  // of prompts: that texts before had
  std::atomic<int64_t> paged_tokens = 0;   // of those: that pages were there for
  std::atomic<int64_t> cached_tokens = 0;  // of those: that a state was there for
  std::atomic<int64_t> pages = 0;
  std::atomic<int64_t> checkpoints = 0;
  std::atomic<int64_t> evicted_pages = 0;
  std::atomic<int64_t> evicted_checkpoints = 0;
  std::atomic<int64_t> held_bytes = 0;  // of the cache
  std::atomic<int64_t> total_bytes = 0;
};

class Engine {
 public:
  using Deliver = std::function<void(std::vector<Event>)>;

  /// `deliver` is called in the thread of run(), and must not wait.
  Engine(Session session, const EngineOptions& options, Deliver deliver);

  /// Puts a call into the queue. Codes: server.queue_full, server.draining.
  Status submit(const std::shared_ptr<Call>& call);
  /// No event of the call comes any more, but for those that are on their way.
  void cancel(const std::shared_ptr<Call>& call);
  /// run() ends when nothing is left.
  void drain();
  /// Calls that are submitted later share nothing with what was computed before.
  void forget_prefixes();
  /// All calls end with this error.
  void end_all(const Error& error);
  /// Says whether the next call would be refused for the length of the queue.
  bool is_full() const;

  /// Steps until drain(). An error is one of the backend: all calls have it, too.
  Status run();

  const Session& session() const { return session_; }
  const EngineState& state() const { return state_; }

 private:
  struct Command {
    std::shared_ptr<Call> call;
    std::optional<Error> error;  // of all calls
    bool is_cancel = false;
    bool forgets = false;
  };
  struct Running {
    std::shared_ptr<Call> call;
    std::size_t prompt = 0;
    int64_t num_left = 0;  // samples
  };
  using Place = std::pair<int64_t, uint64_t>;  // priority and number

  std::vector<Command> wait();
  void apply(Command& command);
  void expire();
  void feed();
  void add_next(const std::shared_ptr<Call>& call);
  void leave_queue(const std::shared_ptr<Call>& call);
  void cancel_now(const std::shared_ptr<Call>& call);
  void fail(const std::shared_ptr<Call>& call, const Error& error);
  void fail_all(const Error& error);
  void route(std::vector<Delta> deltas);
  void flush();
  bool has_ended() const;
  Error end_with(const Error& error);

  Session session_;
  EngineOptions options_;
  Deliver deliver_;
  EngineState state_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<Command> inbox_;
  uint64_t next_number_ = 1;
  int64_t queued_calls_ = 0;
  int64_t queued_tokens_ = 0;
  bool is_draining_ = false;

  // Of the thread of run().
  std::map<Place, std::shared_ptr<Call>> queue_;
  std::deque<std::weak_ptr<Call>> arrivals_;  // the oldest first; some have left the queue
  std::map<RequestId, Running> running_;
  std::vector<Event> events_;
};

}  // namespace subbyte::serve
