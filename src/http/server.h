#pragma once
// A server of HTTP/1.1: one thread for all connections, within limits that no client moves.
//
//   read head -> Handler::check -> read body -> Handler::handle -> Exchange::send
//                    |                              |           or begin, write ..., end
//                    +-- refused, closed            +-- on_over: sent, or the client went away
//
// Everything here but post(), on_signals() and stop() is called in the thread that is in run().

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "http/message.h"

namespace subbyte::http {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;               // 0: one that is free
  std::string uds;               // the path of a socket instead of a host, unless it is empty
  std::string key_file;          // in PEM; with it, TLS is spoken and nothing else
  std::string certificate_file;  // in PEM, those that it was signed with after it
  uint64_t max_body_bytes = uint64_t{32} << 20;
  uint64_t max_held_bytes = uint64_t{512} << 20;  // of all requests together
  int64_t max_connections = 1024;
  int64_t max_connections_per_address = 0;  // 0: as many as there are
  int64_t head_seconds = 10;
  int64_t body_seconds = 60;  // after these a body comes with 1 KiB/s at least
  int64_t idle_seconds = 75;
  int64_t stalled_seconds = 30;  // that a client takes nothing of what waits for it
  int64_t ping_seconds = 15;     // that a stream says nothing
};

/// Bytes that wait for a client: of answers to requests that came in a row, before the next of them
/// is looked at; of a stream, while the client takes nothing for a second.
inline constexpr std::size_t kMaxWaitingBytes = 256 << 10;
/// Bytes of a stream that wait for a client, however fast it is.
inline constexpr std::size_t kMaxStreamBytes = 64 << 20;

/// Things that happened since the start.
struct ServerCounts {
  int64_t connections = 0;  // that are open now
  uint64_t held_bytes = 0;  // of requests, now: bodies, and what comes before its turn
  int64_t accepted = 0;
  int64_t requests = 0;
  // Limits that were hit, and what else was refused.
  int64_t head_timeouts = 0;
  int64_t body_timeouts = 0;
  int64_t stalled_readers = 0;
  int64_t too_many_connections = 0;
  int64_t too_many_bytes = 0;
  int64_t malformed = 0;
  int64_t too_large = 0;
};

class Connection;

/// A request and its answer.
class Exchange {
 public:
  Exchange(std::shared_ptr<Connection> connection, Request request);

  const Request& request() const { return request_; }
  Request& request() { return request_; }
  /// The whole answer.
  void send(Response response);
  /// The head of an answer that comes in parts; its body is the first.
  void begin(Response response);
  void write(std::string text);
  void end();
  /// Gives the memory of the body back, before the answer is made.
  void drop_body();
  /// Says whether nobody waits for the answer any more: it is sent, or the client went away.
  bool is_over() const { return connection_ == nullptr; }
  /// The same; any thread may ask.
  bool is_gone() const { return is_gone_; }
  bool has_begun() const { return has_begun_; }
  int status() const { return status_; }  // that was sent; 0: none

  /// Is called once, when the exchange is over, whatever the reason.
  std::function<void()> on_over = nullptr;

 private:
  friend class Connection;
  /// Counts the bytes of the body until this ends.
  void count_body(const std::shared_ptr<std::atomic<uint64_t>>& bytes);

  std::shared_ptr<Connection> connection_;
  std::atomic<bool> is_gone_ = false;
  Request request_;
  std::shared_ptr<void> counted_;  // of the body
  bool has_begun_ = false;
  int status_ = 0;
};

class Handler {
 public:
  virtual ~Handler() = default;
  /// Answers a head alone; its body is not read then.
  virtual std::optional<Response> check(const Request& head) = 0;
  /// Answers a request, now or later.
  virtual void handle(const std::shared_ptr<Exchange>& exchange) = 0;
  /// Adds fields to each answer to a request.
  virtual void finish(const Request& request, Response& response) = 0;
};

class Server {
 public:
  /// The handler must outlive this. Codes: http.listen, http.uds, http.tls.
  static Result<std::unique_ptr<Server>> listen(const ServerOptions& options, Handler& handler);
  ~Server();

  /// "http://127.0.0.1:8000", "https://..." or "unix:/path".
  const std::string& address() const;
  /// Serves until stop().
  void run();
  /// Calls in the thread of run(); any thread may ask.
  void post(std::function<void()> function);
  /// Calls `function` after so many seconds, unless run() has ended.
  void after(double seconds, std::function<void()> function);
  /// From now on one of these signals calls this in the thread of run(), each time.
  void on_signals(std::vector<int> signals, std::function<void()> function);
  /// Reads key and certificate again, for connections to come; after an error those before stay. In
  /// the thread of run().
  Status reload_certificate();
  /// Takes no connections any more, and run() ends when the answers that are under way have been
  /// sent, but within two seconds. Any thread may ask.
  void stop();
  const ServerCounts& counts() const;

  struct State;

 private:
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace subbyte::http
