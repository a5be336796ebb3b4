#include "serve/engine.h"

#include <fmt/format.h>

#include <algorithm>

namespace subbyte::serve {
namespace {

constexpr std::chrono::seconds kBetweenLooks{5};  // of an idle server, at its machine

}  // namespace

Engine::Engine(Session session, const EngineOptions& options, Deliver deliver)
    : session_(std::move(session)), options_(options), deliver_(std::move(deliver)) {
  state_.total_bytes = session_.cache().total_bytes();
}

bool Engine::is_full() const {
  const std::lock_guard lock(mutex_);
  return queued_calls_ >= options_.max_queued_calls;
}

Status Engine::submit(const std::shared_ptr<Call>& call) {
  {
    const std::lock_guard lock(mutex_);
    if (is_draining_) return Error{"server.draining", "the server is about to end"};
    if (queued_calls_ >= options_.max_queued_calls) {
      return Error{"server.queue_full", fmt::format("{} requests wait already", queued_calls_)};
    }
    const int64_t tokens = queued_tokens_ + call->num_tokens;
    if (options_.max_queued_tokens > 0 && queued_calls_ > 0 &&
        tokens > options_.max_queued_tokens) {
      return Error{"server.queue_full",
                   fmt::format("requests of {} tokens wait already", queued_tokens_)};
    }
    ++queued_calls_;
    queued_tokens_ = tokens;
    call->number_ = next_number_++;
    inbox_.push_back({.call = call, .error = {}});
  }
  changed_.notify_one();
  return {};
}

void Engine::cancel(const std::shared_ptr<Call>& call) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back({.call = call, .error = {}, .is_cancel = true});
  }
  changed_.notify_one();
}

void Engine::forget_prefixes() {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back({.call = nullptr, .error = {}, .forgets = true});
  }
  changed_.notify_one();
}

void Engine::drain() {
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
  }
  changed_.notify_one();
}

void Engine::end_all(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back({.call = nullptr, .error = error});
  }
  changed_.notify_one();
}

/// What was asked for since the last step; waits for something where there is nothing to compute,
/// but not for long.
std::vector<Engine::Command> Engine::wait() {
  const bool is_idle = session_.idle() && queue_.empty();
  std::unique_lock lock(mutex_);
  const auto has_changed = [this] { return !inbox_.empty() || is_draining_; };
  if (is_idle) changed_.wait_for(lock, kBetweenLooks, has_changed);
  return std::exchange(inbox_, {});
}

void Engine::apply(Command& command) {
  if (command.error) {
    fail_all(*command.error);
  } else if (command.forgets) {
    session_.forget();
  } else if (command.is_cancel) {
    cancel_now(command.call);
  } else {
    arrivals_.push_back(command.call);
    queue_.emplace(Place(command.call->priority, command.call->number_), command.call);
  }
}

void Engine::leave_queue(const std::shared_ptr<Call>& call) {
  if (queue_.erase(Place(call->priority, call->number_)) == 0) return;
  const std::lock_guard lock(mutex_);
  --queued_calls_;
  queued_tokens_ -= call->num_tokens;
}

void Engine::cancel_now(const std::shared_ptr<Call>& call) {
  leave_queue(call);
  call->has_ended_ = true;
  for (const RequestId id : call->running_) {
    if (running_.erase(id) > 0) session_.cancel(id);
  }
}

void Engine::fail(const std::shared_ptr<Call>& call, const Error& error) {
  cancel_now(call);
  Event event{.call = call, .delta = {}};
  event.delta.error = error;
  events_.push_back(std::move(event));
}

void Engine::fail_all(const Error& error) {
  std::vector<std::shared_ptr<Call>> calls;
  for (const auto& [place, call] : queue_) calls.push_back(call);
  for (const auto& [id, running] : running_) calls.push_back(running.call);
  for (const auto& call : calls) {
    if (!call->has_ended_) fail(call, error);
  }
}

