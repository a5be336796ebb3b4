// The classes Session, Request and Event of the module.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "app/command.h"
#include "arrays.h"
#include "bindings.h"
#include "engine/perplexity.h"
#include "engine/token_logits.h"
#include "errors.h"
#include "gil.h"
#include "held_session.h"
#include "json_objects.h"
#include "text.h"
#include "watch.h"

namespace subbyte::python {

namespace nb = nanobind;

namespace {

template <typename T>
Result<T> choose(const std::map<std::string, T>& values, const std::string& name,
                 std::string_view option) {
  const auto found = values.find(name);
  if (found != values.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& value : values) names.push_back(value.first);
  return Error{"usage.value", fmt::format("{}: expected one of {}, found {}", option,
                                          fmt::join(names, ", "), quote(name))};
}

Result<CacheType> read_cache_type(const std::string& name) {
  if (const auto found = find_cache_type(name)) return *found;
  return Error{"usage.value", fmt::format("kv_cache_type: expected one of {}, found {}",
                                          fmt::join(cache_type_names(), ", "), quote(name))};
}

void open(HeldSession* self, const std::string& model, const std::string& device, int threads,
          bool pin_threads, const std::string& isa, const std::string& activations,
          bool batch_invariant, int tensor_parallel_size, int pipeline_parallel_size,
          int gpu_layers, int head_bits, const std::string& kv_cache_type, int64_t context,
          int64_t max_sequences, int64_t cache_positions, bool enable_prefix_caching, uint64_t seed,
          const std::string& chat_template, nb::object progress) {
  const CacheType cache_type = take(read_cache_type(kv_cache_type));
  std::string choice;
  SessionOptions options;
  options.device = {.device = device,
                    .num_threads = threads,
                    .pin_threads = pin_threads,
                    .isa = isa,
                    .activations = take(choose(app::kActivations, activations, "activations")),
                    .batch_invariant = batch_invariant,
                    .tensor_parallel_size = tensor_parallel_size,
                    .pipeline_parallel_size = pipeline_parallel_size,
                    .gpu_layers = gpu_layers};
  options.on_device = [&](const std::string& chosen) { choice = chosen; };
  options.context = context;
  options.max_sequences = max_sequences;
  options.cache_positions = cache_positions;
  options.cache_type = cache_type;
  options.head_bits = head_bits;
  options.scores_prompts = true;
  options.prefix_cache = enable_prefix_caching;
  options.sampling.seed = seed;
  options.chat_template = chat_template;
  Watch watch(std::move(progress));
  options.progress = watch.as_progress();
  Session session = take(without_gil([&] { return Session::open(model, options); }));
  new (self) HeldSession(std::move(session), element_of(cache_type), std::move(choice));
}

std::unique_ptr<Request> read_request(const HeldSession& held, nb::dict body, bool parse_special,
                                      std::optional<int64_t> num_prompt_logprobs) {
  const json::Value value = take(to_json(body, "request"));
  return take(without_gil(
      [&] { return Request::read(value, held.text(), parse_special, num_prompt_logprobs); }));
}

/// The events of a queue, which Python and the session share.
struct HeldQueue {
  std::shared_ptr<EventQueue> events = std::make_shared<EventQueue>();
};

RequestId add(HeldSession& held, const Request& request, const HeldQueue& queue) {
  return take(without_gil([&] { return held.add(request, queue.events); }));
}

std::optional<std::vector<Delta>> step(HeldSession& held, const HeldQueue& queue) {
  return take(without_gil([&] { return held.step(*queue.events); }));
}

std::tuple<double, double, int64_t> measure_perplexity(HeldSession& held,
                                                       const std::vector<TokenId>& tokens,
                                                       int64_t window, nb::object progress) {
  Watch watch(std::move(progress));
  Perplexity result;
  take(without_gil([&] {
    return held.measure([&](const ReadyModel& ready, Element cache_type) -> Status {
      SUBBYTE_CHECK(check_context(ready.config, window));
      SUBBYTE_TRY(result, perplexity(*ready.model, *ready.backend, cache_type, tokens, window,
                                     [&](int64_t done, int64_t total, double) {
                                       watch.progress(static_cast<uint64_t>(done),
                                                      static_cast<uint64_t>(total));
                                     }));
      return {};
    });
  }));
  return {result.per_token, result.nats, result.scored};
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> logits_of(HeldSession& held,
                                                     const std::vector<TokenId>& tokens,
                                                     nb::object progress) {
  if (tokens.empty()) raise({"generate.empty_prompt", "expected at least one token, found none"});
  const auto vocabulary = static_cast<std::size_t>(held.vocab_size());
  std::optional<NewArray<float>> result;
  Watch watch(std::move(progress));
  take(without_gil([&] {
    return held.measure([&](const ReadyModel& ready, Element cache_type) -> Status {
      SUBBYTE_CHECK(check_context(ready.config, std::ssize(tokens)));
      result.emplace(std::vector<std::size_t>{tokens.size(), vocabulary});
      float* out = result->values().data();
      const float* const begin = out;
      return token_logits({*ready.model, *ready.backend}, cache_type, tokens,
                          [&](std::span<const float> rows) -> Status {
                            out = std::ranges::copy(rows, out).out;
                            watch.progress(static_cast<uint64_t>(out - begin) / vocabulary,
                                           tokens.size());
                            return {};
                          });
    });
  }));
  return result->finish<nb::ndarray<nb::numpy, float, nb::ndim<2>>>(nb::dtype<float>());
}

/// How a request is sampled that says nothing of it.
nb::object sampling_of(const HeldSession& held) {
  return to_object(to_json(held.text()->sampling.alone));
}

// --- events

std::string text_of(const Delta& delta, bool is_answer) {
  std::string content, reasoning;
  for (const Piece& piece : delta.pieces) {
    if (piece.channel != Channel::kToolCall) append_text(piece, content, reasoning);
  }
  return is_answer ? content : reasoning;
}

std::optional<std::string> finish_reason(const Delta& delta) {
  if (!delta.end) return std::nullopt;
  return std::string(subbyte::finish_reason(delta.end->reason, delta.end->num_tool_calls > 0));
}

/// As in the message of an answer.
nb::list tool_calls_of(const Delta& delta) {
  nb::list result;
  for (const Piece& piece : delta.pieces) {
    if (piece.channel != Channel::kToolCall) continue;
    nb::dict function;
    function["name"] = piece.recipient;
    function["arguments"] = piece.text;
    nb::dict call;
    call["id"] = piece.call_id;
    call["type"] = "function";
    call["function"] = function;
    result.append(call);
  }
  return result;
}

/// Why a sample stopped: the text or the token that came.
nb::object stop_reason(const Delta& delta) {
  if (!delta.end) return nb::none();
  if (!delta.end->stop.empty()) return nb::cast(delta.end->stop);
  return delta.end->stop_token ? nb::cast(*delta.end->stop_token) : nb::none();
}

/// The chosen token first, then the most likely ones.
nb::list list_of(const std::vector<Logprobs>& logprobs) {
  nb::list result;
  for (const Logprobs& one : logprobs) {
    nb::list tokens;
    tokens.append(nb::make_tuple(one.chosen.token, one.chosen.logprob));
    for (const TokenLogprob& top : one.top) tokens.append(nb::make_tuple(top.token, top.logprob));
    result.append(tokens);
  }
  return result;
}

void add_event(nb::module_& module) {
  nb::class_<Delta>(module, "Event",
                    "What a step adds to a sample of a request: text that became certain, tokens, "
                    "and its end.")
      .def_ro("request_id", &Delta::request, "The request, as Engine.add() has named it.")
      .def_ro("index", &Delta::sample, "The sample of the request, from 0 on.")
      .def_ro("token_ids", &Delta::tokens, "Tokens, without those that end the sample.")
      .def_prop_ro(
          "text", [](const Delta& delta) { return text_of(delta, true); },
          "Text of the answer that became certain: whole characters, nothing of a stop string.")
      .def_prop_ro(
          "reasoning", [](const Delta& delta) { return text_of(delta, false); },
          "The same of the reasoning before the answer of a chat.")
      .def_prop_ro("tool_calls", &tool_calls_of,
                   nb::sig("def tool_calls(self) -> list[dict[str, typing.Any]]"),
                   "Calls of tools that became complete, as in the message of an answer.")
      .def_prop_ro(
          "logprobs", [](const Delta& delta) { return list_of(delta.logprobs); },
          nb::sig("def logprobs(self) -> list[list[tuple[int, float]]]"),
          "For each token (id, log probability) of itself and then of the likeliest ones.")
      .def_prop_ro(
          "prompt_logprobs", [](const Delta& delta) { return list_of(delta.prompt_logprobs); },
          nb::sig("def prompt_logprobs(self) -> list[list[tuple[int, float]]]"),
          "The same for the next tokens of the prompt.")
      .def_prop_ro(
          "finish_reason", &finish_reason,
          "\"stop\", \"tool_calls\", \"length\" or \"abort\" in the last event of a sample, "
          "else None.")
      .def_prop_ro("stop_reason", &stop_reason,
                   nb::sig("def stop_reason(self) -> str | int | None"),
                   "The stop text or the token that ended the sample, else None.")
      .def_prop_ro(
          "error",
          [](const Delta& delta) {
            return delta.error ? exception_of(*delta.error) : nb::object(nb::none());
          },
          nb::sig("def error(self) -> Exception | None"),
          "The subbyte.Error that ended this sample alone, else None.")
      .def_prop_ro("is_last", &Delta::is_last, "True for the last event of a sample.")
      .def_prop_ro(
          "stats",
          [](const Delta& delta) -> nb::object {
            if (!delta.end) return nb::none();
            const SampleEnd& stats = *delta.end;
            nb::dict result;
            result["prompt_tokens"] = stats.prompt_tokens;
            result["cached_tokens"] = stats.cached_tokens;
            result["generated_tokens"] = stats.generated_tokens;
            result["prefill_seconds"] = stats.prefill_seconds;
            result["decode_seconds"] = stats.decode_seconds;
            return result;
          },
          nb::sig("def stats(self) -> dict[str, typing.Any] | None"),
          "Tokens and seconds of a sample in its last event, else None.");
}

void add_queue(nb::module_& module) {
  nb::class_<HeldQueue>(module, "EventQueue", "Events of requests that nobody has taken yet.")
      .def(nb::init<>());
}

void add_request(nb::module_& module) {
  nb::class_<Request>(module, "Request", "A request that was read, and what came of it.")
      .def_prop_ro("prompt_token_ids", [](const Request& self) { return self.prompt(); })
      .def_prop_ro("is_chat", [](const Request& self) { return self.request().is_chat(); })
      .def_prop_ro("num_samples", [](const Request& self) { return self.request().num_samples; })
      .def_prop_rw(
          "is_whole", [](const Request& self) { return self.request().is_whole; },
          &Request::set_whole, "Nobody reads the answer before its end.")
      .def("take", &Request::take, nb::arg("event"))
      .def(
          "choice_of",
          [](const Request& self, const Delta& delta) { return to_object(self.choice_of(delta)); },
          nb::arg("event"))
      .def(
          "take_answer",
          [](Request& self, const std::string& digest, const std::string& model) {
            return to_object(self.take_answer(digest, model));
          },
          nb::arg("digest"), nb::arg("model"));
}

}  // namespace

void add_session(nb::module_& module) {
  add_event(module);
  add_queue(module);
  add_request(module);
  nb::class_<HeldSession>(module, "Session",
                          "A loaded model that answers requests step by step; one thread at a "
                          "time uses it.")
      .def("__init__", &open, nb::arg("model"), nb::kw_only(), nb::arg("device"),
           nb::arg("threads"), nb::arg("pin_threads"), nb::arg("isa"), nb::arg("activations"),
           nb::arg("batch_invariant"), nb::arg("tensor_parallel_size"),
           nb::arg("pipeline_parallel_size"), nb::arg("gpu_layers"), nb::arg("head_bits"),
           nb::arg("kv_cache_type"), nb::arg("context"), nb::arg("max_sequences"),
           nb::arg("cache_positions"), nb::arg("enable_prefix_caching"), nb::arg("seed"),
           nb::arg("chat_template"), nb::arg("progress").none())
      .def("read", &read_request, nb::arg("body"), nb::arg("parse_special"),
           nb::arg("num_prompt_logprobs").none())
      .def("add", &add, nb::arg("request"), nb::arg("queue"))
      .def("step", &step, nb::arg("queue"))
      .def(
          "cancel", [](HeldSession& held, RequestId request) { held.cancel(request); },
          nb::arg("request_id"))
      .def(
          "cancel_all",
          [](HeldSession& held, const HeldQueue& queue) { held.cancel(queue.events); },
          nb::arg("queue"))
      .def("close", [](HeldSession& held) { take(without_gil([&] { return held.close(); })); })
      .def("perplexity", &measure_perplexity, nb::arg("tokens"), nb::arg("window"),
           nb::arg("progress").none())
      .def("logits", &logits_of, nb::arg("tokens"), nb::arg("progress").none())
      .def_prop_ro("tokenizer",
                   [](const HeldSession& held) { return ModelText(held.text(), held.directory()); })
      .def_prop_ro("sampling", &sampling_of, nb::sig("def sampling(self) -> dict[str, typing.Any]"))
      .def_prop_ro("is_closed", &HeldSession::is_closed)
      .def_prop_ro("num_running", &HeldSession::num_running)
      .def_prop_ro("num_waiting", &HeldSession::num_waiting)
      .def_prop_ro("context", &HeldSession::context)
      .def_prop_ro("device", &HeldSession::device)
      .def_prop_ro("device_choice", &HeldSession::choice)
      .def_prop_ro("model_type", &HeldSession::model_type)
      .def_prop_ro("vocab_size", &HeldSession::vocab_size)
      .def_prop_ro("max_positions", &HeldSession::max_positions);
}

}  // namespace subbyte::python
