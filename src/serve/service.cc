#include "serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>

#include "base/sha256.h"
#include "serve/page.h"
#include "subbyte/version.h"

namespace subbyte::serve {
namespace {

using json::Value;

constexpr std::string_view kModels = "/v1/models";
constexpr std::size_t kMaxWaitingBodies = 256;

std::string hex(uint64_t number) {
  return fmt::format("{:016x}", number);
}

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

/// The bytes of "%2F" and the like; what is no such escape stays.
std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const char letter =
          text[at] >= 'A' && text[at] <= 'F' ? static_cast<char>(text[at] + 32) : text[at];
      return kDigits.find(letter);
    };
    const bool is_escape = text[i] == '%' && i + 2 < text.size() &&
                           digit(i + 1) != std::string_view::npos &&
                           digit(i + 2) != std::string_view::npos;
    if (is_escape) {
      result += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

/// Says whether a line of the log can hold it as it is.
bool is_word(std::string_view text) {
  return std::ranges::none_of(text, [](char letter) {
    return static_cast<unsigned char>(letter) <= ' ' || letter == '"' || letter == '\x7F';
  });
}

http::Response allow(std::string_view methods) {
  return {.status = 204, .headers = {{"Allow", std::string(methods)}}};
}

}  // namespace

Service::Service(const ServiceOptions& options)
    : options_(options), random_(random_seed()), started_(std::time(nullptr)) {
  const std::string identity =
      fmt::format("{} {} {}", version(), commit(), options_.models.front());
  fingerprint_ = "fp_" + sha256(std::as_bytes(std::span(identity))).substr(0, 12);
  workers_ = std::make_unique<Workers>(options_.num_workers, kMaxWaitingBodies);
  if (options_.write_log) log_ = std::make_unique<LogWriter>(options_.write_log);
}

Service::~Service() = default;

void Service::open(Session session) {
  auto engine = std::make_unique<Engine>(
      std::move(session), options_.engine, [this](std::vector<Event> events) {
        // A function that is kept is copied, which events cannot be.
        auto shared = std::make_shared<std::vector<Event>>(std::move(events));
        server_->post([this, shared] { take(std::move(*shared)); });
      });
  Engine* const opened = engine.release();
  server_->post([this, opened] { engine_.reset(opened); });
  opened_ = opened;
}

Status Service::run() {
  const Status status = opened_->run();
  if (!status.ok()) {
    server_->post([this, code = std::string(status.error().code)] { failure_ = code; });
  }
  return status;
}

void Service::end() {
  if (engine_ == nullptr) return;
  const Error error = {"server.shutdown", "the server ends"};
  if (std::exchange(is_ending_, true)) return engine_->end_all(error);
  engine_->drain();
  server_->after(static_cast<double>(options_.shutdown_seconds),
                 [this, error] { engine_->end_all(error); });
}

const std::vector<Service::Route>& Service::routes() {
  static const std::vector<Route> kRoutes = {
      {"/v1/chat/completions", "POST", &Service::answer_chat, false, true},
      {"/v1/completions", "POST", &Service::answer_text, false, true},
      {"/v1/chat/completions/input_tokens", "POST", &Service::answer_count, false, true},
      {"/tokenize", "POST", &Service::answer_tokenize, false, true},
      {"/detokenize", "POST", &Service::answer_detokenize, false, true},
      {"/apply-template", "POST", &Service::answer_template, false, true},
      {"/reset_prefix_cache", "POST", &Service::answer_reset, false, true, true},
      {kModels, "GET", &Service::answer_models},
      {"/", "GET", &Service::answer_page, true},
      {"/health", "GET", &Service::answer_health, true},
      {"/ready", "GET", &Service::answer_ready, true},
      {"/version", "GET", &Service::answer_version, true},
      {"/status", "GET", &Service::answer_status},
      {"/metrics", "GET", &Service::answer_metrics},
  };
  return kRoutes;
}

/// The path after the prefix of all; empty where it is elsewhere.
std::string_view Service::path_of(const http::Request& head) const {
  const std::string_view path = head.path;
  if (!path.starts_with(options_.prefix)) return {};
  return path.substr(options_.prefix.size());
}

/// `is_path`: says whether there is the path, be it with another method.
const Service::Route* Service::find(const http::Request& head, bool& is_path) const {
  static const Route kModel = {"/v1/models/", "GET", &Service::answer_model};
  const std::string_view path = path_of(head);
  const std::string_view method = head.method == "HEAD" ? std::string_view("GET") : head.method;
  is_path = false;
  const bool is_model = path.starts_with(kModel.path) && path.size() > kModel.path.size();
  for (const Route& route : routes()) {
    if (route.path != path) continue;
    is_path = true;
    if (route.method == method) return &route;
  }
  is_path = is_path || is_model;
  return is_model && method == kModel.method ? &kModel : nullptr;
}

std::optional<Problem> Service::check_ready() const {
  if (!failure_.empty()) {
    return Problem{{503, failure_, "the backend has failed; the server ends"}, {}};
  }
  if (engine_ == nullptr) return problem_of({"server.loading", "the model is being loaded"});
  if (is_ending_) return problem_of({"server.draining", "the server is about to end"});
  return std::nullopt;
}

std::optional<http::Response> Service::check(const http::Request& head) {
  std::optional<http::Response> answer = answer_head(head);
  if (answer && answer->status >= 400) log(head, answer->status, nullptr);
  return answer;
}

/// What a head alone is answered with.
std::optional<http::Response> Service::answer_head(const http::Request& head) {
  bool is_path = false;
  const Route* const route = find(head, is_path);
  const std::optional<http::Response> preflight = answer_preflight(head);
  const bool is_public = preflight.has_value() || (route != nullptr && route->is_public);
  if (auto refusal = check_access(options_.access, head, is_public)) return refusal;
  if (preflight) return preflight;
  if (head.method == "OPTIONS" && head.path == "*") return allow("GET, HEAD, POST, OPTIONS");
  if (!is_path) {
    return http::error_response({404, "server.path", "there is nothing at this path"});
  }
  if (route == nullptr) {
    const auto found = std::ranges::find(routes(), path_of(head), &Route::path);
    const bool is_post = found != routes().end() && found->method == "POST";
    const std::string_view methods = is_post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
    if (head.method == "OPTIONS") return allow(methods);
    http::Response response = http::error_response(
        {405, "server.method", fmt::format("the path takes {} alone", methods)});
    response.headers.push_back({"Allow", std::string(methods)});
    return response;
  }
  const std::string* const coding = head.find("content-encoding");
  if (coding != nullptr && !http::is_same_name(*coding, "identity")) {
    return http::error_response(
        {415, "server.coding",
         "bodies are JSON that is not compressed: leave Content-Encoding out"});
  }
  if (route->needs_keys && options_.access.keys.empty()) {
    return http::error_response({403, "server.key", "the path wants a server with --api-key"});
  }
  if (!route->needs_model) return std::nullopt;
  if (const auto problem = check_ready()) return problem->response();
  return std::nullopt;
}

void Service::finish(const http::Request& request, http::Response& response) {
  add_origin(options_.access, request, response);
}

void Service::handle(const Exchange& exchange) {
  bool is_path = false;
  const Route* const route = find(exchange->request(), is_path);
  if (route != nullptr) (this->*route->answer)(exchange);
}

void Service::send(const Exchange& exchange, http::Response response) {
  finish(exchange->request(), response);
  exchange->send(std::move(response));
}

void Service::refuse(const Exchange& exchange, const Problem& problem) {
  ++metrics_.refused[problem.refusal.code];
  send(exchange, problem.response());
  log(exchange->request(), exchange->status(), nullptr);
}

BodyOptions Service::body_options() const {
  BodyOptions options{options_.models, options_.defaults};
  options.defaults.date = time_now();
  return options;
}

void Service::answer_call(const Exchange& exchange, bool is_chat) {
  const auto work = [this, exchange, is_chat, options = body_options(), engine = engine_.get()] {
    if (exchange->is_gone()) return;
    auto read = std::make_shared<Read<CallBody>>(
        read_call(engine->session(), options, exchange->request().body, is_chat));
    server_->post([this, exchange, read] {
      if (const Problem* const problem = std::get_if<Problem>(read.get())) {
        refuse(exchange, *problem);
      } else if (!exchange->is_over()) {
        start(exchange, std::get<CallBody>(std::move(*read)));
      }
    });
  };
  if (!workers_->take(work)) {
    refuse(exchange, problem_of({"server.queue_full", "too many requests are being read"}));
  }
}

/// Puts what was read into the queue of the engine.
void Service::start(const Exchange& exchange, CallBody body) {
  const uint64_t seed = random_.next() >> 1;  // one for all prompts, as the answer says one
  for (Prompt& prompt : body.prompts) {
    if (!options_.has_seed && !prompt.request.sampling.seed) prompt.request.sampling.seed = seed;
  }
  AnswerHead head = {
      .id = (body.is_chat ? "chatcmpl-" : "cmpl-") + hex(random_.next()) + hex(random_.next()),
      .created = std::time(nullptr),
      .model = body.model,
      .fingerprint = fingerprint_,
      .seed = body.prompts.front().request.sampling.seed.value_or(0)};
  const auto call = std::make_shared<AnswerCall>(exchange, std::move(body), std::move(head),
                                                 engine_->session().tokenizer());
  call->arrived = Clock::now();
  if (options_.logs_prompts) call->request_text = std::move(exchange->request().body);
  exchange->drop_body();  // it is in the tokens now
  if (const Status taken = engine_->submit(call); !taken.ok()) {
    return refuse(exchange, problem_of(taken.error()));
  }
  exchange->on_over = [this, weak = std::weak_ptr(call)] {
    const std::shared_ptr<AnswerCall> over = weak.lock();
    if (over == nullptr) return;
    if (!over->has_ended()) engine_->cancel(over);
    log(over->client().request(), over->client().status(), over.get());
  };
  call->begin([&](http::Response& response) { finish(exchange->request(), response); });
}

void Service::take(std::vector<Event> events) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    const auto call = std::static_pointer_cast<AnswerCall>(events[i].call);
    if (call->client().is_over()) continue;
    const auto finish_call = [&](http::Response& response) {
      finish(call->client().request(), response);
    };
    if (events[i].delta.error) {
      ++metrics_.refused[std::string(events[i].delta.error->code)];
      call->fail(problem_of(*events[i].delta.error), finish_call);
      continue;
    }
    const bool goes_on =
        i + 1 < events.size() && events[i + 1].call == call && !events[i + 1].delta.error;
    call->take(std::move(events[i]), metrics_);
    if (!goes_on) {
      call->send(finish_call);
    }
  }
}

