// What a session does beside its steps: whole answers, and numbers about texts.

#include <map>
#include <utility>

#include "engine/perplexity.h"
#include "engine/token_logits.h"
#include "session/session.h"

namespace subbyte {
namespace {

/// The samples of some requests, put together of what steps give.
class Completions {
 public:
  explicit Completions(Session& session) : session_(session) {}

  /// `is_whole`: nobody is told of deltas.
  Status add(const Request& request, bool is_whole) {
    SUBBYTE_TRY(std::vector<TokenId> prompt, session_.encode(request));
    Request own = request;  // only now, as encode() refuses values too deep for a copy
    own.is_whole = is_whole;
    SUBBYTE_TRY(const RequestId id, session_.add(own, std::move(prompt)));
    first_[id] = completions_.size();
    completions_.resize(completions_.size() + own.num_samples);
    return {};
  }

  /// Steps until all have ended. An error ends all of them.
  Status run(const std::function<bool(const Delta&)>& on_delta) {
    while (!session_.idle()) {
      auto deltas = session_.step();
      if (!deltas.ok()) return stop(std::move(deltas).error());
      for (Delta& delta : *deltas) {
        if (delta.error) return stop(*std::move(delta.error));
        take(delta);
        if (on_delta && !on_delta(delta) && !delta.is_last()) cancel(delta.request, on_delta);
      }
    }
    return {};
  }

  Error stop(Error error) {
    for (const auto& [id, index] : first_) session_.cancel(id);
    return error;
  }

  std::vector<Completion> completions() && { return std::move(completions_); }

 private:
  void take(const Delta& delta) {
    completions_[first_.at(delta.request) + static_cast<std::size_t>(delta.sample)].append(delta);
  }

  /// The last deltas are told as well.
  void cancel(RequestId id, const std::function<bool(const Delta&)>& on_delta) {
    for (const Delta& last : session_.cancel(id)) {
      take(last);
      on_delta(last);
    }
  }

  Session& session_;
  std::map<RequestId, std::size_t> first_;  // sample of each request
  std::vector<Completion> completions_;
};

Result<std::vector<Completion>> complete(Session& session, std::span<const Request> requests,
                                         const std::function<bool(const Delta&)>& on_delta) {
  Completions completions(session);
  for (const Request& request : requests) {
    const Status added = completions.add(request, !on_delta);
    if (!added.ok()) return completions.stop(added.error());
  }
  SUBBYTE_CHECK(completions.run(on_delta));
  return std::move(completions).completions();
}

Status check_idle(const Session& session) {
  if (session.idle()) return {};
  return Error{"session.busy", "expected no other request, found some that run"};
}

Status check_tokens(const ReadyModel& ready, int64_t positions, std::span<const TokenId> tokens) {
  SUBBYTE_CHECK(check_context(ready.config, positions));
  return ready.model->check_tokens(tokens);
}

}  // namespace

Result<RequestId> Session::add(const Request& request) {
  SUBBYTE_TRY(std::vector<TokenId> prompt, encode(request));
  return add(request, std::move(prompt));
}

Result<RequestId> Session::add(const Request& request, std::vector<TokenId> prompt) {
  SUBBYTE_TRY(PreparedRequest prepared, text().prepare(request, std::move(prompt)));
  return add(request, std::move(prepared));
}

Result<RequestId> Session::add(const Request& request, PreparedRequest prepared) {
  return state_->add(request, std::move(prepared));
}

Result<std::vector<Delta>> Session::step() {
  return state_->step();
}

std::vector<Delta> Session::cancel(RequestId request) {
  return state_->cancel(request);
}

bool Session::idle() const {
  return state_->scheduler.idle();
}

void Session::forget() {
  state_->scheduler.forget_prefixes();
}

Result<Completion> Session::generate(const Request& request,
                                     const std::function<bool(const Delta&)>& on_delta) {
  if (request.num_samples != 1) {
    return Error{"session.samples",
                 "expected one sample, found " + std::to_string(request.num_samples)};
  }
  SUBBYTE_CHECK(check_idle(*this));
  SUBBYTE_TRY(std::vector<Completion> completions, complete(*this, {&request, 1}, on_delta));
  return std::move(completions.front());
}

Result<std::vector<Completion>> Session::generate_all(std::span<const Request> requests) {
  SUBBYTE_CHECK(check_idle(*this));
  return complete(*this, requests, nullptr);
}

Result<std::vector<TokenId>> Session::encode(const Request& request) const {
  return text().encode(request);
}

Result<Perplexity> Session::perplexity(std::span<const TokenId> tokens, int64_t window) {
  SUBBYTE_CHECK(check_idle(*this));
  SUBBYTE_CHECK(check_tokens(ready(), window, tokens));
  SUBBYTE_TRY(const Perplexity found, subbyte::perplexity(*ready().model, *ready().backend,
                                                          state_->cache_type, tokens, window));
  SUBBYTE_CHECK(ready().model->verify_unchanged());
  return found;
}

Result<std::vector<float>> Session::logits(std::span<const TokenId> tokens) {
  SUBBYTE_CHECK(check_idle(*this));
  SUBBYTE_CHECK(check_tokens(ready(), std::ssize(tokens), tokens));
  std::vector<float> all;
  if (tokens.empty()) return all;
  all.reserve(tokens.size() * static_cast<std::size_t>(ready().config.vocab_size));
  SUBBYTE_CHECK(token_logits({*ready().model, *ready().backend}, state_->cache_type, tokens,
                             [&](std::span<const float> rows) -> Status {
                               all.insert(all.end(), rows.begin(), rows.end());
                               return {};
                             }));
  return all;
}

}  // namespace subbyte
