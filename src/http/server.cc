#include "http/server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/asio/post.hpp>
#include <csignal>
#include <cstring>
#include <utility>

#include "http/connection.h"

namespace subbyte::http {

namespace asio = boost::asio;

namespace {

using boost::system::error_code;
using Local = asio::local::stream_protocol;
using asio::ip::tcp;

constexpr auto kTick = std::chrono::milliseconds(200);
constexpr auto kPause = std::chrono::milliseconds(100);
constexpr auto kStopTime = std::chrono::seconds(2);
/// Connections that are told that there are too many, beside those that there may be.
constexpr std::size_t kMaxRefused = 32;

Error listen_error(const std::string& where, const error_code& error) {
  return {"http.listen", where + ": cannot listen there: " + error.message()};
}

/// Says whether a socket at the path has nobody who listens.
bool is_left_over(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  asio::io_context io;
  Local::socket socket(io);
  error_code error;
  socket.connect(Local::endpoint(path), error);
  return error == asio::error::connection_refused;
}

}  // namespace

Exchange::Exchange(std::shared_ptr<Connection> connection, Request request)
    : connection_(std::move(connection)), request_(std::move(request)) {}

void Exchange::send(Response response) {
  if (is_over() || has_begun_) return;
  has_begun_ = true;
  status_ = response.status;
  const std::shared_ptr<Connection> connection = connection_;
  connection->send(std::move(response));
}

void Exchange::begin(Response response) {
  if (is_over() || has_begun_) return;
  has_begun_ = true;
  status_ = response.status;
  const std::shared_ptr<Connection> connection = connection_;
  connection->begin(std::move(response));
}

void Exchange::write(std::string text) {
  if (is_over()) return;
  const std::shared_ptr<Connection> connection = connection_;
  connection->write(std::move(text));
}

void Exchange::end() {
  if (is_over()) return;
  const std::shared_ptr<Connection> connection = connection_;
  connection->end();
}

void Exchange::drop_body() {
  request_.body = {};
  if (!is_over()) connection_->drop_body();
}

void Exchange::count_body(const std::shared_ptr<std::atomic<uint64_t>>& bytes) {
  const uint64_t size = request_.body.size();
  *bytes += size;
  counted_ = std::shared_ptr<void>(nullptr, [bytes, size](void*) { *bytes -= size; });
}

Status Server::State::listen() {
  SUBBYTE_CHECK(load_certificate());
  return options.uds.empty() ? listen_on_host() : listen_on_path();
}

Status Server::State::listen_on_host() {
  error_code error;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port),
                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) return listen_error(options.host, error);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  const std::string where = options.host + ":" + std::to_string(options.port);
  tcp.emplace(io);
  tcp->open(endpoint.protocol(), error);
  if (!error) tcp->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) tcp->bind(endpoint, error);
  if (!error) tcp->listen(asio::socket_base::max_listen_connections, error);
  if (error) return listen_error(where, error);
  const bool is_v6 = endpoint.address().is_v6();
  const std::string host = is_v6 ? "[" + endpoint.address().to_string() + "]" : options.host;
  address = (tls == nullptr ? "http://" : "https://") + host + ":" +
            std::to_string(tcp->local_endpoint().port());
  accept();
  return {};
}

Status Server::State::listen_on_path() {
  if (options.uds.size() >= sizeof(sockaddr_un::sun_path)) {
    return Error{"http.uds", options.uds + ": expected a shorter path of a socket"};
  }
  if (is_left_over(options.uds)) ::unlink(options.uds.c_str());
  error_code error;
  local.emplace(io);
  local->open(Local(), error);
  const mode_t usual = ::umask(S_IRWXG | S_IRWXO | S_IXUSR);
  if (!error) local->bind(Local::endpoint(options.uds), error);
  ::umask(usual);
  if (!error) local->listen(asio::socket_base::max_listen_connections, error);
  if (error) return listen_error(options.uds, error);
  address = "unix:" + options.uds;
  accept_local();
  return {};
}

void Server::State::accept() {
  tcp->async_accept([this](const error_code& error, tcp::socket socket) {
    if (!tcp->is_open()) return;
    error_code ignored;
    std::string from;
    if (!error) {
      socket.set_option(tcp::no_delay(true), ignored);
      from = socket.remote_endpoint(ignored).address().to_string(ignored);
    }
    take(error, Socket(std::move(socket)), from);
  });
}

