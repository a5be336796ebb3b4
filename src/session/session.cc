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
                 .shares_prefixes = options.prefix_cache,
                 .max_slowdown = options.max_slowdown}) {}

Result<RequestId> Session::State::add(const Request& request, PreparedRequest prepared) {
  ScheduledRequest scheduled;
  scheduled.prompt = std::move(prepared.prompt);
  scheduled.options.sampling = text->sampling.with(request.sampling);
  // A prompt alone is read with a token after it, which is dropped.
  scheduled.options.max_tokens = request.max_tokens == 0 ? 1 : request.max_tokens;
  scheduled.options.min_tokens = request.min_tokens;
  scheduled.options.stop_tokens = std::move(prepared.stop_tokens);
  scheduled.num_samples = request.num_samples;
  scheduled.max_length = request.max_length == 0 ? context : std::min(request.max_length, context);
  scheduled.num_top_logprobs = request.num_top_logprobs;
  scheduled.scores_prompt = request.scores_prompt;
  scheduled.priority = request.priority;
  scheduled.cache_salt = request.cache_salt;
  scheduled.boundary = prepared.last_message;
  SUBBYTE_TRY(const RequestId id, scheduler.add(scheduled));
  SampleEnd counts;
  counts.prompt_tokens = std::ssize(scheduled.prompt);
  Active& active = active_requests[id];
  active = {.start = Clock::now(),
            .is_prompt_only = request.max_tokens == 0,
            .control_stops = std::move(prepared.control_stops),
            .samples = {}};
  for (ToolCallParser& calls : prepared.call_parsers) {
    active.samples.push_back(
        {SampleText(request, text->tokenizer, text->format, prepared.end, std::move(calls)),
         counts});
  }
  return id;
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
  if (std::ranges::all_of(active.samples, &Sample::has_ended)) active_requests.erase(delta.request);
  return delta;
}

/// A token of a sample, or its end.
void Session::State::take_token(SampleEvent& event, Active& active, Delta& delta) {
  Sample& sample = active.samples[event.sample];
  sample.end.cached_tokens = event.cached_tokens;
  if (active.is_prompt_only) return end(active, StopReason::kLength, delta);
  count(sample.end, active.start);
  if (event.logprobs) delta.logprobs.push_back(*std::move(event.logprobs));
  if (event.token) sample.text.push(*event.token, delta);
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
  return deltas;
}

}  // namespace subbyte
