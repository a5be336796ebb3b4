#include "subbyte/session.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cpp_interface/session_types.h"
#include "cpp_interface/threads.h"
#include "cpp_interface/tokenizer_data.h"
#include "engine/perplexity.h"
#include "engine/token_logits.h"

namespace subbyte::wrapped {

static_assert(static_cast<int>(CacheType::kE4M3) == static_cast<int>(Element::kE4M3));
static_assert(static_cast<int>(CacheType::kBF16) == static_cast<int>(Element::kBF16));
static_assert(static_cast<int>(CacheType::kF16) == static_cast<int>(Element::kF16));

namespace {

/// A session and the threads that it runs on, which outlive it.
struct Loaded {
  explicit Loaded(const DeviceOptions& options) : device(options) {}

  DeviceOptions device;
  std::unique_ptr<subbyte::Session> session;
};

}  // namespace

struct Session::State {
  std::shared_ptr<const Loaded> loaded;  // which copies of the tokenizer keep, too
  ModelInfo info;
  Tokenizer tokenizer;
  Element cache_type;

  subbyte::Session& session() const { return *loaded->session; }

  Status check_idle() const {
    if (session().idle()) return {};
    return Error{"session.busy", "expected no other request, found some that run"};
  }
};

namespace {

subbyte::SessionOptions to_own(const SessionOptions& given, const DeviceOptions& device) {
  subbyte::SessionOptions own;
  own.device = wrapped::to_own(device);
  own.auto_device.on_choice = given.on_device;
  own.head_bits = given.head_bits;
  own.size.cache_type = static_cast<Element>(given.cache_type);
  own.size.context = given.context;
  own.size.cache_positions = given.cache_positions;
  own.size.max_sequences = given.max_sequences;
  own.size.step_tokens = given.step_tokens;
  own.size.scored_rows = given.scores_prompts ? kScoredPromptTokens : 0;
  own.progress = given.progress;
  return own;
}

ModelInfo info_of(const ReadyModel& ready) {
  const ModelConfig& config = ready.config;
  return {.type = config.model_type,
          .num_layers = config.num_layers,
          .hidden_size = config.hidden_size,
          .vocab_size = config.vocab_size,
          .max_positions = config.max_positions,
          .weight_bytes = ready.model->weight_bytes(),
          .stop_tokens = config.eos_tokens,
          .directory = ready.directory,
          .device = ready.backend->description()};
}

/// The samples of some requests, put together of what steps give.
class Completions {
 public:
  explicit Completions(subbyte::Session& session) : session_(session) {}

  /// `is_whole`: nobody is told of deltas.
  Status add(const Request& request, bool is_whole) {
    SUBBYTE_TRY(SessionRequest own, wrapped::to_own(request, session_.text()));
    own.is_whole = is_whole;
    SUBBYTE_TRY(const RequestId id, session_.add(own));
    first_[id] = completions_.size();
    completions_.resize(completions_.size() + own.num_samples);
    return {};
  }

