#include "held_session.h"

#include <utility>

namespace subbyte::python {
namespace {

std::atomic<int> num_forks = 0;

}  // namespace

class HeldSession::Visit {
 public:
  Visit(HeldSession& session, Turns::Turn turn) : session_(&session), turn_(std::move(turn)) {}
  Visit(Visit&& other) noexcept
      : session_(std::exchange(other.session_, nullptr)), turn_(std::move(other.turn_)) {}
  Visit& operator=(Visit&&) = delete;
  /// Who cancels while somebody has the turn leaves it to that one, be it in the last moment.
  ~Visit() {
    if (session_ == nullptr) return;
    session_->cancel_all();
    turn_.reset();
    session_->cancel_if_free();
  }

 private:
  HeldSession* session_;
  std::optional<Turns::Turn> turn_;
};

HeldSession::HeldSession(Session session, Element cache_type, std::string choice)
    : text_(session.shared_text()),
      directory_(session.ready().files.directory()),
      device_(session.ready().backend->description()),
      choice_(std::move(choice)),
      model_type_(session.ready().config.model_type),
      context_(session.context()),
      vocab_size_(session.ready().config.vocab_size),
      max_positions_(session.ready().config.max_positions),
      cache_type_(cache_type),
      num_forks_(num_forks),
      session_(std::make_unique<Session>(std::move(session))) {}

HeldSession::~HeldSession() {
  if (num_forks_ == num_forks) return;
  static_cast<void>(session_.release());
  static_cast<void>(turns_.release());
}

void HeldSession::forget() {
  ++num_forks;
}

Result<HeldSession::Visit> HeldSession::enter() {
  if (num_forks_ != num_forks) {
    return Error{"session.forked",
                 "expected the process that has loaded the model, found a fork of it, without the "
                 "model's threads: load it after forking, or start processes by spawn"};
  }
  std::optional<Result<Turns::Turn>> taken;
  try {
    taken.emplace(turns_->take("the model"));
  } catch (...) {  // a signal handler ends this call: what was left to it is done now
    cancel_if_free();
    throw;
  }
  SUBBYTE_TRY(Turns::Turn turn, *std::move(taken));
  Visit visit(*this, std::move(turn));
  if (session_ == nullptr) return Error{"session.closed", "the model is closed: open it again"};
  cancel_all();
  return visit;
}

Result<RequestId> HeldSession::add(const Request& request, std::shared_ptr<EventQueue> queue) {
  SUBBYTE_TRY(const Visit visit, enter());
  if (queue->is_closed()) {
    return Error{"session.cancelled", "the request was cancelled before it was added"};
  }
  SUBBYTE_TRY(const RequestId id, session_->add(request.request(), request.prompt()));
  queue->open(id, request.request().num_samples);
  queues_[id] = std::move(queue);
  count();
  return id;
}

Result<std::optional<std::vector<Delta>>> HeldSession::step(EventQueue& queue) {
  SUBBYTE_TRY(const Visit visit, enter());
  std::vector<Delta> events = queue.take();
  if (!events.empty()) return std::optional(std::move(events));
  if (!queue.is_open()) return std::optional<std::vector<Delta>>();
  SUBBYTE_CHECK(make_step());
  cancel_all();
  return std::optional(queue.take());
}

Status HeldSession::make_step() {
  SUBBYTE_TRY(std::vector<Delta> events, session_->step());
  for (Delta& event : events) {
    const auto queue = queues_.find(event.request);
    if (queue->second->push(std::move(event))) queues_.erase(queue);
  }
  count();
  return {};
}

Status HeldSession::measure(
    const std::function<Status(const ReadyModel&, Element cache_type)>& work) {
  SUBBYTE_TRY(const Visit visit, enter());
  if (session_->idle()) return work(session_->ready(), cache_type_);
  return Error{"session.busy",
               "expected no requests on their way, found some: wait for their last events, or "
               "cancel them"};
}

Status HeldSession::close() {
  if (is_closed_) return {};
  const Result<Visit> visit = enter();
  if (!visit.ok()) {
    const bool is_done = is_closed_ || visit.error().code == "session.ending";
    return is_done ? Status() : Status(visit.error());
  }
  std::vector<RequestId> open;
  for (const auto& [id, queue] : queues_) open.push_back(id);
  for (const RequestId id : open) cancel_one(id);
  session_ = nullptr;
  is_closed_ = true;
  return {};
}

void HeldSession::cancel_later(Cancelled what) {
  if (num_forks_ != num_forks) return;
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(std::move(what));
  }
  cancel_if_free();
}

/// Ends what was cancelled unless somebody has the turn or waits for it, who does it then.
void HeldSession::cancel_if_free() {
  while (has_cancelled()) {
    const std::optional<Turns::Turn> turn = turns_->take_if_free();
    if (!turn) return;
    cancel_all();
  }
}

bool HeldSession::has_cancelled() {
  const std::lock_guard lock(mutex_);
  return !cancelled_.empty();
}

void HeldSession::cancel_all() {
  std::vector<Cancelled> cancelled;
  {
    const std::lock_guard lock(mutex_);
    cancelled.swap(cancelled_);
  }
  for (const Cancelled& what : cancelled) {
    if (const RequestId* const request = std::get_if<RequestId>(&what)) {
      cancel_one(*request);
      continue;
    }
    EventQueue& queue = *std::get<std::shared_ptr<EventQueue>>(what);
    queue.close();
    for (const RequestId request : queue.open_requests()) cancel_one(request);
  }
}

void HeldSession::cancel_one(RequestId request) {
  if (session_ == nullptr) return;
  session_->cancel(request);
  count();
  const auto queue = queues_.find(request);
  if (queue == queues_.end()) return;
  queue->second->drop(request);
  queues_.erase(queue);
}

void HeldSession::count() {
  num_running_ = session_->scheduler().num_running();
  num_waiting_ = session_->scheduler().num_waiting();
}

}  // namespace subbyte::python