void Server::State::accept_local() {
  local->async_accept([this](const error_code& error, Local::socket socket) {
    if (local->is_open()) take(error, Socket(std::move(socket)), "unix");
  });
}

void Server::State::take(error_code error, Socket socket, const std::string& from) {
  const auto again = [this] { tcp ? accept() : accept_local(); };
  if (error) {  // too many files, too little memory: perhaps not for long
    pause.expires_after(kPause);
    pause.async_wait([again](const error_code& stopped) {
      if (!stopped) again();
    });
    return;
  }
  const auto most = static_cast<std::size_t>(options.max_connections);
  const bool is_full = connections.size() - num_refused >= most;
  const int64_t own = per_address.contains(from) ? per_address[from] : 0;
  const bool has_many =
      options.max_connections_per_address > 0 && own >= options.max_connections_per_address;
  const bool is_refused = is_full || has_many;
  if (is_refused) ++counts.too_many_connections;
  // Who speaks TLS would have to shake hands before he could be told.
  if (!is_refused || (num_refused < kMaxRefused && tls == nullptr)) {
    const auto connection = std::make_shared<Connection>(*this, std::move(socket), from);
    connection->is_counted_ = true;
    ++per_address[from];
    ++counts.connections;
    ++counts.accepted;
    connections.insert(connection);
    connection->is_refused_ = is_refused;
    if (is_refused) ++num_refused;
    connection->start();
    if (is_refused) {
      connection->refuse({503, "http.connections", "there are too many connections"});
    }
  }
  again();
}

void Server::State::tick() {
  ticks.expires_after(kTick);
  ticks.async_wait([this](const error_code& error) {
    if (error) return;
    const Clock::time_point now = Clock::now();
    const auto all = connections;  // which closing takes from
    for (const auto& connection : all) {
      if (stops_at && now > *stops_at) {
        connection->close();
      } else {
        connection->tick(now);
      }
    }
    if (stops_at && connections.empty()) return io.stop();
    tick();
  });
}

void Server::State::wait_for_signal(asio::signal_set& set, std::function<void()> function) {
  set.async_wait([this, &set, function = std::move(function)](const error_code& error, int) {
    if (error) return;
    function();
    wait_for_signal(set, function);
  });
}

void Server::State::stop() {
  if (stops_at) return;
  stops_at = Clock::now() + kStopTime;
  error_code ignored;
  if (tcp) tcp->close(ignored);
  if (local) {
    local->close(ignored);
    ::unlink(options.uds.c_str());
  }
  pause.cancel();
  for (asio::signal_set& set : signals) set.cancel(ignored);
  const auto all = connections;
  for (const auto& connection : all) connection->stop();
}

std::string Server::State::draw_id() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  for (int i = 0; i < 4; ++i) {
    uint32_t bits = random();
    for (int digit = 0; digit < 8; ++digit, bits >>= 4) id += kDigits[bits & 15];
  }
  return id;
}

Result<std::unique_ptr<Server>> Server::listen(const ServerOptions& options, Handler& handler) {
  auto state = std::make_unique<State>(options, handler);
  SUBBYTE_CHECK(state->listen());
  state->tick();
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

/// A connection knows its exchange, and that its connection.
Server::~Server() {
  const auto all = state_->connections;
  for (const auto& connection : all) connection->close();
}

const std::string& Server::address() const {
  return state_->address;
}

void Server::run() {
  state_->io.run();
}

void Server::post(std::function<void()> function) {
  asio::post(state_->io, std::move(function));
}

void Server::after(double seconds, std::function<void()> function) {
  const auto timer = std::make_shared<asio::steady_timer>(state_->io);
  timer->expires_after(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  timer->async_wait([timer, function = std::move(function)](const error_code& error) {
    if (!error) function();
  });
}

void Server::on_signals(std::vector<int> signals, std::function<void()> function) {
  post([this, signals = std::move(signals), function = std::move(function)]() mutable {
    asio::signal_set& set = state_->signals.emplace_back(state_->io);
    for (const int signal : signals) set.add(signal);
    state_->wait_for_signal(set, std::move(function));
  });
}

Status Server::reload_certificate() {
  return state_->load_certificate();
}

void Server::stop() {
  post([this] { state_->stop(); });
}

const ServerCounts& Server::counts() const {
  return state_->counts;
}

}  // namespace subbyte::http
