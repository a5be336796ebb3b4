// subbyte serve: answers requests of OpenAI's form over HTTP.

#include "serve/service.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "app/command.h"
#include "app/output.h"
#include "app/template_flags.h"
#include "app/text_input.h"

namespace subbyte::app {
namespace {

constexpr int64_t kUsualContext = 8192;
constexpr int64_t kPublicConnections = 64;  // of an address, on a host that is not this machine

const std::map<std::string, serve::Log> kLogs = {
    {"none", serve::Log::kNone}, {"text", serve::Log::kText}, {"json", serve::Log::kJson}};

struct Options {
  std::string model;
  int head_bits = 16;
  std::string kv_cache_type = "f16";
  PrefixFlags prefixes;
  int64_t context = 0;
  int64_t parallel = 8;
  CacheFlags cache;
  int64_t step_tokens = 0;
  double max_slowdown = 2.5;
  SamplingFlags sampling;
  TemplateFlags chat_template;
  http::ServerOptions http;
  std::optional<std::string> uds;
  std::optional<int64_t> held_bytes;
  std::optional<int64_t> connections_per_address;
  serve::ServiceOptions service;
  std::vector<std::string> names;
  std::string key_file;
  bool allow_open = false;
  std::string log = "text";
  bool no_log = false;
};

/// The keys of a file, one in each line, without blanks around it.
Result<std::vector<std::string>> read_key_file(const std::string& path) {
  constexpr std::string_view kBlanks = " \t\r";
  SUBBYTE_TRY(const std::string text, read_text(path));
  std::vector<std::string> keys;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view key = std::string_view(text).substr(begin, end - begin);
    key.remove_prefix(std::min(key.find_first_not_of(kBlanks), key.size()));
    key = key.substr(0, key.find_last_not_of(kBlanks) + 1);
    if (!key.empty() && key[0] != '#') keys.emplace_back(key);
    begin = end + 1;
  }
  if (!keys.empty()) return keys;
  return Error{"usage.api_key", fmt::format("{}: there is no key in it", path)};
}

Status read_keys(const Options& options, std::vector<std::string>& keys) {
  if (const char* const key = std::getenv("SUBBYTE_API_KEY")) keys.emplace_back(key);
  if (!options.key_file.empty()) {
    SUBBYTE_TRY(const std::vector<std::string> more, read_key_file(options.key_file));
    keys.insert(keys.end(), more.begin(), more.end());
  }
  if (std::ranges::find(keys, "") != keys.end()) {
    return Error{"usage.api_key", "a key of --api-key or SUBBYTE_API_KEY has no characters"};
  }
  const auto is_of_none = [](const std::string& key) {
    const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    return key.ends_with(' ') || std::ranges::any_of(key, is_control);
  };
  if (std::ranges::none_of(keys, is_of_none)) return {};
  return Error{"usage.api_key",
               "a key has control characters or ends with a blank, as that of no request does"};
}

/// The names that requests may call the model by; the first is that in answers.
std::vector<std::string> names_of(const Options& options) {
  if (!options.names.empty()) return options.names;
  std::error_code failure;
  const auto path = std::filesystem::canonical(options.model, failure);
  return {failure ? options.model : path.filename().string()};
}

/// Names that nobody could ask by, or that Prometheus does not read.
Status check_names(const Options& options) {
  if (std::ranges::find(options.names, "") != options.names.end()) {
    return Error{"usage.arguments", "--served-model-name: expected a name, found an empty one"};
  }
  const std::string& prefix = options.service.metrics_prefix;
  const auto is_of_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  const bool is_name = !prefix.empty() && std::ranges::all_of(prefix, is_of_name) &&
                       !(prefix[0] >= '0' && prefix[0] <= '9');
  if (is_name) return {};
  return Error{"usage.arguments",
               fmt::format("--metrics-prefix: expected letters, digits and _, the first no digit, "
                           "found {}",
                           quote(prefix))};
}

/// Where it listens, and with which files.
Status check_place(const Options& options) {
  const http::ServerOptions& http = options.http;
  const auto refuse = [](const std::string& why) { return Error{"usage.arguments", why}; };
  if (http.host.find('/') != std::string::npos) {
    return refuse(fmt::format(
        "--host: expected an address, found {}; --uds PATH listens on a socket", quote(http.host)));
  }
  if (options.uds && options.uds->empty()) {
    return refuse("--uds: expected a path, found an empty one");
  }
  if (http.key_file.empty() != http.certificate_file.empty()) {
    return refuse("--ssl-keyfile and --ssl-certfile are given together, found one of them");
  }
  return {};
}

/// Bytes of all bodies, and of one of them.
Status set_held_bytes(const Options& options, http::ServerOptions& http) {
  if (!options.held_bytes) {
    http.max_held_bytes = std::max(http.max_held_bytes, http.max_body_bytes);
    return {};
  }
  http.max_held_bytes = static_cast<uint64_t>(*options.held_bytes);
  if (http.max_held_bytes >= http.max_body_bytes) return {};
  return Error{"usage.arguments",
               fmt::format("--max-held-bytes: expected at least --max-body-bytes ({}), found {}",
                           http.max_body_bytes, http.max_held_bytes)};
}

Status complete(Options& options) {
  SUBBYTE_CHECK(check_names(options));
  SUBBYTE_CHECK(check_place(options));
  options.http.uds = options.uds.value_or("");
  if (options.max_slowdown != 0 && !(options.max_slowdown > 1)) {
    return Error{"usage.max_slowdown",
                 fmt::format("--max-slowdown: expected a number above 1, or 0, found {}",
                             options.max_slowdown)};
  }
  serve::AccessOptions& access = options.service.access;
  SUBBYTE_CHECK(read_keys(options, access.keys));
  const bool is_local = !options.http.uds.empty() || serve::is_loopback(options.http.host);
  if (!is_local && access.keys.empty() && !options.allow_open) {
    return Error{"usage.open",
                 fmt::format("--host {} lets other machines ask: give --api-key, or --allow-open "
                             "if everybody may",
                             quote(options.http.host))};
  }
  SUBBYTE_CHECK(set_held_bytes(options, options.http));
  SUBBYTE_CHECK(serve::check_allowed(access));
  access.checks_host = options.http.uds.empty() && (is_local || !access.allowed_hosts.empty());
  options.http.max_connections_per_address =
      options.connections_per_address.value_or(is_local ? 0 : kPublicConnections);
  std::string& prefix = options.service.prefix;
  while (prefix.ends_with('/')) prefix.pop_back();
  if (!prefix.empty() && !prefix.starts_with('/')) {
    return Error{"usage.api_prefix",
                 fmt::format("--api-prefix begins with \"/\", found {}", quote(prefix))};
  }
  if (options.service.logs_prompts && options.log == "none") {
    return Error{"usage.arguments", "--log-prompts: expected --log text or json, found none"};
  }
  options.service.models = names_of(options);
  options.service.has_seed = options.sampling.has_seed();
  options.service.log = is_quiet() || options.no_log ? serve::Log::kNone : kLogs.at(options.log);
  options.service.write_log = [](const std::string& text) { print(stderr, line("{}", text)); };
  return {};
}

/// Of several requests at once; what is refused of it is refused before anybody can ask.
Result<SessionOptions> session_options(const Options& options, ReadyModel& ready, TextSetup& text) {
  const int64_t usual = std::min(kUsualContext, ready.config.max_positions);
  const int64_t context = options.context > 0 ? options.context : usual;
  SUBBYTE_CHECK(set_context(ready, context));
  SUBBYTE_TRY(text.sampling, options.sampling.resolve(ready.files));
  SessionOptions session = {.context = context,
                            .max_sequences = options.parallel,
                            .cache_type = *find_cache_type(options.kv_cache_type),
                            .step_tokens = options.step_tokens,
                            .max_slowdown = options.max_slowdown,
                            .head_bits = options.head_bits,
                            .scores_prompts = true};
  options.prefixes.set(session);
  SUBBYTE_TRY(session.cache_positions, options.cache.positions(ready, session));
  return session;
}

/// Answers until a signal, while another thread has the connections.
Result<ExitCode> answer(const Options& options, const std::function<Result<Session>()>& load,
                        http::Server& server, serve::Service& service) {
  note(line("subbyte: listening on {}, loading {}", server.address(), options.model));
  Result<Session> session = load();
  if (!session.ok()) return session.error();
  service.open(*std::move(session));
  server.on_signals({SIGTERM, SIGINT}, [&service] { service.end(); });
  note(line("subbyte: ready on {}", server.address()));
  SUBBYTE_CHECK(service.run());
  return kOk;
}

/// The system's limit of open files, as high as connections and files want it.
void raise_file_limit(int64_t connections) {
  constexpr rlim_t kOthers = 128;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = static_cast<rlim_t>(connections) + kOthers;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < wanted) {
    note(line("subbyte: the system allows {} open files, --max-connections {} wants {}",
              limit.rlim_cur, connections, wanted));
  }
}