  /// Steps until all have ended. An error ends all of them.
  Status run(const std::function<bool(const Delta&)>& on_delta) {
    while (!session_.idle()) {
      auto deltas = session_.step();
      if (!deltas.ok()) return stop(std::move(deltas).error());
      for (subbyte::Delta& own : *deltas) {
        if (own.error) return stop(*std::move(own.error));
        const Delta delta = to_public(std::move(own));
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
    append(delta, completions_[first_.at(delta.request) + static_cast<std::size_t>(delta.sample)]);
  }

  /// The last deltas are told as well.
  void cancel(RequestId id, const std::function<bool(const Delta&)>& on_delta) {
    for (subbyte::Delta& own : session_.cancel(id)) {
      const Delta last = to_public(std::move(own));
      take(last);
      on_delta(last);
    }
  }

  subbyte::Session& session_;
  std::map<RequestId, std::size_t> first_;  // sample of each request
  std::vector<Completion> completions_;
};

Result<std::vector<Completion>> complete(subbyte::Session& session,
                                         std::span<const Request> requests,
                                         const std::function<bool(const Delta&)>& on_delta) {
  Completions completions(session);
  for (const Request& request : requests) {
    const Status added = completions.add(request, !on_delta);
    if (!added.ok()) return completions.stop(added.error());
  }
  SUBBYTE_CHECK(completions.run(on_delta));
  return std::move(completions).completions();
}

Result<subbyte::Perplexity> perplexity_of(const ReadyModel& ready, Element cache_type,
                                          std::span<const TokenId> tokens, int64_t window) {
  SUBBYTE_CHECK(check_context(ready.config, window));
  SUBBYTE_CHECK(ready.model->check_tokens(tokens));
  SUBBYTE_TRY(const subbyte::Perplexity found,
              perplexity(*ready.model, *ready.backend, cache_type, tokens, window));
  SUBBYTE_CHECK(ready.model->verify_unchanged());
  return found;
}

Result<std::vector<float>> logits_of(const ReadyModel& ready, Element cache_type,
                                     std::span<const TokenId> tokens) {
  SUBBYTE_CHECK(check_context(ready.config, std::ssize(tokens)));
  SUBBYTE_CHECK(ready.model->check_tokens(tokens));
  std::vector<float> all;
  if (tokens.empty()) return all;
  all.reserve(tokens.size() * static_cast<std::size_t>(ready.config.vocab_size));
  SUBBYTE_CHECK(token_logits({*ready.model, *ready.backend}, cache_type, tokens,
                             [&](std::span<const float> rows) -> Status {
                               all.insert(all.end(), rows.begin(), rows.end());
                               return {};
                             }));
  return all;
}

}  // namespace

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::open(const std::filesystem::path& model, const SessionOptions& options) {
  auto loaded = std::make_shared<Loaded>(options.device);
  auto opened = subbyte::Session::open(model.string(), to_own(options, loaded->device));
  if (!opened.ok()) return std::move(opened).error();
  loaded->session = std::move(opened).value();
  const subbyte::Session& session = *loaded->session;
  Tokenizer tokenizer(
      std::make_shared<const Tokenizer::Data>(Tokenizer::Data{loaded, &session.text().tokenizer}));
  ModelInfo info = info_of(session.ready());
  return Session(
      std::unique_ptr<State>(new State{std::move(loaded), std::move(info), std::move(tokenizer),
                                       static_cast<Element>(options.cache_type)}));
}

const ModelInfo& Session::model() const {
  return state_->info;
}

const Tokenizer& Session::tokenizer() const {
  return state_->tokenizer;
}

int64_t Session::context() const {
  return state_->session().context();
}

Result<RequestId> Session::add(const Request& request) {
  const auto own = to_own(request, state_->session().text());
  if (!own.ok()) return own.error();
  return state_->session().add(*own);
}

Result<std::vector<Delta>> Session::step() {
  auto stepped = state_->session().step();
  if (!stepped.ok()) return std::move(stepped).error();
  std::vector<Delta> deltas;
  for (subbyte::Delta& delta : *stepped) deltas.push_back(to_public(std::move(delta)));
  return deltas;
}

std::vector<Delta> Session::cancel(RequestId request) {
  std::vector<Delta> deltas;
  for (subbyte::Delta& delta : state_->session().cancel(request)) {
    deltas.push_back(to_public(std::move(delta)));
  }
  return deltas;
}

bool Session::idle() const {
  return state_->session().idle();
}

Result<Completion> Session::generate(const Request& request,
                                     const std::function<bool(const Delta&)>& on_delta) {
  if (request.num_samples != 1) {
    return Error{"session.samples",
                 "expected one sample, found " + std::to_string(request.num_samples)};
  }
  if (const auto idle = state_->check_idle(); !idle.ok()) return idle.error();
  auto completions = complete(state_->session(), {&request, 1}, on_delta);
  if (!completions.ok()) return std::move(completions).error();
  return std::move(completions->front());
}

Result<std::vector<Completion>> Session::generate_all(std::span<const Request> requests) {
  if (const auto idle = state_->check_idle(); !idle.ok()) return idle.error();
  return (complete(state_->session(), requests, nullptr));
}

Result<std::vector<TokenId>> Session::encode(const Request& request) const {
  const auto own = to_own(request, state_->session().text());
  if (!own.ok()) return own.error();
  return state_->session().text().encode(*own);
}

Result<Perplexity> Session::perplexity(std::span<const TokenId> tokens, int64_t window) {
  if (const auto idle = state_->check_idle(); !idle.ok()) return idle.error();
  const auto found = perplexity_of(state_->session().ready(), state_->cache_type, tokens, window);
  if (!found.ok()) return found.error();
  return Perplexity{found->per_token, found->nats, found->scored};
}

Result<std::vector<float>> Session::logits(std::span<const TokenId> tokens) {
  if (const auto idle = state_->check_idle(); !idle.ok()) return idle.error();
  return (logits_of(state_->session().ready(), state_->cache_type, tokens));
}

}  // namespace subbyte::wrapped
