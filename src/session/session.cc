#include "session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace subbyte {
namespace {

/// An event of a sample was a token or its end.
void count(SampleEnd& end, std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  if (end.generated_tokens == 0) end.prefill_seconds = time.count();
  ++end.generated_tokens;
  end.decode_seconds = time.count() - end.prefill_seconds;
}

}  // namespace

Session::State::State(ReadyModel opened, std::shared_ptr<const TextSetup> setup, KvPool cache,
                      const SessionOptions& options)
    : ready(std::move(opened)),
      text(std::move(setup)),
      pool(std::move(cache)),
      context(options.context),
      cache_type(element_of(options.cache_type)),
      scheduler(*ready.model, *ready.backend, pool,
                {.max_sequences = options.max_sequences,
                 .step_tokens = options.step_tokens,
                 .give_back = [this] { return forget_oldest(); }}) {}

Result<RequestId> Session::State::add(const Request& request, std::vector<TokenId> prompt) {
  ScheduledRequest scheduled;
  scheduled.prompt = std::move(prompt);
  scheduled.options.sampling = text->sampling.with(request.sampling);
  // A prompt alone is read with a token after it, which is dropped.
  scheduled.options.max_tokens = request.max_tokens == 0 ? 1 : request.max_tokens;
  scheduled.options.min_tokens = request.min_tokens;
  scheduled.options.stop_tokens = text->stop_tokens_of(request);
  scheduled.num_samples = request.num_samples;
  scheduled.max_length = request.max_length == 0 ? context : std::min(request.max_length, context);
  scheduled.num_top_logprobs = request.num_top_logprobs;
  scheduled.scores_prompt = request.scores_prompt;
  SUBBYTE_TRY(auto call_parsers, text->call_parsers(request, scheduled.prompt));
  Conversation* const turn = request.is_turn ? &begin_turn(scheduled.prompt) : nullptr;
  if (turn != nullptr) scheduled.sequence = &turn->sequence;
  SUBBYTE_TRY(const RequestId id, scheduler.add(scheduled));
  SampleEnd counts;
  counts.prompt_tokens =
      std::ssize(scheduled.prompt) - (turn == nullptr ? 0 : turn->sequence.length());
  Active& active = active_requests[id];
  active = {.start = Clock::now(),
            .is_prompt_only = request.max_tokens == 0,
            .control_stops = text->control_stops_of(request),
            .samples = {}};
  const PromptEnd end = prompt_end(text->tokenizer, scheduled.prompt);
  for (ToolCallParser& calls : call_parsers) {
    active.samples.push_back(
        {SampleText(request, text->tokenizer, text->format, end, std::move(calls)), counts});
  }
  if (turn != nullptr) {
    turn->turn = id;
    turn->prompt_tokens = std::ssize(scheduled.prompt);
    turn->tokens = std::move(scheduled.prompt);
  }
  return id;
}

/// The conversation whose next turn this is, cut back to what it has in common with the prompt,
/// whose last token is computed in any case: its logits are needed. One that begins like another
/// and does not go on from its last prompt is a new one, which shares the beginning.
Session::State::Conversation& Session::State::begin_turn(std::span<const TokenId> prompt) {
  const int64_t most = std::max<int64_t>(std::ssize(prompt), 1) - 1;
  auto nearest = kept.end();
  int64_t length = 0;
  for (auto one = kept.begin(); one != kept.end(); ++one) {
    if (one->turn != 0) continue;
    const auto end = std::ranges::mismatch(one->tokens, prompt.first(most)).in1;
    const int64_t common = end - one->tokens.begin();
    if (common > length || nearest == kept.end()) {
      nearest = one;
      length = common;
    }
  }
  const bool goes_on = nearest != kept.end() && length + 1 >= nearest->prompt_tokens;
  if (goes_on) {
    nearest->sequence.rewind(length);
    kept.splice(kept.begin(), kept, nearest);
  } else {
    Sequence sequence =
        nearest == kept.end() ? Sequence(pool, context) : nearest->sequence.share(length);
    if (std::ssize(kept) >= scheduler.max_sequences()) forget_oldest();
    kept.push_front({.sequence = std::move(sequence), .tokens = {}});
  }
  Conversation& conversation = kept.front();
  conversation.tokens.assign(prompt.begin(), prompt.begin() + conversation.sequence.length());
  return conversation;
}

