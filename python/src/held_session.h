#pragma once
// A session that any thread may use: one at a time does.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "event_queue.h"
#include "request.h"
#include "session/session.h"
#include "turns.h"

namespace subbyte::python {

class HeldSession {
 public:
  /// `choice`: what the device "auto" took, and why.
  HeldSession(Session session, Element cache_type, std::string choice);
  /// In the child of a fork nothing is freed: threads that are not there cannot be joined.
  ~HeldSession();
  HeldSession(const HeldSession&) = delete;
  HeldSession& operator=(const HeldSession&) = delete;

  // What says nothing of requests; it stays when the session is closed.

  const std::shared_ptr<const TextSetup>& text() const { return text_; }
  const std::filesystem::path& directory() const { return directory_; }
  const std::string& device() const { return device_; }
  const std::string& choice() const { return choice_; }
  const std::string& model_type() const { return model_type_; }
  int64_t context() const { return context_; }
  int64_t vocab_size() const { return vocab_size_; }
  int64_t max_positions() const { return max_positions_; }
  bool is_closed() const { return is_closed_; }
  int64_t num_running() const { return num_running_; }
  int64_t num_waiting() const { return num_waiting_; }

  // Without the GIL. Codes: those of Turns::take, session.closed, session.forked.

  /// Puts a request at the end of the queue of the session; its events go to `queue`. Codes: those
  /// of Session::add, session.cancelled for a queue that is closed.
  Result<RequestId> add(const Request& request, std::shared_ptr<EventQueue> queue);
  /// The next events of a queue: those that are there, or what comes of a step, perhaps none;
  /// nullopt where all its requests have ended. Codes: those of Session::step.
  Result<std::optional<std::vector<Delta>>> step(EventQueue& queue);
  /// Calls `work` while no requests are on their way. Codes: session.busy, those of `work`.
  Status measure(const std::function<Status(const ReadyModel&, Element cache_type)>& work);
  /// Ends all requests and gives the memory back; closing twice does nothing, nor does closing
  /// while the interpreter ends and another thread is at work: the memory goes with the process.
  Status close();

  /// Ends a request, or all that a queue has and will have: at once, or when the turn ends that
  /// somebody has. No event comes of it.
  void cancel(RequestId request) { cancel_later(request); }
  void cancel(std::shared_ptr<EventQueue> queue) { cancel_later(std::move(queue)); }

  /// In the child of a fork.
  static void forget();

 private:
  using Cancelled = std::variant<RequestId, std::shared_ptr<EventQueue>>;

  /// A turn with the session; what was cancelled meanwhile is ended with it.
  class Visit;
  Result<Visit> enter();

  Status make_step();
  void cancel_later(Cancelled what);
  void cancel_if_free();
  void cancel_all();
  void cancel_one(RequestId request);
  bool has_cancelled();
  void count();

  std::shared_ptr<const TextSetup> text_;
  std::filesystem::path directory_;
  std::string device_, choice_, model_type_;
  int64_t context_, vocab_size_, max_positions_;
  Element cache_type_;
  int num_forks_;  // of the process until it was opened
  std::atomic<bool> is_closed_ = false;
  std::atomic<int64_t> num_running_ = 0;
  std::atomic<int64_t> num_waiting_ = 0;

  std::unique_ptr<Turns> turns_ = std::make_unique<Turns>();  // for what follows
  std::unique_ptr<Session> session_;
  std::map<RequestId, std::shared_ptr<EventQueue>> queues_;  // of requests that have not ended

  std::mutex mutex_;  // for what follows
  std::vector<Cancelled> cancelled_;
};

}  // namespace subbyte::python
