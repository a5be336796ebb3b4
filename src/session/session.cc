#include "session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/generation_config.h"
#include "session/not_enough_memory.h"

namespace subbyte {
namespace {

constexpr int64_t kUsualContext = 4096;
constexpr int64_t kMaxSequences = 65536;

Status check_size(const SessionSize& size) {
  const bool has_sequences = size.max_sequences >= 1 && size.max_sequences <= kMaxSequences;
  const bool has_room =
      size.cache_positions >= 1 && kv_pages(size.cache_positions) * kPagePositions >= size.context;
  if (size.context >= 1 && has_sequences && has_room) return {};
  return Error{"session.size",
               fmt::format("expected 1 to {} sequences, a context of at least one position, and a "
                           "cache that holds it; found {}, {} and a cache of {} positions",
                           kMaxSequences, size.max_sequences, size.context, size.cache_positions)};
}

/// An event of a sample was a token or its end.
void count(GenerateStats& stats, std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  if (stats.generated_tokens == 0) stats.prefill_seconds = time.count();
  ++stats.generated_tokens;
  stats.decode_seconds = time.count() - stats.prefill_seconds;
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(const std::string& name,
                                               const SessionOptions& options) {
  SUBBYTE_TRY(ReadyModel ready, ReadyModel::open(name, options.device, options.auto_device));
  SUBBYTE_TRY(std::unique_ptr<TextSetup> text, TextSetup::read(ready.directory, ready.config));
  SUBBYTE_TRY(text->sampling, read_sampling_defaults(ready.path, options.sampling, options.seed));
  if (!options.chat_template.empty()) {
    text->chat_template =
        ChatTemplate::compile(options.chat_template, "chat_template", ready.directory);
    if (!text->chat_template->ok()) return text->chat_template->error();
  }
  SessionSize size = options.size;
  SUBBYTE_CHECK(check_context(ready.config, size.context));
  if (size.context == 0) size.context = std::min(kUsualContext, ready.config.max_positions);
  if (size.cache_positions == 0 && size.max_sequences <= kMaxSequences) {
    size.cache_positions = size.max_sequences * size.context;
  }
  return load(std::move(ready), std::move(text), size, options.head_bits, options.progress);
}

Result<std::unique_ptr<Session>> Session::load(ReadyModel opened,
                                               std::shared_ptr<const TextSetup> text,
                                               const SessionSize& given, int head_bits,
                                               LoadProgress progress) {
  SUBBYTE_CHECK(check_size(given));
  SessionSize size = given;
  const LoadOptions options = {.head_bits = head_bits,
                               .progress = std::move(progress),
                               .cache_type = size.cache_type,
                               .cache_positions = size.cache_positions,
                               .step_tokens = size.step_tokens,
                               .step_sequences = size.max_sequences,
                               .step_logits = size.max_sequences + size.scored_rows};
  std::optional<KvPool> pool;
  SUBBYTE_CHECK(opened.load(options, [&](const Model& model) -> Status {
    Backend& machine = *opened.backend;
    size.step_tokens = given.step_tokens > 0 ? given.step_tokens : machine.prompt_chunk();
    auto made = model.make_kv_pool(machine, size.cache_type,
                                   {size.cache_positions, size.max_sequences, size.step_tokens});
    const bool is_on_host = machine.memory() == nullptr;
    if (!made.ok() && made.error().code == "kv.memory" && is_on_host) {
      return not_enough_memory(opened.path, opened.config, options);
    }
    SUBBYTE_TRY(pool, std::move(made));
    return {};
  }));
  return std::unique_ptr<Session>(
      new Session(std::move(opened), std::move(text), *std::move(pool), size));
}

Session::Session(ReadyModel ready, std::shared_ptr<const TextSetup> text, KvPool pool,
                 const SessionSize& size)
    : ready_(std::move(ready)),
      text_(std::move(text)),
      pool_(std::move(pool)),
      context_(size.context),
      scheduler_(*ready_.model, *ready_.backend, pool_,
                 {.max_sequences = size.max_sequences,
                  .step_tokens = size.step_tokens,
                  .give_back = [this] { return forget_oldest(); }}) {}

Result<RequestId> Session::add(const SessionRequest& request) {
  SUBBYTE_TRY(std::vector<TokenId> prompt, text_->encode(request));
  return add(request, std::move(prompt));
}

Result<RequestId> Session::add(const SessionRequest& request, std::vector<TokenId> prompt) {
  ScheduledRequest scheduled;
  scheduled.prompt = std::move(prompt);
  scheduled.options.sampling = request.sampling;
  // A prompt alone is read with a token after it, which is dropped.
  scheduled.options.max_tokens = request.max_tokens == 0 ? 1 : request.max_tokens;
  scheduled.options.min_tokens = request.min_tokens;
  scheduled.options.stop_tokens = text_->stop_tokens_of(request);
  scheduled.num_samples = request.num_samples;
  scheduled.max_length =
      request.max_length == 0 ? context() : std::min(request.max_length, context());
  scheduled.num_top_logprobs = request.num_top_logprobs;
  scheduled.scores_prompt = request.scores_prompt;
  SUBBYTE_TRY(auto call_parsers, text_->call_parsers(request, scheduled.prompt));
  Conversation* const turn = request.is_turn ? &begin_turn(scheduled.prompt) : nullptr;
  if (turn != nullptr) scheduled.sequence = &turn->sequence;
  SUBBYTE_TRY(const RequestId id, scheduler_.add(scheduled));
  GenerateStats stats;
  stats.prompt_tokens =
      std::ssize(scheduled.prompt) - (turn == nullptr ? 0 : turn->sequence.length());
  Active& active = active_[id];
  active = {.start = Clock::now(),
            .is_prompt_only = request.max_tokens == 0,
            .control_stops = text_->control_stops_of(request),
            .samples = {}};
  const PromptEnd end = prompt_end(text_->tokenizer, scheduled.prompt);
  for (ToolCallParser& calls : call_parsers) {
    active.samples.push_back(
        {SampleText(request, text_->tokenizer, text_->format, end, std::move(calls)), stats});
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
Session::Conversation& Session::begin_turn(std::span<const TokenId> prompt) {
  const int64_t most = std::max<int64_t>(std::ssize(prompt), 1) - 1;
  auto nearest = kept_.end();
  int64_t length = 0;
  for (auto one = kept_.begin(); one != kept_.end(); ++one) {
    if (one->turn != 0) continue;
    const auto end = std::ranges::mismatch(one->tokens, prompt.first(most)).in1;
    const int64_t common = end - one->tokens.begin();
    if (common > length || nearest == kept_.end()) {
      nearest = one;
      length = common;
    }
  }
  const bool goes_on = nearest != kept_.end() && length + 1 >= nearest->prompt_tokens;
  if (goes_on) {
    nearest->sequence.rewind(length);
    kept_.splice(kept_.begin(), kept_, nearest);
  } else {
    Sequence sequence =
        nearest == kept_.end() ? Sequence(pool_, context_) : nearest->sequence.share(length);
    if (std::ssize(kept_) >= scheduler_.max_sequences()) forget_oldest();
    kept_.push_front({.sequence = std::move(sequence), .tokens = {}});
  }
  Conversation& conversation = kept_.front();
  conversation.tokens.assign(prompt.begin(), prompt.begin() + conversation.sequence.length());
  return conversation;
}

/// The conversation that a request is a turn of, or nullptr.
Session::Conversation* Session::find_turn(RequestId request) {
  const auto found = std::ranges::find(kept_, request, &Conversation::turn);
  return found == kept_.end() ? nullptr : &*found;
}

/// `is_known`: what the cache holds now.
void Session::end_turn(Conversation& conversation, bool is_known) {
  conversation.turn = 0;
  if (!is_known) conversation.sequence.truncate(0);
  conversation.tokens.resize(conversation.sequence.length());
}

/// Forgets the conversation whose last turn is the longest ago; false when there is none that no
/// turn of is answered.
bool Session::forget_oldest() {
  const auto oldest = std::ranges::find(kept_.rbegin(), kept_.rend(), 0, &Conversation::turn);
  if (oldest == kept_.rend()) return false;
  kept_.erase(std::next(oldest).base());
  return true;
}

void Session::forget() {
  while (forget_oldest()) continue;
}

Result<std::vector<Delta>> Session::step() {
  SUBBYTE_TRY(std::vector<SampleEvent> events, scheduler_.step());
  std::vector<Delta> deltas;
  for (SampleEvent& event : events) deltas.push_back(take(event));
  return deltas;
}

Delta Session::take(SampleEvent& event) {
  Active& active = active_.at(event.request);
  Delta delta;
  delta.request = event.request;
  delta.sample = event.sample;
  delta.prompt_logprobs = std::move(event.prompt_logprobs);
  delta.error = std::move(event.error);
  if (!delta.error && (event.token || event.stop)) take_token(event, active, delta);
  if (!delta.is_last()) return delta;
  active.samples[event.sample].has_ended = true;
  if (Conversation* const turn = find_turn(delta.request)) end_turn(*turn, !delta.error);
  if (std::ranges::all_of(active.samples, &Sample::has_ended)) active_.erase(delta.request);
  return delta;
}

/// A token of a sample, or its end.
void Session::take_token(SampleEvent& event, Active& active, Delta& delta) {
  if (active.is_prompt_only) return end(active, StopReason::kLength, delta);
  Sample& sample = active.samples[event.sample];
  count(sample.stats, active.start);
  if (event.logprobs) delta.logprobs.push_back(*std::move(event.logprobs));
  if (event.token) sample.text.push(*event.token, delta);
  if (Conversation* const turn = find_turn(event.request); turn != nullptr && event.token) {
    turn->tokens.push_back(*event.token);
  }
  if (sample.text.stopped()) {
    const Status unchanged = scheduler_.verify_unchanged();
    scheduler_.cancel(event.request, event.sample);
    if (!unchanged.ok()) delta.error = unchanged.error();
    event.stop = StopReason::kStopString;
  }
  if (!event.stop || delta.error) return;
  end(active, *event.stop, delta);
  delta.end->stop_token = event.stop_token;
  if (!event.stop_token) return;
  const auto stop = active.control_stops.find(*event.stop_token);
  if (stop == active.control_stops.end()) return;
  delta.end->stats.reason = StopReason::kStopString;
  delta.end->stop = stop->second;
}

void Session::end(Active& active, StopReason reason, Delta& delta) {
  Sample& sample = active.samples[delta.sample];
  sample.text.finish(delta);
  sample.stats.reason = reason;
  delta.end = {.stats = sample.stats, .stop_token = {}, .stop = {}, .num_tool_calls = 0};
  if (reason == StopReason::kStopString) delta.end->stop = sample.text.stop();
  delta.end->num_tool_calls = sample.text.num_calls();
}

std::vector<Delta> Session::cancel(RequestId request) {
  std::vector<Delta> deltas;
  const auto found = active_.find(request);
  if (found == active_.end()) return deltas;
  const Status unchanged = scheduler_.verify_unchanged();
  scheduler_.cancel(request);
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
  active_.erase(found);
  if (Conversation* const turn = find_turn(request)) end_turn(*turn, unchanged.ok());
  return deltas;
}

}  // namespace subbyte