/// Says in the log what came of SIGHUP.
void read_again(const Options& options, http::Server& server, serve::Service& service) {
  if (options.http.key_file.empty()) return service.note("SIGHUP: there is nothing to read again");
  const Status status = server.reload_certificate();
  service.note(status.ok() ? "the certificate was read again"
                           : fmt::format("the certificate stays: {}", status.error().message));
}

Result<ExitCode> serve_model(const Invocation& invocation, Options options) {
  std::signal(SIGHUP, SIG_IGN);  // before there is something to read again
  SUBBYTE_CHECK(complete(options));
  SUBBYTE_TRY(ReadyModel ready, open(invocation, options.model));
  SUBBYTE_TRY(std::unique_ptr<TextSetup> text, TextSetup::read(ready.files, ready.config));
  SUBBYTE_CHECK(options.chat_template.apply(*text, options.service.defaults));
  SUBBYTE_TRY(const SessionOptions session, session_options(options, ready, *text));
  std::signal(SIGPIPE, SIG_IGN);  // who read the log went away
  raise_file_limit(options.http.max_connections);
  serve::Service service(options.service);
  SUBBYTE_TRY(const std::unique_ptr<http::Server> server,
              http::Server::listen(options.http, service));
  service.attach(*server);
  server->on_signals({SIGHUP}, [&] { read_again(options, *server, service); });
  std::thread connections([&server] { server->run(); });
  ::pthread_setname_np(connections.native_handle(), "connections");
  const auto load = [&] {
    return load_session(invocation, std::move(ready), std::move(text), session);
  };
  const Result<ExitCode> result = answer(options, load, *server, service);
  server->stop();
  connections.join();
  service.close();
  return result;
}

