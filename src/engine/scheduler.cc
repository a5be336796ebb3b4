#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

namespace subbyte {

Status Scheduler::check(const ScheduledRequest& request, int64_t max_length) const {
  if (request.prompt.empty()) return Error{"generate.empty_prompt", "the prompt has no tokens"};
  if (request.num_samples < 1 || request.num_samples > kMaxSamples ||
      request.options.max_tokens == 0 || request.max_length < 0) {
    return Error{"scheduler.request",
                 fmt::format("expected 1 to {} samples of at least one token in a context of at "
                             "least one position, found {} of {} in {}",
                             kMaxSamples, request.num_samples, request.options.max_tokens,
                             request.max_length)};
  }
  const Sequence* const sequence = request.sequence;
  if (sequence != nullptr &&
      (request.num_samples != 1 || request.scores_prompt || &sequence->pool() != &pool_ ||
       sequence->max_length() != max_length || sequence->length() >= std::ssize(request.prompt))) {
    return Error{
        "scheduler.request",
        fmt::format("expected a sequence of this pool for one sample without scores, with "
                    "{} positions, fewer than {} of them filled; found {} of {}",
                    max_length, request.prompt.size(), sequence->length(), sequence->max_length())};
  }
  SUBBYTE_CHECK(check_sampling(request.options.sampling));
  SUBBYTE_CHECK(model_.check_tokens(request.prompt));
  for (const LogitBias& bias : request.options.sampling.biases) {
    SUBBYTE_CHECK(model_.check_tokens({&bias.token, 1}));
  }
  if (std::ssize(request.prompt) <= max_length) return {};
  return Error{"model.context_full", fmt::format("the prompt has {} tokens and the context {}",
                                                 request.prompt.size(), max_length)};
}

Result<RequestId> Scheduler::add(const ScheduledRequest& request) {
  const int64_t wanted =
      request.max_length > 0 ? request.max_length : model_.config().max_positions;
  // One sequence always has room for all of its positions once the others have given theirs.
  const int64_t max_length = std::min(wanted, pool_.max_positions());
  SUBBYTE_CHECK(check(request, max_length));
  const RequestId id = next_request_++;
  GenerateOptions options = request.options;
  for (int64_t i = 0; i < request.num_samples; ++i) {
    samples_.emplace_back(id, i, pool_, max_length, request, options);
    ++options.sampling.seed;
  }
  return id;
}

Scheduler::Samples::iterator Scheduler::erase(Samples::iterator sample) {
  num_running_ -= sample->is_running ? 1 : 0;
  // What is on its way for a sequence that stays is taken back.
  if (&sample->sequence != &sample->own_sequence) clear_steps();
  steps_.forget(sample->sequence);
  for (Owners& owners : owners_) {
    std::ranges::replace(owners, &*sample, static_cast<Sample*>(nullptr));
  }
  const auto next = samples_.erase(sample);
  if (idle()) clear_steps();
  return next;
}

Scheduler::Samples::iterator Scheduler::find(const Sample& sample) {
  return std::ranges::find_if(samples_, [&](const Sample& one) { return &one == &sample; });
}

void Scheduler::clear_steps() {
  steps_.clear();
  owners_.clear();
}

void Scheduler::cancel(RequestId request) {
  for (auto at = samples_.begin(); at != samples_.end();) {
    at = at->request == request ? erase(at) : std::next(at);
  }
}

void Scheduler::cancel(RequestId request, int64_t sample) {
  const auto at = std::ranges::find_if(
      samples_, [&](const Sample& one) { return one.request == request && one.index == sample; });
  if (at != samples_.end()) erase(at);
}

/// Another sample of the request is computing the prompt that this one will share.
bool Scheduler::waits_for_prompt(const Sample& sample) const {
  return sample.sequence.length() == 0 && std::ranges::any_of(samples_, [&](const Sample& other) {
           return other.request == sample.request && other.is_running && !other.has_prompt();
         });
}

/// Room for all that it has so far and for one page that it shares and will write to.
bool Scheduler::has_pages_for(const Sample& sample) const {
  return sample.sequence.has_room_for(sample.generation.tokens_left(), 1);
}

void Scheduler::admit() {
  for (Sample& sample : samples_) {
    if (num_running_ == options_.max_sequences) return;
    if (sample.is_running || waits_for_prompt(sample)) continue;
    // Nobody overtakes the oldest that waits, so all get their turn.
    while (num_running_ > 0 && !has_pages_for(sample)) {
      if (!give_back()) return;
    }
    sample.is_running = true;
    ++num_running_;
  }
}

void Scheduler::preempt(Sample& sample) {
  sample.sequence.truncate(0);
  if (!sample.is_running) return;
  sample.is_running = false;
  --num_running_;
  ++num_preemptions_;
}

/// Room for `tokens` more of a sample, of pages that are free or that no request has.
bool Scheduler::reserve_of_nobody(Sample& sample, int64_t tokens) const {
  while (!sample.sequence.reserve(tokens).ok()) {
    if (!give_back()) return false;
  }
  return true;
}

/// The same, taken from the youngest of those after it where there is none. False when none of them
/// has pages: then it gives up its own and waits.
bool Scheduler::reserve(Sample& sample, int64_t tokens) {
  while (!reserve_of_nobody(sample, tokens)) {
    auto youngest = samples_.rbegin();
    while (&*youngest != &sample && youngest->sequence.is_empty()) ++youngest;
    preempt(*youngest);
    if (&*youngest == &sample) return false;
  }
  return true;
}

/// Whether others will share the prompt of this one, whose states are only kept where steps end:
/// before the last token of the prompt, too.
bool Scheduler::keeps_prompt(const Sample& sample) const {
  const auto& groups = pool_.layout().groups;
  const auto waits = [&](const Sample& other) {
    return other.request == sample.request && other.index != sample.index &&
           other.sequence.length() == 0;
  };
  return !sample.has_prompt() && std::ranges::any_of(groups, &CacheGroup::is_state) &&
         std::ranges::any_of(samples_, waits);
}

std::vector<Part> Scheduler::next_parts(Owners& owners) {
  const auto num_decoding = std::ranges::count_if(samples_, [](const Sample& sample) {
    return sample.is_running && sample.generation.tokens_left() == 1;
  });
  int64_t left = std::max<int64_t>(options_.step_tokens - num_decoding, 1);  // for prompts
  int64_t rows_left = kScoredPromptTokens;
  std::vector<Part> parts;
  // In their order: who gives up pages is younger than all that have a part already.
  for (auto sample = samples_.begin(); sample != samples_.end(); ++sample) {
    if (!sample->is_running) continue;
    const int64_t wanted = sample->generation.tokens_left();
    if (wanted > 1 && left == 0) continue;
    int64_t tokens = wanted > 1 ? std::min(wanted, left) : 1;
    if (tokens == wanted && tokens > 1 && keeps_prompt(*sample)) --tokens;
    if (const int64_t rows = sample->rows_to_score(tokens); rows > rows_left) {
      tokens -= rows - rows_left;
      if (tokens <= 0) continue;  // those before it have taken all rows
    }
    if (!reserve(*sample, tokens)) continue;
    if (wanted > 1) left -= tokens;
    const int64_t rows = std::min(sample->rows_to_score(tokens), tokens);
    rows_left -= rows;
    Part part = sample->generation.next(tokens);
    part.num_logits = std::max<int64_t>(part.choice && sample->num_top_logprobs ? 1 : 0, rows);
    parts.push_back(part);
    owners.push_back(&*sample);
  }
  return parts;
}

/// Whether the step after the last one decodes a token of each of its samples, and of no others.
bool Scheduler::can_go_ahead() {
  const auto is_decode = [](const Part& part) { return part.tokens.size() == 1; };
  const auto goes_ahead = [&](Sample* sample) {
    return sample != nullptr && sample->generation.generated_tokens() > 0 &&
           sample->generation.can_go_ahead() && reserve_of_nobody(*sample, 1);
  };
  if (!steps_.has_room() || !std::ranges::all_of(steps_.last(), is_decode) ||
      !std::ranges::all_of(owners_.back(), goes_ahead)) {
    return false;
  }
  admit();
  return std::ssize(owners_.back()) == num_running_;
}

std::vector<Part> Scheduler::parts_ahead() {
  std::vector<Part> parts;
  for (Sample* const sample : owners_.back()) {
    parts.push_back(sample->generation.next_ahead(std::ssize(parts)));
    if (sample->num_top_logprobs) parts.back().num_logits = 1;
  }
  return parts;
}

Status Scheduler::enqueue_steps() {
  if (steps_.empty()) {
    owners_.clear();  // those that an exception has left
    for (Sample& sample : samples_) sample.generation.choose_angles();
    Owners owners;
    std::vector<Part> parts;
    // A second time when those that ran gave their pages up for an older one that shares a prompt
    // and waits: now it runs.
    while (parts.empty()) {
      admit();
      parts = next_parts(owners);
    }
    SUBBYTE_CHECK(steps_.push(std::move(parts)));
    owners_.push_back(std::move(owners));
  }
  if (!can_go_ahead()) return {};
  SUBBYTE_CHECK(steps_.push(parts_ahead()));
  owners_.push_back(Owners(owners_.back()));
  return {};
}

/// Gives the samples that wait for the prompt what `from` has computed of it.
void Scheduler::share_prompt(const Sample& from) {
  const int64_t length = from.generation.prompt_tokens() - 1;
  if (!from.sequence.holds(length)) return;
  for (Sample& other : samples_) {
    if (other.request != from.request || other.is_running || other.sequence.length() > 0) continue;
    if (!other.is_scored()) continue;  // it computes its own
    other.sequence = from.sequence.share(length);
  }
}

/// How likely the tokens after those of the part are, as far as they are of the prompt. The rows of
/// the part begin with `first_row`.
std::vector<Logprobs> Scheduler::score_prompt(Sample& sample, const Part& part,
                                              int64_t first_row) const {
  std::vector<Logprobs> scores;
  const std::span<const int32_t> tokens = sample.generation.tokens();
  const int64_t first = sample.sequence.length() - part.num_logits;
  for (int64_t i = 0; i < part.num_logits; ++i) {
    if (first + i != sample.num_scored) continue;
    if (sample.num_scored + 1 >= sample.generation.prompt_tokens()) break;
    ++sample.num_scored;
    scores.push_back(logprobs_of(logits_.row(first_row + i), tokens[sample.num_scored],
                                 sample.num_top_logprobs.value_or(0)));
  }
  return scores;
}

SampleEvent Scheduler::accept(Sample& sample, const Part& part, int32_t token,
                              std::span<const float> logits) {
  SampleEvent event;
  event.request = sample.request;
  event.sample = sample.index;
  const Result<Generation::Event> accepted = sample.generation.accept(token);
  if (!accepted.ok()) {
    event.error = locate_not_finite(sample, std::ssize(part.tokens), accepted.error());
    return event;
  }
  if (const Status unchanged = model_.verify_unchanged(); accepted->stop && !unchanged.ok()) {
    event.error = unchanged.error();
    return event;
  }
  event.token = accepted->token;
  event.stop = accepted->stop;
  if (event.stop == StopReason::kStopToken) event.stop_token = token;
  if (event.token && part.num_logits > 0) {
    event.logprobs = logprobs_of(logits, token, *sample.num_top_logprobs);
  }
  return event;
}

/// The step after this one is computed anew.
Error Scheduler::locate_not_finite(Sample& sample, int64_t tokens, const Error& error) {
  clear_steps();
  if (!sample.sequence.holds(sample.sequence.length() - tokens)) return error;
  const Part again = sample.generation.again(tokens);
  return model_.locate_not_finite(backend_, {{&again, 1}}, error);
}

Result<std::vector<SampleEvent>> Scheduler::step() {
  std::vector<SampleEvent> events;
  if (idle()) return events;
  SUBBYTE_CHECK(enqueue_steps());
  Result<std::vector<Part>> parts = steps_.pop(logits_);
  if (!parts.ok()) {
    owners_.clear();
    return std::move(parts).error();
  }
  const Owners owners = std::move(owners_.front());
  owners_.pop_front();
  num_computed_tokens_ += Batch{*parts}.num_tokens();
  int64_t row = 0;
  int64_t choice = 0;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const Part& part = (*parts)[i];
    const int32_t token = part.choice ? logits_.tokens[choice++] : kNoToken;
    const int64_t first_row = row;
    row += part.num_logits;
    const auto logits = part.num_logits > 0 ? std::span<const float>(logits_.row(row - 1))
                                            : std::span<const float>();
    if (owners[i] == nullptr) continue;
    Sample& sample = *owners[i];
    if (sample.has_prompt() && !sample.had_prompt(std::ssize(part.tokens))) share_prompt(sample);
    std::vector<Logprobs> scores;
    if (sample.scores_prompt) scores = score_prompt(sample, part, first_row);
    if (!part.choice && scores.empty()) continue;
    SampleEvent event;
    event.request = sample.request;
    event.sample = sample.index;
    if (part.choice) event = accept(sample, part, token, logits);
    event.prompt_logprobs = std::move(scores);
    events.push_back(std::move(event));
    if (events.back().is_end()) erase(find(sample));
  }
  return events;
}

}  // namespace subbyte