void Service::answer_body(const Exchange& exchange,
                          Read<std::string> (*function)(const Session&, const BodyOptions&,
                                                        const std::string&)) {
  const auto work = [this, exchange, function, options = body_options(), engine = engine_.get()] {
    if (exchange->is_gone()) return;
    Read<std::string> read = function(engine->session(), options, exchange->request().body);
    server_->post([this, exchange, read = std::move(read)] {
      if (const Problem* const problem = std::get_if<Problem>(&read)) {
        return refuse(exchange, *problem);
      }
      http::Response response;
      response.body = std::get<std::string>(read);
      send(exchange, std::move(response));
      log(exchange->request(), exchange->status(), nullptr);
    });
  };
  if (!workers_->take(work)) {
    refuse(exchange, problem_of({"server.queue_full", "too many requests are being read"}));
  }
}

void Service::answer_reset(const Exchange& exchange) {
  engine_->forget_prefixes();
  send(exchange, {.body = "{}"});
  log(exchange->request(), exchange->status(), nullptr);
}

Value Service::describe_model(const std::string& name) const {
  return {{"id", name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "subbyte"},
          {"max_model_len", engine_ == nullptr ? Value() : Value(engine_->session().context())}};
}

void Service::answer_models(const Exchange& exchange) {
  Value list = Value::array();
  for (const std::string& name : options_.models) list.push_back(describe_model(name));
  send(exchange, {.body = json::to_text({{"object", "list"}, {"data", std::move(list)}})});
}