/// Those that have waited for too long. None of the others is looked at.
void Engine::expire() {
  const auto longest = std::chrono::seconds(options_.max_queue_seconds);
  const Clock::time_point now = Clock::now();
  while (!arrivals_.empty()) {
    const std::shared_ptr<Call> oldest = arrivals_.front().lock();
    if (oldest != nullptr && !oldest->has_ended_ && oldest->num_added_ == 0) {
      if (now - oldest->arrived < longest) return;
      fail(oldest, {"server.queue_time", fmt::format("it waited for {} s, the longest that one may",
                                                     options_.max_queue_seconds)});
    }
    arrivals_.pop_front();
  }
}

void Engine::feed() {
  while (!queue_.empty() && session_.scheduler().has_place()) {
    const std::shared_ptr<Call> next = queue_.begin()->second;  // which leaves the queue meanwhile
    add_next(next);
  }
}

/// Gives the session the next prompt of a call.
void Engine::add_next(const std::shared_ptr<Call>& call) {
  Prompt& prompt = call->prompts[call->num_added_];
  if (call->num_added_ == 0) call->started = Clock::now();
  const Result<RequestId> id = session_.add(prompt.request, std::move(prompt.prepared));
  if (!id.ok()) return fail(call, id.error());
  running_[*id] = {call, call->num_added_, prompt.request.num_samples};
  call->running_.push_back(*id);
  if (++call->num_added_ == call->prompts.size()) leave_queue(call);
}

void Engine::route(std::vector<Delta> deltas) {
  for (Delta& delta : deltas) {
    const auto found = running_.find(delta.request);
    if (found == running_.end()) continue;
    const std::shared_ptr<Call> call = found->second.call;
    if (delta.error) {
      fail(call, *delta.error);
      continue;
    }
    const std::size_t prompt = found->second.prompt;
    if (delta.is_last() && --found->second.num_left == 0) running_.erase(found);
    events_.push_back({call, prompt, std::move(delta)});
  }
}

void Engine::flush() {
  const Scheduler& scheduler = session_.scheduler();
  state_.running = scheduler.num_running();
  state_.waiting = scheduler.num_waiting() + std::ssize(queue_);
  state_.preemptions = scheduler.num_preemptions();
  state_.computed_tokens = scheduler.num_computed_tokens();
  state_.held_bytes = session_.cache().held_bytes();
  state_.discarded_steps = scheduler.num_discarded_steps();
  state_.discarded_tokens = scheduler.num_discarded_tokens();
  state_.common_tokens = scheduler.known_tokens().in_common;
  state_.paged_tokens = scheduler.known_tokens().of_pages;
  state_.cached_tokens = scheduler.num_cached_tokens();
  const PrefixCounts& prefixes = scheduler.prefix_counts();
  state_.pages = prefixes.pages;
  state_.checkpoints = prefixes.checkpoints;
  state_.evicted_pages = prefixes.evicted_pages;
  state_.evicted_checkpoints = prefixes.evicted_checkpoints;
  if (!events_.empty()) deliver_(std::exchange(events_, {}));
}

bool Engine::has_ended() const {
  const std::lock_guard lock(mutex_);
  return is_draining_ && queue_.empty() && inbox_.empty();
}

Status Engine::run() {
  while (true) {
    for (Command& command : wait()) apply(command);
    expire();
    feed();
    flush();
    if (session_.idle()) {
      if (has_ended()) return {};
      const Status whole = session_.ready().verify_whole();
      if (!whole.ok()) return end_with(whole.error());
      continue;
    }
    Result<std::vector<Delta>> deltas = session_.step();
    ++state_.steps;
    if (!deltas.ok()) return end_with(deltas.error());
    route(*std::move(deltas));
    flush();
  }
}

/// Nobody comes any more; those that came meanwhile fail with the others.
Error Engine::end_with(const Error& error) {
  drain();
  for (Command& command : wait()) apply(command);
  fail_all(error);
  flush();
  return error;
}

}  // namespace subbyte::serve