void add_address(Command command, Options& options) {
  const std::string group = "Where it listens, and for whom";
  http::ServerOptions& http = options.http;
  serve::AccessOptions& access = options.service.access;
  const Argument host =
      command.option("--host", http.host, "address to listen on; 0.0.0.0 is all of this machine")
          .shows_default()
          .group(group);
  const Argument port = command.option("--port", http.port, "0: one that is free")
                            .between(0, 65535)
                            .shows_default()
                            .group(group);
  const Argument uds =
      command.option("--uds", options.uds, "a socket of this name instead, for its owner alone")
          .value("PATH")
          .group(group)
          .excludes(host)
          .excludes(port);
  command.option("--ssl-keyfile", http.key_file, "speak TLS, with this key in PEM")
      .value("FILE")
      .group(group);
  command
      .option("--ssl-certfile", http.certificate_file,
              "its certificates in PEM; SIGHUP reads both again")
      .value("FILE")
      .group(group);
  command.option("--api-prefix", options.service.prefix, "comes before every path")
      .value("PATH")
      .group(group);
  command
      .option("--api-key", access.keys,
              "requests must have this key (repeatable; SUBBYTE_API_KEY is one, too)")
      .value("KEY")
      .group(group);
  command.option("--api-key-file", options.key_file, "a key in each line")
      .value("FILE")
      .group(group);
  command
      .flag("--allow-open", options.allow_open,
            "everybody may ask, without a key, on a host that others reach")
      .group(group);
  command
      .option("--allowed-hosts", access.allowed_hosts,
              "names by which requests may call this host, beside localhost (repeatable)")
      .value("NAME")
      .group(group)
      .excludes(uds);
  command
      .option("--allowed-origins", access.allowed_origins,
              "origins whose pages may ask, * for all (repeatable; none)")
      .value("ORIGIN")
      .group(group);
  command
      .option("--served-model-name", options.names,
              "what requests call the model (repeatable; the name of MODEL)")
      .value("NAME")
      .group(group);
}