void Service::answer_model(const Exchange& exchange) {
  const std::string name = unescaped(path_of(exchange->request()).substr(kModels.size() + 1));
  if (std::ranges::find(options_.models, name) == options_.models.end()) {
    return refuse(exchange, problem_of({"server.model", "there is no model of this name"}));
  }
  send(exchange, {.body = json::to_text(describe_model(name))});
}

void Service::answer_health(const Exchange& exchange) {
  if (!failure_.empty()) return refuse(exchange, *check_ready());
  send(exchange, {.body = "{\"status\":\"ok\"}"});
}

void Service::answer_ready(const Exchange& exchange) {
  if (const auto problem = check_ready()) return send(exchange, problem->response());
  if (engine_->is_full()) {
    const Problem full = {{503, "server.queue_full", "the queue is full"}, {}};
    return send(exchange, full.response());
  }
  send(exchange, {.body = "{\"status\":\"ready\"}"});
}

void Service::answer_page(const Exchange& exchange) {
  send(exchange, page());
}

void Service::answer_version(const Exchange& exchange) {
  send(exchange, {.body = json::to_text({{"version", version()}, {"commit", commit()}})});
}

void Service::answer_status(const Exchange& exchange) {
  Value status = {{"status", !failure_.empty()    ? "failed"
                             : engine_ == nullptr ? "loading"
                             : is_ending_         ? "draining"
                                                  : "ready"},
                  {"models", options_.models},
                  {"seconds", std::time(nullptr) - started_},
                  {"connections", server_->counts().connections}};
  if (engine_ != nullptr) {
    const EngineState& state = engine_->state();
    const ModelInfo model = engine_->session().model();
    status["device"] = model.device;
    status["max_model_len"] = engine_->session().context();
    status["running"] = state.running.load();
    status["waiting"] = state.waiting.load();
    status["preemptions"] = state.preemptions.load();
    status["weight_bytes"] = model.weight_bytes;
    status["cache"] = {{"held_bytes", state.held_bytes.load()},
                       {"total_bytes", state.total_bytes.load()}};
  }
  send(exchange, {.body = json::to_text(status)});
}

