// Models that answer requests: open, add, step, cancel, and a whole answer at once.

#include "session/session.h"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/quote.h"
#include "base/random.h"
#include "base/sha256.h"
#include "c_interface/errors.h"
#include "c_interface/turns.h"
#include "completions/answer.h"
#include "completions/request.h"

namespace {

struct State : subbyte::c::Turns {
  State() : Turns("session", "session.busy") {}

  std::string name;
  std::optional<subbyte::Session> session;
  uint64_t seed = 0;
  uint64_t num_added = 0;
  std::vector<subbyte::Delta> pending;  // of requests that ended outside of a step
};

}  // namespace

struct subbyte_session {
  std::shared_ptr<State> state;
};

using namespace subbyte;

namespace {

using json::Value;

Result<CacheType> read_cache_type(const char* name) {
  if (name == nullptr) return CacheType::kF16;
  const std::optional<CacheType> found = find_cache_type(name);
  if (found) return *found;
  return c::refuse("options.cache_type", "\"f16\", \"bf16\", \"f32\" or \"e4m3\"", quote(name));
}

Status check_range(const char* name, int64_t value, int64_t max) {
  if (value >= 0 && value <= max) return {};
  return c::refuse(name, "0 to " + std::to_string(max), value);
}

Status open(const char* model, const subbyte_session_options* from, subbyte_session** to) {
  SUBBYTE_CHECK(c::check_addresses({{"model", model}, {"session", to}}));
  subbyte_session_options o = {};
  if (from != nullptr) {
    SUBBYTE_TRY(o, c::read_struct("options", from));
  }
  constexpr int64_t kMaxPositions = int64_t{1} << 40;
  SUBBYTE_CHECK(check_range("options.context", o.context, kMaxPositions));
  SUBBYTE_CHECK(check_range("options.cache_positions", o.cache_positions, kMaxPositions));
  SUBBYTE_CHECK(check_range("options.max_sequences", o.max_sequences, 65536));
  SUBBYTE_CHECK(check_range("options.num_threads", o.num_threads, 4096));
  if (o.reserved != 0) return c::refuse("options.reserved", "0", o.reserved);
  SessionOptions options;
  if (o.device != nullptr) options.device.device = o.device;
  options.device.num_threads = o.num_threads;
  options.device.batch_invariant = o.batch_invariant != 0;
  if (o.tensor_parallel_size != 0) options.device.tensor_parallel_size = o.tensor_parallel_size;
  if (o.pipeline_parallel_size != 0) {
    options.device.pipeline_parallel_size = o.pipeline_parallel_size;
  }
  if (o.gpu_layers != 0) options.device.gpu_layers = o.gpu_layers;
  SUBBYTE_TRY(options.cache_type, read_cache_type(o.cache_type));
  options.context = o.context;
  options.cache_positions = o.cache_positions;
  if (o.max_sequences > 0) options.max_sequences = o.max_sequences;
  options.scores_prompts = true;
  options.sampling.seed = o.seed;
  auto made = std::make_shared<State>();
  SUBBYTE_TRY(made->session, Session::open(model, options));
  made->name = model;
  made->seed = o.seed;
  *to = new subbyte_session{std::move(made)};
  return {};
}

/// The thread has a turn on the session, here and below.
Result<CompletionRequest> read_request(State& session, const char* text) {
  SUBBYTE_TRY(const Value value, json::parse(text, "request", {}, json::kTextMemoryFactor));
  SUBBYTE_TRY(const json::Object body, json::Object::of(value, "request"));
  SUBBYTE_TRY(CompletionRequest request, read_completion(body, {}));
  if (request.echo) {
    return body.error("completion.field", "echo", "false: a session does not repeat the prompt");
  }
  if (!request.sampling.seed) {  // one that fits into the numbers of every reader of JSON
    request.sampling.seed = Random(session.seed + session.num_added).next() >> 11;
  }
  ++session.num_added;
  return request;
}

Value logprobs_as_json(const std::vector<Logprobs>& logprobs) {
  Value list = Value::array();
  for (const Logprobs& one : logprobs) {
    Value top = Value::array();
    for (const TokenLogprob& other : one.top) {
      top.push_back({{"token", other.token}, {"logprob", std::max(other.logprob, -9999.0)}});
    }
    list.push_back({{"token", one.chosen.token},
                    {"logprob", std::max(one.chosen.logprob, -9999.0)},
                    {"top", std::move(top)}});
  }
  return list;
}

Value end_as_json(const SampleEnd& end) {
  return {{"finish_reason", finish_reason(end.reason, end.num_tool_calls > 0)},
          {"stop", end.stop.empty() ? Value() : Value(end.stop)},
          {"prompt_tokens", end.prompt_tokens},
          {"completion_tokens", end.generated_tokens},
          {"prefill_seconds", end.prefill_seconds},
          {"decode_seconds", end.decode_seconds}};
}

/// docs/c.md has the fields.
std::string event_of(const Delta& delta) {
  std::string content, reasoning;
  Value tool_calls = Value::array();
  for (const Piece& piece : delta.pieces) {
    if (piece.channel == Channel::kToolCall) {
      tool_calls.push_back(call_as_json(piece));
      continue;
    }
    append_text(piece, content, reasoning);
  }
  Value event = {{"id", delta.request},
                 {"index", delta.sample},
                 {"content", content},
                 {"reasoning_content", reasoning},
                 {"tool_calls", std::move(tool_calls)},
                 {"tokens", delta.tokens},
                 {"logprobs", logprobs_as_json(delta.logprobs)},
                 {"prompt_logprobs", logprobs_as_json(delta.prompt_logprobs)},
                 {"end", delta.end ? end_as_json(*delta.end) : Value()},
                 {"error", Value()}};
  if (delta.error) {
    event["error"] = {{"code", delta.error->code}, {"message", delta.error->message}};
  }
  return json::to_text(event);
}

Status add(subbyte_session* session, const char* text, uint64_t* id) {
  SUBBYTE_CHECK(c::check_addresses({{"session", session}, {"request", text}, {"id", id}}));
  SUBBYTE_TRY(const auto turn, c::Turn::take(session->state));
  State& state = *session->state;
  SUBBYTE_TRY(const CompletionRequest request, read_request(state, text));
  SUBBYTE_TRY(const RequestId added, state.session->add(request));
  *id = static_cast<uint64_t>(added);
  return {};
}

/// What waits, and what a step gives.
Result<std::vector<Delta>> take_step(State& session) {
  std::vector<Delta> deltas = std::move(session.pending);
  session.pending.clear();
  if (session.session->idle()) return deltas;
  auto step = session.session->step();
  if (!step.ok()) {
    session.pending = std::move(deltas);
    return std::move(step).error();
  }
  for (Delta& delta : *step) deltas.push_back(std::move(delta));
  return deltas;
}

Status step(subbyte_session* session, subbyte_event_function function, void* user) {
  SUBBYTE_CHECK(c::check_addresses(
      {{"session", session}, {"event", reinterpret_cast<const void*>(function)}}));
  SUBBYTE_TRY(const auto turn, c::Turn::take(session->state));
  State& state = *session->state;
  SUBBYTE_TRY(const std::vector<Delta> deltas, take_step(state));
  for (const Delta& delta : deltas) function(user, event_of(delta).c_str());
  return {};
}

Status poll(subbyte_session* session, char** json) {
  SUBBYTE_CHECK(c::check_addresses({{"session", session}, {"json", json}}));
  SUBBYTE_TRY(const auto turn, c::Turn::take(session->state));
  State& state = *session->state;
  SUBBYTE_TRY(const std::vector<Delta> deltas, take_step(state));
  std::string text = "[";
  for (const Delta& delta : deltas) text += (text.size() > 1 ? "," : "") + event_of(delta);
  return c::hand_out(text + "]", json);
}

Status cancel(subbyte_session* session, uint64_t id) {
  SUBBYTE_CHECK(c::check_addresses({{"session", session}}));
  SUBBYTE_TRY(const auto turn, c::Turn::take(session->state));
  State& state = *session->state;
  for (Delta& delta : state.session->cancel(static_cast<RequestId>(id))) {
    state.pending.push_back(std::move(delta));
  }
  return {};
}

Status ask_idle(subbyte_session* session, int32_t* idle) {
  SUBBYTE_CHECK(c::check_addresses({{"session", session}, {"idle", idle}}));
  SUBBYTE_TRY(const auto turn, c::Turn::take(session->state));
  State& state = *session->state;
  *idle = state.session->idle() && state.pending.empty() ? 1 : 0;
  return {};
}

Status describe(subbyte_session* session, char** json) {
  SUBBYTE_CHECK(c::check_addresses({{"session", session}, {"json", json}}));
  SUBBYTE_TRY(const auto turn, c::Turn::take(session->state));
  State& state = *session->state;
  const Session& s = *state.session;
  const Value root = {{"model", state.name},
                      {"device", s.ready().backend->description()},
                      {"context", s.context()},
                      {"max_context", s.ready().config.max_positions},
                      {"max_sequences", s.scheduler().max_sequences()},
                      {"waiting", s.scheduler().num_waiting()},
                      {"chat_format", name(s.text().format)},
                      {"load_seconds", s.ready().load_seconds}};
  return c::hand_out(json::to_text(root), json);
}

/// One request while it is answered.
struct Answer {
  RequestId id = 0;
  int64_t num_left = 0;
  TokenCounts counts;
  std::deque<Choice> choices;
};

/// Keeps a delta of the request, and hands on any other.
Status take(State& session, Answer& answer, Delta delta) {
  if (delta.request != answer.id) {
    session.pending.push_back(std::move(delta));
    return {};
  }
  if (delta.error) return *delta.error;
  const bool is_last = delta.end.has_value();
  answer.counts.generated += std::ssize(delta.tokens);
  if (is_last) {
    answer.counts.generated += delta.end->stop_token ? 1 : 0;
    --answer.num_left;
  }
  answer.choices[static_cast<std::size_t>(delta.sample)].take(std::move(delta));
  return {};
}

/// One step. The first error of the request, after all deltas of others.
Status step_for(State& session, Answer& answer) {
  SUBBYTE_TRY(std::vector<Delta> deltas, session.session->step());
  Status status;
  for (Delta& delta : deltas) {
    Status taken = take(session, answer, std::move(delta));
    if (status.ok()) status = std::move(taken);
  }
  return status;
}

Status complete(subbyte_session* session, const char* text, char** response) {
  SUBBYTE_CHECK(
      c::check_addresses({{"session", session}, {"request", text}, {"response", response}}));
  SUBBYTE_TRY(const auto turn, c::Turn::take(session->state));
  State& state = *session->state;
  SUBBYTE_TRY(CompletionRequest request, read_request(state, text));
  request.is_whole = true;
  const TextSetup& setup = state.session->text();
  SUBBYTE_TRY(std::vector<TokenId> prompt, setup.encode(request));
  Answer answer;
  answer.counts.prompt = std::ssize(prompt);
  answer.num_left = request.num_samples;
  SUBBYTE_TRY(answer.id, state.session->add(request, std::move(prompt)));
  for (int64_t i = 0; i < request.num_samples; ++i) {
    answer.choices.emplace_back(request, setup.tokenizer);
  }
  while (answer.num_left > 0) {
    const Status status = step_for(state, answer);
    if (status.ok()) continue;
    state.session->cancel(answer.id);
    return status;
  }
  Value choices = Value::array();
  for (Choice& choice : answer.choices)
    choices.push_back(choice.take_json(std::ssize(choices), {}));
  const std::string digest = sha256(std::as_bytes(std::span(std::string_view(text))));
  return c::hand_out(
      json::to_text(response_body(request, digest, state.name, std::move(choices), answer.counts)),
      response);
}

}  // namespace

int subbyte_session_open(const char* model, const subbyte_session_options* options,
                         subbyte_session** session) {
  return c::run([&] { return open(model, options, session); });
}

void subbyte_session_destroy(subbyte_session* session) {
  delete session;
}

int subbyte_session_describe(subbyte_session* session, char** json) {
  return c::run([&] { return describe(session, json); });
}

int subbyte_session_add(subbyte_session* session, const char* request, uint64_t* id) {
  return c::run([&] { return add(session, request, id); });
}

int subbyte_session_step(subbyte_session* session, subbyte_event_function event, void* user) {
  return c::run([&] { return step(session, event, user); });
}

int subbyte_session_poll(subbyte_session* session, char** json) {
  return c::run([&] { return poll(session, json); });
}

int subbyte_session_cancel(subbyte_session* session, uint64_t id) {
  return c::run([&] { return cancel(session, id); });
}

int subbyte_session_idle(subbyte_session* session, int32_t* idle) {
  return c::run([&] { return ask_idle(session, idle); });
}

int subbyte_session_complete(subbyte_session* session, const char* request, char** response) {
  return c::run([&] { return complete(session, request, response); });
}