void add_limits(Command command, Options& options) {
  const std::string group = "Limits";
  serve::EngineOptions& engine = options.service.engine;
  constexpr int64_t kMost = int64_t{1} << 40;
  command.option("--max-num-queued-reqs", engine.max_queued_calls, "requests that wait; then 429")
      .between(1, kMost)
      .shows_default()
      .group(group);
  command
      .option("--max-num-queued-tokens", engine.max_queued_tokens,
              "tokens of their prompts, 0 as many as come")
      .between(0, kMost)
      .shows_default()
      .group(group);
  command.option("--max-queue-seconds", engine.max_queue_seconds, "that one waits; then 503")
      .between(1, kMost >> 10)
      .shows_default()
      .group(group);
  command.option("--max-body-bytes", options.http.max_body_bytes, "of a request; then 413")
      .between(1, kMost)
      .shows_default()
      .group(group);
  command
      .option("--max-held-bytes", options.held_bytes,
              fmt::format("of all requests together that are being read; then 503 ({})",
                          options.http.max_held_bytes))
      .between(1, kMost)
      .group(group);
  command.option("--max-connections", options.http.max_connections, "at a time; then 503")
      .between(1, 65536)
      .shows_default()
      .group(group);
  command
      .option("--max-connections-per-address", options.connections_per_address,
              "of one address, 0 as many as come (0 on this machine, else 64)")
      .between(0, 65536)
      .group(group);
  command
      .option("--shutdown-timeout", options.service.shutdown_seconds,
              "seconds that answers have to end in after SIGTERM")
      .between(0, 86400)
      .shows_default()
      .group(group);
  add_step_tokens(command, options.step_tokens, group);
  command
      .option("--max-slowdown", options.max_slowdown,
              "times as long as without them that tokens of answers may take while prompts longer "
              "than a step are read, more where many are; 0: as long as it takes, for the most "
              "tokens in all")
      .shows_default()
      .group(group);
}

void add_logs(Command command, Options& options) {
  const std::string group = "Logs and numbers";
  const Argument log =
      command.option("--log", options.log, "a line for each request, on standard error")
          .one_of(kLogs)
          .shows_default()
          .group(group);
  const Argument none =
      command.flag("--disable-log-requests", options.no_log, "the same as --log none")
          .group(group)
          .excludes(log);
  command.flag("--log-prompts", options.service.logs_prompts, "with the bodies of requests")
      .group(group)
      .excludes(none);
  command.option("--metrics-prefix", options.service.metrics_prefix, "of the names in /metrics")
      .value("NAME")
      .shows_default()
      .group(group);
}

}  // namespace

void add_serve(Program& program, Invocation& invocation) {
  Command command = program.add_command(
      "serve", "Answer requests of OpenAI's form over HTTP",
      "  subbyte serve Qwen/Qwen3-8B-AWQ\n"
      "  subbyte serve ./model --port 9000 --parallel 64 --ctx-size 16384\n"
      "  SUBBYTE_API_KEY=secret subbyte serve ./model --host 0.0.0.0 --log json\n"
      "  curl localhost:8000/v1/models");
  auto options = std::make_shared<Options>();
  command.model(options->model);
  command.option("--parallel", options->parallel, "samples that are computed at once")
      .between(1, 65536)
      .shows_default();
  command
      .option(
          "-c,--ctx-size", options->context,
          "tokens of prompt and answer together, at most (8192, or what the model was made for)")
      .between(1, int64_t{1} << 26)
      .zero_is_default();
  options->cache.add_to(command, "Options");
  add_head_bits(command, options->head_bits);
  add_kv_cache_type(command, options->kv_cache_type);
  options->prefixes.add_to(command);
  add_address(command, *options);
  add_limits(command, *options);
  add_logs(command, *options);
  options->chat_template.add_to(command);
  options->sampling.add_to(command);
  command.shares(Shares::kModel);
  command.run([options, &invocation] { return serve_model(invocation, *options); });
}

}  // namespace subbyte::app
