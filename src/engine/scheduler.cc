#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

namespace subbyte {
namespace {

/// Part of a step that is waited for where its end is seen and not found later.
constexpr double kSeen = 1.0 / 16;

}  // namespace

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
  requests_[id] = {request.priority, request.num_samples, request.num_samples};
  GenerateOptions options = request.options;
  for (int64_t i = 0; i < request.num_samples; ++i) {
    const Place place = {request.priority, id, i};
    Sample& sample =
        waiting_.try_emplace(place, pool_, place, max_length, request, options).first->second;
    if (!options_.shares_prefixes) sample.kind.request = id;
    ++options.sampling.seed;
  }
  return id;
}

Scheduler::Sample* Scheduler::find(const Place& place) {
  const auto running = running_.find(place);
  if (running != running_.end()) return &running->second;
  const auto waiting = waiting_.find(place);
  return waiting == waiting_.end() ? nullptr : &waiting->second;
}

void Scheduler::erase(const Place& place) {
  Sample& sample = *find(place);
  steps_.forget(sample.sequence);
  for (Step& step : submitted_) {
    std::ranges::replace(step.owners, &sample, static_cast<Sample*>(nullptr));
  }
  TextKind kind = sample.kind;
  if (running_.erase(place) == 0) waiting_.erase(place);
  const auto request = requests_.find(place.request);
  if (--request->second.num_left == 0) {
    requests_.erase(request);
    for (const bool is_long : {false, true}) {
      kind.is_long = is_long;
      if (!options_.shares_prefixes) prefixes_.forget(kind);
    }
  }
  if (idle()) clear_steps();
}

/// What it has computed is known from now on.
void Scheduler::end(const Place& place) {
  Sample* const sample = find(place);
  if (sample == nullptr) return;
  keep_end(*sample);
  erase(place);
}

void Scheduler::clear_steps() {
  num_discarded_steps_ += std::ssize(submitted_);
  steps_.clear();
  submitted_.clear();
  for (auto& [place, sample] : running_) sample.on_its_way = 0;
}

void Scheduler::cancel(RequestId request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return;
  const Request one = found->second;
  for (int64_t i = 0; i < one.num_samples; ++i) end({one.priority, request, i});
}

void Scheduler::cancel(RequestId request, int64_t sample) {
  const auto found = requests_.find(request);
  if (found != requests_.end()) end({found->second.priority, request, sample});
}

Status Scheduler::verify_unchanged() {
  Status unchanged = model_.verify_unchanged();
  if (!unchanged.ok()) prefixes_.clear();
  return unchanged;
}

/// Says whether it lacked pages before, and nobody has given any back since.
bool Scheduler::still_lacks_room(const Sample& next) {
  std::vector<int64_t> held;
  for (const KvGroup& group : std::as_const(pool_).groups()) held.push_back(group.num_held());
  const std::vector<int64_t> before = std::exchange(held_, std::move(held));
  if (next.place != lacking_ || (next.num_awaited > 0 && !is_led(next))) return false;
  return std::ranges::equal(held_, before, std::ranges::greater_equal());
}

/// Those that wait for a prefix that another computes leave their places to as many others.
bool Scheduler::has_place(int64_t num_before) const {
  const int64_t all = std::ssize(running_) + num_before;
  if (all < options_.max_sequences) return true;
  const auto num_led =
      std::ranges::count_if(running_, [&](const auto& one) { return is_led(one.second); });
  return all < options_.max_sequences + std::min(num_led, options_.max_sequences);
}

void Scheduler::admit() {
  while (!waiting_.empty() && has_place(0)) {
    Sample& next = waiting_.begin()->second;
    if (!running_.empty() && still_lacks_room(next)) return;
    begin(next);
    // Room for all that it has so far and for one page that it shares and will write to. Nobody
    // overtakes the first that waits, so all get their turn.
    if (!running_.empty() && !make_room(next.sequence, next.generation.tokens_left(), 1)) {
      next.sequence.truncate(0);
      lacking_ = next.place;
      return;
    }
    running_.insert(waiting_.extract(waiting_.begin()));
  }
}

void Scheduler::preempt(Sample& sample) {
  keep_end(sample);
  sample.sequence.truncate(0);
  waiting_.insert(running_.extract(sample.place));
  ++num_preemptions_;
}