void Service::answer_metrics(const Exchange& exchange) {
  send(exchange, {.type = "text/plain; version=0.0.4; charset=utf-8",
                  .body = metrics_.text(options_.metrics_prefix, options_.models.front(),
                                        engine_ == nullptr ? nullptr : &engine_->state(),
                                        server_->counts())});
}

void Service::note(const std::string& text) {
  if (log_ != nullptr) write({{"time", time_now()}, {"note", text}});
}

void Service::log(const http::Request& request, int status, const AnswerCall* call) {
  if (log_ == nullptr || options_.log == Log::kNone) return;
  Value line = {{"time", time_now()},
                {"id", request.id},
                {"address", request.address},
                {"path", request.path},
                {"model", options_.models.front()},
                {"status", status}};
  if (call != nullptr) {
    line["prompt_tokens"] = call->counts().prompt;
    line["cached_tokens"] = call->counts().cached;
    line["completion_tokens"] = call->counts().generated;
    line["queue_seconds"] = call->queue_seconds();
    line["first_token_seconds"] = call->first_token_seconds();
    line["seconds"] = call->seconds();
    line["end"] = call->has_ended() ? call->end() : "client_gone";
    if (options_.logs_prompts) line["request"] = call->request_text;
  }
  write(std::move(line));
}

void Service::write(Value line) {
  log_->put([&](int64_t dropped) {
    if (dropped > 0) line["dropped_lines"] = dropped;
    if (options_.log == Log::kJson) return json::to_text(line);
    std::string text;
    for (const auto& [name, value] : line.items()) {
      text += (text.empty() ? "" : " ") + name + "=";
      const bool is_plain = value.is_string() && is_word(value.string());
      text += is_plain ? value.string() : json::to_text(value);
    }
    return text;
  });
}

}  // namespace subbyte::serve
