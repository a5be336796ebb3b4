#pragma once
// What a server answers: paths, who may ask for them, and what becomes of a request.
//
//   connections --check, handle--> workers (read, render, tokenize) --> queue of the engine
//        ^                                                                   |
//        +------------------------------ events of each step ----------------+
//
// All of it but open() and run() happens in the thread of the connections.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "http/server.h"
#include "serve/access.h"
#include "serve/answer_call.h"
#include "serve/bodies.h"
#include "serve/engine.h"
#include "serve/log_writer.h"
#include "serve/metrics.h"
#include "serve/workers.h"

namespace subbyte::serve {

enum class Log : uint8_t { kNone, kText, kJson };

struct ServiceOptions {
  std::vector<std::string> models;  // names of the model, at least one
  AccessOptions access;
  std::string prefix;  // of all paths: "/subbyte"; empty without one
  EngineOptions engine;
  int64_t shutdown_seconds = 30;
  Log log = Log::kNone;
  bool logs_prompts = false;
  std::function<void(const std::string& line)> write_log = nullptr;
  std::string metrics_prefix = "subbyte";
  Request defaults;       // what no request says
  bool has_seed = false;  // requests without one have that of the session, else one that is drawn
  int num_workers = 2;
};

class Service : public http::Handler {
 public:
  explicit Service(const ServiceOptions& options);
  ~Service() override;

  /// The server that calls this. Before it runs.
  void attach(http::Server& server) { server_ = &server; }
  /// The model is ready.
  void open(Session session);
  /// Steps until a signal has ended the service, in the calling thread. An error is one of the
  /// backend.
  Status run();
  /// Writes a line to the log that is about no request.
  void note(const std::string& text);
  /// The first time ends the service when all has been answered that is under way, within
  /// `shutdown_seconds`; the second time at once.
  void end();
  /// After the server has stopped and before it goes: nothing asks it for anything any more.
  void close() {
    workers_.reset();
    log_.reset();
  }

  std::optional<http::Response> check(const http::Request& head) override;
  void handle(const std::shared_ptr<http::Exchange>& exchange) override;
  void finish(const http::Request& request, http::Response& response) override;

 private:
  using Exchange = std::shared_ptr<http::Exchange>;
  struct Route {
    std::string_view path;
    std::string_view method;  // GET is HEAD, too
    void (Service::*answer)(const Exchange& exchange);
    bool is_public = false;
    bool needs_model = false;
    bool needs_keys = false;  // nobody may ask where there are none
  };

  static const std::vector<Route>& routes();
  const Route* find(const http::Request& head, bool& is_path) const;
  std::string_view path_of(const http::Request& head) const;
  std::optional<Problem> check_ready() const;

  void answer_chat(const Exchange& exchange) { answer_call(exchange, true); }
  void answer_text(const Exchange& exchange) { answer_call(exchange, false); }
  void answer_call(const Exchange& exchange, bool is_chat);
  void start(const Exchange& exchange, CallBody body);
  void answer_tokenize(const Exchange& exchange) { answer_body(exchange, tokenize); }
  void answer_detokenize(const Exchange& exchange) { answer_body(exchange, detokenize); }
  void answer_template(const Exchange& exchange) { answer_body(exchange, apply_template); }
  void answer_count(const Exchange& exchange) { answer_body(exchange, count_input); }
  void answer_body(const Exchange& exchange,
                   Read<std::string> (*function)(const Session&, const BodyOptions&,
                                                 const std::string&));
  void answer_reset(const Exchange& exchange);
  void answer_models(const Exchange& exchange);
  void answer_model(const Exchange& exchange);
  void answer_page(const Exchange& exchange);
  void answer_health(const Exchange& exchange);
  void answer_ready(const Exchange& exchange);
  void answer_version(const Exchange& exchange);
  void answer_status(const Exchange& exchange);
  void answer_metrics(const Exchange& exchange);

  void send(const Exchange& exchange, http::Response response);
  void refuse(const Exchange& exchange, const Problem& problem);
  json::Value describe_model(const std::string& name) const;
  BodyOptions body_options() const;
  void take(std::vector<Event> events);
  std::optional<http::Response> answer_head(const http::Request& head);
  void log(const http::Request& request, int status, const AnswerCall* call);
  void write(json::Value line);

  ServiceOptions options_;
  http::Server* server_ = nullptr;
  Engine* opened_ = nullptr;        // of the thread that is in open() and run()
  std::unique_ptr<Engine> engine_;  // the same, once the model is loaded
  Metrics metrics_;
  Random random_;
  std::string fingerprint_;
  int64_t started_;      // seconds since 1970
  std::string failure_;  // of the backend
  bool is_ending_ = false;
  std::unique_ptr<LogWriter> log_;    // nullptr: nobody writes lines
  std::unique_ptr<Workers> workers_;  // ends before what they use
};

}  // namespace subbyte::serve