/// Room for `tokens` more of a sequence, of pages that are free or only known.
bool Scheduler::make_room(const Sequence& sequence, int64_t tokens, int64_t spare) {
  const auto groups = std::as_const(pool_).groups();
  for (int32_t group = 0; group < std::ssize(groups); ++group) {  // before anything goes
    if (sequence.missing(group, tokens, spare) > groups[group].num_idle()) return false;
  }
  for (int32_t group = 0; group < std::ssize(groups); ++group) {
    while (sequence.missing(group, tokens, spare) > 0) {
      if (!prefixes_.evict(group)) return false;
    }
  }
  return true;
}

/// The same, taken from the last of those after it where there is none. False when none of them has
/// pages: then it gives up its own and waits.
bool Scheduler::reserve(Sample& sample, int64_t tokens) {
  const auto has_pages = [&](const auto& one) {
    return &one.second != &sample && !one.second.sequence.is_empty();
  };
  while (!make_room(sample.sequence, tokens)) {
    auto last = running_.rbegin();
    while (&last->second != &sample && last->second.sequence.is_empty()) ++last;
    if (&last->second != &sample) {
      preempt(last->second);
    } else if (std::ranges::none_of(running_, has_pages) && prefixes_.counts().pages > 0) {
      prefixes_.clear();  // of its own text, of which it would have to copy a page
    } else {
      preempt(sample);
      return false;
    }
  }
  return true;
}

/// Says whether the next step can have a part of it, and prepares it for that.
bool Scheduler::takes_part(Sample& sample, bool is_ahead) {
  if (is_led(sample) || (sample.on_its_way > 0 && backend_.steps_at_once() > 1)) return false;
  const int64_t length = std::ssize(sample.generation.tokens());
  // Who computes the prefix is done, or gone; or all angles are others from here on.
  if (sample.num_awaited > 0 || pool_.is_long(length) != sample.kind.is_long) begin(sample);
  if (sample.num_awaited > 0) return false;
  const bool follows = is_ahead && backend_.steps_at_once() == 1;
  return sample.generation.tokens_left() > 0 || (follows && sample.generation.can_go_ahead());
}

/// Tokens that a sample can have in a step, of which so many may be scored.
int64_t Scheduler::most_tokens(const Sample& sample, int64_t rows_left) const {
  const int64_t length = sample.sequence.length();
  int64_t tokens = std::max<int64_t>(sample.generation.tokens_left(), 1);
  const auto end = sample.ends.upper_bound(length);
  if (end != sample.ends.end()) tokens = std::min(tokens, *end - length);
  if (sample.is_scored()) return tokens;
  return std::clamp<int64_t>(rows_left + sample.num_scored - length, 0, tokens);
}

/// In the order of the samples: who gives up pages comes after all that have a part already. Who
/// has a place keeps it, also where another one has lent it.
std::vector<Scheduler::Share> Scheduler::shares(bool is_ahead) {
  std::vector<Sample*> order;
  for (auto& [place, sample] : running_) order.push_back(&sample);
  if (std::ssize(order) > options_.max_sequences) {
    std::ranges::stable_sort(order, {}, [](const Sample* sample) {
      return std::pair(sample->place.priority, !sample->has_place);
    });
  }
  std::vector<Share> shares;
  int64_t num_answering = 0;
  int64_t places_left = options_.max_sequences;
  int64_t rows_left = kScoredPromptTokens;
  for (Sample* const sample : order) {
    if (places_left == 0) break;
    const bool has_part = takes_part(*sample, is_ahead);
    if (sample->num_awaited > 0) continue;
    sample->has_place = true;
    --places_left;
    num_answering += sample->generation.tokens_left() > 1 ? 0 : 1;
    if (!has_part) continue;
    const int64_t most = most_tokens(*sample, rows_left);
    rows_left -= sample->rows_to_score(most);
    const bool is_prompt = sample->generation.tokens_left() > 1;
    shares.push_back({sample, most, is_prompt ? 0 : most, is_prompt});
  }
  std::ranges::sort(shares, {}, [](const Share& share) { return share.sample->place; });
  leave_to_others(shares, num_answering);
  give_tokens(shares, num_answering);
  return shares;
}