/// The conversation that a request is a turn of, or nullptr.
Session::State::Conversation* Session::State::find_turn(RequestId request) {
  const auto found = std::ranges::find(kept, request, &Conversation::turn);
  return found == kept.end() ? nullptr : &*found;
}

/// `is_known`: what the cache holds now.
void Session::State::end_turn(Conversation& conversation, bool is_known) {
  conversation.turn = 0;
  if (!is_known) conversation.sequence.truncate(0);
  conversation.tokens.resize(conversation.sequence.length());
}

/// Forgets the conversation whose last turn is the longest ago; false when there is none that no
/// turn of is answered.
bool Session::State::forget_oldest() {
  const auto oldest = std::ranges::find(kept.rbegin(), kept.rend(), 0, &Conversation::turn);
  if (oldest == kept.rend()) return false;
  kept.erase(std::next(oldest).base());
  return true;
}

Result<std::vector<Delta>> Session::State::step() {
  SUBBYTE_TRY(std::vector<SampleEvent> events, scheduler.step());
  std::vector<Delta> deltas;
  for (SampleEvent& event : events) deltas.push_back(take(event));
  return deltas;
}

Delta Session::State::take(SampleEvent& event) {
  Active& active = active_requests.at(event.request);
  Delta delta;
  delta.request = event.request;
  delta.sample = event.sample;
  delta.prompt_logprobs = std::move(event.prompt_logprobs);
  delta.error = std::move(event.error);
  if (!delta.error && (event.token || event.stop)) take_token(event, active, delta);
  if (!delta.is_last()) return delta;
  active.samples[event.sample].has_ended = true;
  if (Conversation* const turn = find_turn(delta.request)) end_turn(*turn, !delta.error);
  if (std::ranges::all_of(active.samples, &Sample::has_ended)) active_requests.erase(delta.request);
  return delta;
}

/// A token of a sample, or its end.
void Session::State::take_token(SampleEvent& event, Active& active, Delta& delta) {
  if (active.is_prompt_only) return end(active, StopReason::kLength, delta);
  Sample& sample = active.samples[event.sample];
  count(sample.end, active.start);
  if (event.logprobs) delta.logprobs.push_back(*std::move(event.logprobs));
  if (event.token) sample.text.push(*event.token, delta);
  if (Conversation* const turn = find_turn(event.request); turn != nullptr && event.token) {
    turn->tokens.push_back(*event.token);
  }
  if (sample.text.stopped()) {
    const Status unchanged = scheduler.verify_unchanged();
    scheduler.cancel(event.request, event.sample);
    if (!unchanged.ok()) delta.error = unchanged.error();
    event.stop = StopReason::kStopString;
  }
  if (!event.stop || delta.error) return;
  end(active, *event.stop, delta);
  delta.end->stop_token = event.stop_token;
  if (!event.stop_token) return;
  const auto stop = active.control_stops.find(*event.stop_token);
  if (stop == active.control_stops.end()) return;
  delta.end->reason = StopReason::kStopString;
  delta.end->stop = stop->second;
}

void Session::State::end(Active& active, StopReason reason, Delta& delta) {
  Sample& sample = active.samples[delta.sample];
  sample.text.finish(delta);
  delta.end = sample.end;
  delta.end->reason = reason;
  if (reason == StopReason::kStopString) delta.end->stop = sample.text.stop();
  delta.end->num_tool_calls = sample.text.num_calls();
}

std::vector<Delta> Session::State::cancel(RequestId request) {
  std::vector<Delta> deltas;
  const auto found = active_requests.find(request);
  if (found == active_requests.end()) return deltas;
  const Status unchanged = scheduler.verify_unchanged();
  scheduler.cancel(request);
  Active& active = found->second;
  for (std::size_t i = 0; i < active.samples.size(); ++i) {
    if (active.samples[i].has_ended) continue;
    Delta delta;
    delta.request = request;
    delta.sample = static_cast<int64_t>(i);
    if (unchanged.ok()) {
      end(active, StopReason::kCaller, delta);
    } else {
      delta.error = unchanged.error();
    }
    deltas.push_back(std::move(delta));
  }
  active_requests.erase(found);
  if (Conversation* const turn = find_turn(request)) end_turn(*turn, unchanged.ok());
  return deltas;
}

}  // namespace subbyte
