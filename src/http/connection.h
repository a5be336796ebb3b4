#pragma once
// One connection of a server, and what its connections share. For server.cc and connection.cc
// alone, which have Boost.

#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "http/body_reader.h"
#include "http/head.h"
#include "http/server.h"

namespace subbyte::http {

using Clock = std::chrono::steady_clock;
using Socket = boost::asio::generic::stream_protocol::socket;
using TlsContext = boost::asio::ssl::context;

struct Server::State {
  State(const ServerOptions& server_options, Handler& server_handler)
      : options(server_options), handler(server_handler) {}

  ServerOptions options;
  Handler& handler;
  boost::asio::io_context io{1};
  std::optional<boost::asio::ip::tcp::acceptor> tcp;
  std::optional<boost::asio::local::stream_protocol::acceptor> local;
  std::unique_ptr<TlsContext> tls;  // nullptr: none is spoken
  std::list<boost::asio::signal_set> signals;
  boost::asio::steady_timer ticks{io};
  boost::asio::steady_timer pause{io};  // before connections are taken again
  std::string address;
  ServerCounts counts;
  /// Bytes of bodies that are still read though their clients have gone; of those who read, too.
  std::shared_ptr<std::atomic<uint64_t>> left_bytes = std::make_shared<std::atomic<uint64_t>>(0);
  std::map<std::string, int64_t> per_address;
  std::set<std::shared_ptr<Connection>> connections;
  std::size_t num_refused = 0;  // of them, which are about to end
  std::random_device random;
  std::optional<Clock::time_point> stops_at;  // after stop()

  Status listen();
  /// In tls.cc.
  Status load_certificate();
  Status listen_on_host();
  Status listen_on_path();
  void accept();
  void accept_local();
  /// A connection, or why there is none: the system has no more.
  void take(boost::system::error_code error, Socket socket, const std::string& from);
  void tick();
  void wait_for_signal(boost::asio::signal_set& signals, std::function<void()> function);
  void stop();
  std::string draw_id();
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Server::State& server, Socket socket, std::string address);
  ~Connection();

  void start();
  /// Refuses to answer anything.
  void refuse(const Refusal& refusal);
  /// Looks at what takes too long.
  void tick(Clock::time_point now);
  /// Ends as soon as nothing is under way.
  void stop();
  void close();

  // Of the exchange that is answered.
  void send(Response response);
  void begin(Response response);
  void write(std::string text);
  void end();
  void drop_body();

 private:
  enum class Phase { kHandshake, kIdle, kHead, kBody, kAnswer, kLinger, kClosed };

  /// Calls with the stream that the client is spoken to over.
  template <typename Function>
  void with_stream(Function function) {
    tls_ ? function(*tls_) : function(socket_);
  }
  void shake_hands();
  bool must_take_first() const;
  bool is_slow(Clock::time_point now);
  void read();
  void take_bytes(std::size_t size);
  void take_end();
  void watch();
  void progress();
  bool count_held();
  bool take_head();
  bool take_body();
  void start_answer();
  void finish_answer();
  void leave_exchange();
  void enter(Phase phase);
  void linger();
  std::string head_of(const Response& response, bool is_stream);
  void queue(std::string text);
  void flush();
  void take_written(std::size_t size);
  void count(const Refusal& refusal);

  Server::State& server_;
  Socket socket_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
  std::string address_;
  Phase phase_ = Phase::kIdle;
  Clock::time_point since_;        // of the phase
  Clock::time_point last_taken_;   // when the client took something, or there was nothing
  Clock::time_point last_said_;    // of a stream
  Clock::time_point speed_since_;  // of a body: when its bytes were counted last
  int64_t speed_bytes_ = 0;        // that there were then
  std::string input_;
  std::vector<char> read_buffer_;
  bool is_reading_ = false;
  bool has_all_ = false;     // the client sends no more, and may still wait for answers
  uint64_t held_bytes_ = 0;  // that the server counts for this
  Request request_;
  Framing framing_;
  std::unique_ptr<BodyReader> body_;
  std::shared_ptr<Exchange> exchange_;
  bool is_stream_ = false;
  bool closes_ = false;  // after what is written
  std::deque<std::string> output_;
  std::size_t output_bytes_ = 0;
  std::size_t written_ = 0;  // of the first of them
  bool is_writing_ = false;
  bool is_counted_ = false;  // among those of its address
  bool is_refused_ = false;  // from the beginning: it is one too many

  friend struct Server::State;
};

}  // namespace subbyte::http