/// Of those that answer each of several steps at once has as many.
void Scheduler::leave_to_others(std::vector<Share>& shares, int64_t num_answering) const {
  const int64_t steps = backend_.steps_at_once();
  int64_t left = (num_answering + steps - 1) / steps;
  std::erase_if(shares, [&](const Share& share) { return !share.is_prompt && left-- <= 0; });
}

/// Tokens that prompts may have beside so many that answer, of which some may have no part in the
/// step, as they wait for the one before it.
int64_t Scheduler::most_prompt_tokens(std::span<Share* const> prompts, int64_t num_answering) {
  const bool has_long = std::ranges::any_of(prompts, [&](const Share* prompt) {
    return prompt->sample->tokens_to_compute() > options_.step_tokens;
  });
  if (options_.max_slowdown == 0 || num_answering == 0 || !has_long) return options_.step_tokens;
  return costs_.most_prompt_tokens(num_answering, std::ssize(prompts), options_.max_slowdown);
}

/// What is left of a step to those that are prompts.
void Scheduler::give_tokens(std::vector<Share>& shares, int64_t num_answering) {
  std::vector<Share*> prompts;
  int64_t num_answers = 0;
  for (Share& share : shares) {
    if (share.is_prompt) prompts.push_back(&share);
    num_answers += share.tokens;
  }
  if (prompts.empty()) return;
  int64_t left = std::max<int64_t>(options_.step_tokens - num_answers, 1);
  left = std::min(left, most_prompt_tokens(prompts, num_answering));
  if (num_answers == 0) left = std::max<int64_t>(left, 1);  // a step is not empty
  const auto give = [&](Share& share, int64_t most) {
    const int64_t more = std::min({most, left, share.most - share.tokens});
    share.tokens += more;
    left -= more;
  };
  give(*prompts.front(), (left + 1) / 2);
  std::ranges::stable_sort(
      prompts, {}, [](const Share* prompt) { return prompt->sample->generation.tokens_left(); });
  for (Share* const prompt : prompts) give(*prompt, left);
}

Part Scheduler::next_part(Sample& sample, int64_t tokens) {
  if (sample.num_cached < 0) {
    sample.num_cached = sample.sequence.length();
    num_cached_tokens_ += sample.num_cached;
    num_prompt_tokens_ += sample.generation.prompt_tokens();
    known_.in_common += sample.found.length_in_common;
    known_.of_pages += sample.found.length_of_pages;
  }
  const bool is_ahead = sample.generation.tokens_left() == 0;
  const int64_t rows = std::min(sample.rows_to_score(tokens), tokens);
  Part part =
      is_ahead ? sample.generation.next_ahead(sample.choice) : sample.generation.next(tokens);
  part.num_logits = std::max<int64_t>(part.choice && sample.num_top_logprobs ? 1 : 0, rows);
  return part;
}

/// `is_ahead`: of the step before this one no token is known, and nobody gives up pages.
Scheduler::Step Scheduler::next_step(bool is_ahead) {
  Step step;
  for (const Share& share : shares(is_ahead)) {
    Sample& sample = *share.sample;
    if (share.tokens == 0 || !running_.contains(sample.place)) continue;
    const bool has_room =
        is_ahead ? make_room(sample.sequence, share.tokens) : reserve(sample, share.tokens);
    if (!has_room || !sample.sequence.reserve(share.tokens).ok()) {
      lacks_room_ = true;
      continue;
    }
    step.parts.push_back(next_part(sample, share.tokens));
    step.owners.push_back(&sample);
    step.load.num_answers += share.is_prompt ? 0 : 1;
    step.load.prompt_tokens += share.is_prompt ? share.tokens : 0;
  }
  return step;
}

double Scheduler::now() const {
  if (options_.seconds) return options_.seconds();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Status Scheduler::push(Step step) {
  step.begin = now();
  SUBBYTE_CHECK(steps_.push(std::move(step.parts)));
  int64_t num_choices = 0;
  for (std::size_t i = 0; i < step.owners.size(); ++i) {
    const Part& part = steps_.last()[i];
    step.owners[i]->on_its_way += std::ssize(part.tokens);
    if (part.choice) step.owners[i]->choice = num_choices++;
  }
  submitted_.push_back(std::move(step));
  return {};
}

Status Scheduler::enqueue_steps() {
  if (steps_.empty()) {
    submitted_.clear();  // those that an exception has left
    Step step;
    // A second time when those that ran gave their pages up for one before them that waits: now it
    // runs.
    while (step.parts.empty()) {
      admit();
      step = next_step(false);
    }
    lacks_room_ = false;
    SUBBYTE_CHECK(push(std::move(step)));
  }
  // Who lacks pages gets them from others when nothing is on its way.
  while (steps_.takes_more() && !lacks_room_) {
    admit();
    Step more = next_step(true);
    if (more.parts.empty()) return {};
    SUBBYTE_CHECK(push(std::move(more)));
  }
  return {};
}

/// How likely the tokens after those of the part are, as far as they are of the prompt. The rows of
/// the part begin with `first_row`.
std::vector<Logprobs> Scheduler::score_prompt(Sample& sample, const Part& part,
                                              int64_t first_row) const {
  std::vector<Logprobs> scores;
  const std::span<const int32_t> tokens = sample.generation.tokens();
  const int64_t first = sample.finished_length() - part.num_logits;
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
  const Result<Generation::Event> accepted = sample.generation.accept(token);
  if (!accepted.ok()) {
    event.error = locate_not_finite(sample, std::ssize(part.tokens), accepted.error());
    return event;
  }
  const Status unchanged = accepted->stop ? verify_unchanged() : Status();
  if (!unchanged.ok()) {
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

/// What came of a part of a step: an event, or nothing yet. `first_row`: of its logits.
std::optional<SampleEvent> Scheduler::take(Sample& sample, const Part& part, int32_t token,
                                           int64_t first_row) {
  SampleEvent event;
  std::vector<Logprobs> scores;
  if (sample.scores_prompt) scores = score_prompt(sample, part, first_row);
  if (part.choice) {
    const auto logits = part.num_logits > 0
                            ? std::span<const float>(logits_.row(first_row + part.num_logits - 1))
                            : std::span<const float>();
    event = accept(sample, part, token, logits);
  }
  if (!event.error) {
    keep(sample, part.choice.has_value());
    sample.sequence.settle(sample.finished_length());
  }
  if (!part.choice && scores.empty()) return std::nullopt;
  event.request = sample.place.request;
  event.sample = sample.place.index;
  event.cached_tokens = sample.num_cached;
  event.prompt_logprobs = std::move(scores);
  return event;
}

/// The machine begins with a step when the one before it is done. When that was is known where it
/// was waited for: a step whose end or begin was not seen is not measured.
void Scheduler::measure(const Step& done, double asked) {
  const double end = now();
  const bool was_seen = std::exchange(is_end_seen_, end - asked > kSeen * (end - done.begin));
  const double last_end = std::exchange(last_end_, end);
  if (is_end_seen_ && (was_seen || done.begin >= last_end)) {
    costs_.add(done.load, end - std::max(done.begin, last_end));
  }
}

Result<std::vector<SampleEvent>> Scheduler::step() {
  std::vector<SampleEvent> events;
  if (idle()) return events;
  SUBBYTE_CHECK(enqueue_steps());
  const double asked = now();
  Result<std::vector<Part>> parts = steps_.pop(logits_);
  if (!parts.ok()) {
    clear_steps();
    return std::move(parts).error();
  }
  const Step done = std::move(submitted_.front());
  submitted_.pop_front();
  measure(done, asked);
  const std::vector<Sample*>& owners = done.owners;
  num_computed_tokens_ += Batch{*parts}.num_tokens();
  if (std::ranges::all_of(owners, [](const Sample* one) { return one == nullptr; })) {
    ++num_discarded_steps_;
  }
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const int64_t tokens = std::ssize((*parts)[i].tokens);
    if (owners[i] == nullptr) {
      num_discarded_tokens_ += tokens;
    } else {
      owners[i]->on_its_way -= tokens;
    }
  }
  int64_t row = 0;
  int64_t choice = 0;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const Part& part = (*parts)[i];
    const int32_t token = part.choice ? logits_.tokens[choice++] : kNoToken;
    const int64_t first_row = std::exchange(row, row + part.num_logits);
    if (owners[i] == nullptr) continue;
    std::optional<SampleEvent> event = take(*owners[i], part, token, first_row);
    if (!event) continue;
    events.push_back(*std::move(event));
    const Place place = owners[i]->place;
    if (events.back().error) {
      erase(place);
    } else if (events.back().stop) {
      end(place);
    }
  }
  return events;
}

}  // namespace subbyte
