#include "http/connection.h"

#include <array>
#include <boost/asio/write.hpp>
#include <ctime>
#include <utility>

namespace subbyte::http {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kReadBytes = 16 << 10;
/// Of requests that come before their turn. More ends the connection: where nothing is read, nobody
/// would see that the client went away.
constexpr std::size_t kMaxAheadBytes = 256 << 10;
constexpr std::size_t kMaxBuffers = 64;  // of one call of the system
/// After the first time that a body has, its speed is that of the last so many seconds.
constexpr auto kSpeedTime = std::chrono::seconds(10);
constexpr auto kStalledTime = std::chrono::seconds(1);
constexpr std::size_t kMaxIdBytes = 64;
constexpr int64_t kLeastBytesPerSecond = 1024;
constexpr auto kLingerTime = std::chrono::seconds(2);

/// The client's own where it is short and can be printed.
bool is_id(const std::string* id) {
  if (id == nullptr || id->empty() || id->size() > kMaxIdBytes) return false;
  for (const char character : *id) {
    if (character <= 0x20 || character >= 0x7F) return false;
  }
  return true;
}

/// "Sun, 06 Nov 1994 08:49:37 GMT".
std::string date_now() {
  std::array<char, 40> text{};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  const std::size_t size =
      std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text.data(), size};
}

std::string chunk_of(std::string_view text) {
  std::array<char, 24> size{};
  const int digits = std::snprintf(size.data(), size.size(), "%zx\r\n", text.size());
  std::string chunk(size.data(), static_cast<std::size_t>(digits));
  chunk.append(text).append("\r\n");
  return chunk;
}

}  // namespace

Connection::Connection(Server::State& server, Socket socket, std::string address)
    : server_(server),
      socket_(std::move(socket)),
      address_(std::move(address)),
      read_buffer_(kReadBytes) {}

Connection::~Connection() = default;

void Connection::start() {
  if (server_.tls != nullptr) return shake_hands();
  enter(Phase::kIdle);
  read();
}

/// What is no TLS, or an older one, ends the connection.
void Connection::shake_hands() {
  enter(Phase::kHandshake);
  tls_.emplace(socket_, *server_.tls);
  tls_->async_handshake(asio::ssl::stream_base::server,
                        [self = shared_from_this()](boost::system::error_code error) {
                          if (self->phase_ != Phase::kHandshake) return;
                          if (error) {
                            ++self->server_.counts.malformed;
                            return self->close();
                          }
                          self->enter(Phase::kIdle);
                          self->read();
                        });
}

void Connection::enter(Phase phase) {
  phase_ = phase;
  since_ = Clock::now();
  speed_since_ = since_;
  speed_bytes_ = 0;
}

void Connection::read() {
  const bool has_ended = phase_ == Phase::kClosed || has_all_;
  if (is_reading_ || has_ended || must_take_first()) return;
  is_reading_ = true;
  const auto taken = [self = shared_from_this()](boost::system::error_code error,
                                                 std::size_t size) {
    self->is_reading_ = false;
    if (!error) return self->take_bytes(size);
    if (error == asio::error::eof) return self->take_end();
    self->close();
  };
  with_stream([&](auto& stream) { stream.async_read_some(asio::buffer(read_buffer_), taken); });
}

/// The client has closed the connection, or only the half that it sends in: what is written to it
/// now is answered by a reset in the first case, and can be read in the second. Before an answer of
/// HTTP/1.0 nothing may be written: there it counts as closed.
void Connection::take_end() {
  has_all_ = true;
  if (phase_ == Phase::kLinger) return close();
  progress();
  if (phase_ != Phase::kAnswer) return;
  if (!is_stream_ && framing_.is_version_1_0) return close();
  is_stream_ ? write(": ping\n\n") : queue("HTTP/1.1 100 Continue\r\n\r\n");
  watch();
}

/// Closes where the client resets the connection.
void Connection::watch() {
  if (phase_ == Phase::kClosed) return;
  socket_.async_wait(Socket::wait_error,
                     [self = shared_from_this()](boost::system::error_code) { self->close(); });
}

/// Says whether the client has to take answers before it is asked for more.
bool Connection::must_take_first() const {
  const bool is_between = phase_ == Phase::kIdle || phase_ == Phase::kHead;
  return is_between && !closes_ && output_bytes_ > kMaxWaitingBytes;
}

void Connection::take_bytes(std::size_t size) {
  const bool is_wanted = phase_ != Phase::kLinger && !(closes_ && phase_ == Phase::kIdle);
  if (is_wanted) {
    input_.append(read_buffer_.data(), size);
    if (phase_ == Phase::kAnswer && input_.size() > kMaxAheadBytes) {
      ++server_.counts.too_large;
      return close();
    }
    progress();
    if (count_held()) {
      ++server_.counts.too_many_bytes;
      if (phase_ == Phase::kAnswer) return close();
      refuse({503, "http.memory", "the requests that are being read are too large together"});
    }
  }
  read();
}

/// Counts what this holds of its client's requests. Says whether that has become too much of all.
bool Connection::count_held() {
  uint64_t bytes = input_.size();
  if (body_) bytes += body_->size();
  if (exchange_) bytes += exchange_->request().body.size();
  if (phase_ == Phase::kClosed) bytes = 0;
  const bool is_more = bytes > held_bytes_;
  server_.counts.held_bytes += bytes - held_bytes_;  // modulo 2^64, as it may be less
  held_bytes_ = bytes;
  const uint64_t all = server_.counts.held_bytes + *server_.left_bytes;
  return is_more && all > server_.options.max_held_bytes;
}

void Connection::drop_body() {
  count_held();
}

void Connection::progress() {
  bool goes_on = true;
  while (goes_on) {
    switch (phase_) {
      case Phase::kIdle:
      case Phase::kHead:
        goes_on = !closes_ && !must_take_first() && take_head();
        break;
      case Phase::kBody:
        goes_on = take_body();
        break;
      default:
        goes_on = false;
    }
  }
  const bool waits = phase_ == Phase::kIdle || phase_ == Phase::kHead || phase_ == Phase::kBody;
  if (!has_all_ || !waits || must_take_first()) return;
  closes_ = true;  // what it waits for does not come
  enter(Phase::kIdle);
  flush();
}

bool Connection::take_head() {
  std::size_t blank = 0;  // lines, as some send after a body
  while (input_.compare(blank, 2, "\r\n") == 0) blank += 2;
  input_.erase(0, blank);
  if (input_.empty()) return false;
  if (phase_ == Phase::kIdle) enter(Phase::kHead);
  if (const auto refusal = check_beginning(input_)) {
    refuse(*refusal);
    return false;
  }
  const std::optional<std::size_t> size = head_size(input_);
  if (!size) return false;
  const std::string head = input_.substr(0, *size);
  input_.erase(0, *size);
  request_ = {};
  request_.address = address_;
  framing_ = {};
  const auto refusal = read_head(head, request_, framing_);
  const std::string* const own_id = request_.find("x-request-id");
  request_.id = is_id(own_id) ? *own_id : server_.draw_id();
  ++server_.counts.requests;
  if (refusal) {
    refuse(*refusal);
    return false;
  }
  if (framing_.length.value_or(0) > server_.options.max_body_bytes) {
    refuse({413, "http.body", "the body is longer than --max-body-bytes"});
    return false;
  }
  if (auto answer = server_.handler.check(request_)) {
    closes_ = closes_ || framing_.has_body() || !framing_.keeps_alive;
    server_.handler.finish(request_, *answer);
    exchange_ = std::make_shared<Exchange>(shared_from_this(), std::move(request_));
    enter(Phase::kAnswer);
    exchange_->send(*std::move(answer));
    return !closes_;
  }
  body_ = std::make_unique<BodyReader>(framing_, server_.options.max_body_bytes);
  if (framing_.expects_continue && framing_.has_body()) queue("HTTP/1.1 100 Continue\r\n\r\n");
  enter(Phase::kBody);
  return true;
}

bool Connection::take_body() {
  std::string_view rest = input_;
  const auto refusal = body_->take(rest);
  input_.erase(0, input_.size() - rest.size());
  if (refusal) {
    refuse(*refusal);
    return false;
  }
  if (!body_->is_done()) return false;
  request_.body = body_->take_body();
  body_.reset();
  start_answer();
  return true;
}

void Connection::start_answer() {
  closes_ = closes_ || !framing_.keeps_alive;
  is_stream_ = false;
  enter(Phase::kAnswer);
  exchange_ = std::make_shared<Exchange>(shared_from_this(), std::move(request_));
  const std::shared_ptr<Exchange> answered = exchange_;  // which may be over at once
  server_.handler.handle(answered);
}

std::string Connection::head_of(const Response& response, bool is_stream) {
  const std::string_view version = framing_.is_version_1_0 ? "HTTP/1.0 " : "HTTP/1.1 ";
  std::string head(version);
  head += std::to_string(response.status) + " " + std::string(reason_of(response.status));
  head += "\r\nDate: " + date_now() + "\r\nx-request-id: ";
  head += exchange_             ? exchange_->request().id
          : request_.id.empty() ? server_.draw_id()
                                : request_.id;
  if (!response.type.empty() && response.status != 204) {
    head += "\r\nContent-Type: " + response.type;
  }
  if (is_stream && !framing_.is_version_1_0) head += "\r\nTransfer-Encoding: chunked";
  if (!is_stream && response.status != 204) {
    head += "\r\nContent-Length: " + std::to_string(response.body.size());
  }
  if (closes_) head += "\r\nConnection: close";
  if (!closes_ && framing_.is_version_1_0) head += "\r\nConnection: keep-alive";
  for (const auto& [name, value] : response.headers) head += "\r\n" + name + ": " + value;
  return head + "\r\n\r\n";
}

void Connection::send(Response response) {
  if (phase_ != Phase::kAnswer) return;
  std::string text = head_of(response, false);
  if (exchange_->request().method != "HEAD") text += response.body;
  queue(std::move(text));
  finish_answer();
}

void Connection::begin(Response response) {
  if (phase_ != Phase::kAnswer) return;
  is_stream_ = true;
  closes_ = closes_ || framing_.is_version_1_0;  // whose end says how long it was
  last_said_ = Clock::now();
  queue(head_of(response, true));
  if (!response.body.empty()) write(std::move(response.body));
}

void Connection::write(std::string text) {
  if (phase_ != Phase::kAnswer || text.empty()) return;
  const bool takes_nothing = Clock::now() - last_taken_ > kStalledTime;
  if (output_bytes_ > kMaxStreamBytes || (output_bytes_ > kMaxWaitingBytes && takes_nothing)) {
    ++server_.counts.stalled_readers;
    close();
    return;
  }
  last_said_ = Clock::now();
  queue(framing_.is_version_1_0 ? std::move(text) : chunk_of(text));
}

void Connection::end() {
  if (phase_ != Phase::kAnswer) return;
  if (!framing_.is_version_1_0) queue("0\r\n\r\n");
  finish_answer();
}

void Connection::finish_answer() {
  is_stream_ = false;
  leave_exchange();
  enter(Phase::kIdle);
  if (closes_ || server_.stops_at) {
    closes_ = true;
    flush();
    return;
  }
  // What came meanwhile is looked at later: who answers may hold what it would ask for.
  asio::post(server_.io, [self = shared_from_this()] {
    self->progress();
    self->read();
  });
}

void Connection::leave_exchange() {
  if (!exchange_) return;
  const std::shared_ptr<Exchange> over = std::move(exchange_);
  exchange_ = nullptr;
  over->connection_ = nullptr;
  over->is_gone_ = true;
  over->count_body(server_.left_bytes);
  count_held();
  if (over->on_over) std::exchange(over->on_over, nullptr)();
}

void Connection::count(const Refusal& refusal) {
  ServerCounts& counts = server_.counts;
  if (refusal.status == 408 || refusal.status == 503) return;  // counted by its cause
  const bool is_large = refusal.status == 413 || refusal.status == 414 || refusal.status == 431;
  ++(is_large ? counts.too_large : counts.malformed);
}

void Connection::refuse(const Refusal& refusal) {
  if (phase_ == Phase::kClosed || phase_ == Phase::kLinger) return;
  count(refusal);
  closes_ = true;
  Response response = error_response(refusal);
  queue(head_of(response, false) + response.body);
  enter(Phase::kIdle);
  input_.clear();
  body_.reset();
  count_held();
  flush();
}

void Connection::queue(std::string text) {
  if (phase_ == Phase::kClosed) return;
  if (output_.empty()) last_taken_ = Clock::now();
  output_bytes_ += text.size();
  output_.push_back(std::move(text));
  flush();
}

/// Writes what waits, as much as goes at once.
void Connection::flush() {
  if (is_writing_ || phase_ == Phase::kClosed) return;
  if (output_.empty()) {
    if (closes_ && phase_ == Phase::kIdle) linger();
    return;
  }
  is_writing_ = true;
  std::vector<asio::const_buffer> buffers;
  for (const std::string& text : output_) {
    const std::size_t skipped = buffers.empty() ? written_ : 0;
    buffers.emplace_back(text.data() + skipped, text.size() - skipped);
    if (buffers.size() == kMaxBuffers) break;
  }
  const auto written = [self = shared_from_this()](boost::system::error_code error,
                                                   std::size_t size) {
    self->is_writing_ = false;
    if (error) return self->close();
    self->take_written(size);
  };
  with_stream([&](auto& stream) { stream.async_write_some(buffers, written); });
}

void Connection::take_written(std::size_t size) {
  last_taken_ = Clock::now();
  output_bytes_ -= size;
  written_ += size;
  while (!output_.empty() && written_ >= output_.front().size()) {
    written_ -= output_.front().size();
    output_.pop_front();
  }
  flush();
  progress();
  read();
}

/// Reads what the client still sends, since closing at once could take the answer away from it.
void Connection::linger() {
  if (phase_ == Phase::kLinger) return;
  if (has_all_ && !tls_) return close();
  enter(Phase::kLinger);
  const auto finish = [self = shared_from_this()] {
    if (self->has_all_) return self->close();
    boost::system::error_code ignored;
    self->socket_.shutdown(Socket::shutdown_send, ignored);
    self->read();
  };
  if (!tls_) return finish();
  // With its end the client knows that it has all. Its own is waited for, too, or kLingerTime.
  tls_->async_shutdown([finish](boost::system::error_code) { finish(); });
}

void Connection::close() {
  if (phase_ == Phase::kClosed) return;
  enter(Phase::kClosed);
  const std::shared_ptr<Connection> self = shared_from_this();
  boost::system::error_code ignored;
  socket_.close(ignored);
  leave_exchange();
  count_held();
  if (is_counted_ && --server_.per_address[address_] == 0) server_.per_address.erase(address_);
  if (is_refused_) --server_.num_refused;
  if (server_.connections.erase(self) > 0) --server_.counts.connections;
}

void Connection::stop() {
  if (phase_ == Phase::kHandshake) return close();
  const bool is_quiet = phase_ == Phase::kIdle || phase_ == Phase::kHead || phase_ == Phase::kBody;
  closes_ = true;
  if (!is_quiet) return;
  if (output_.empty()) return close();
  enter(Phase::kIdle);
}

/// Says whether a body came with less than kLeastBytesPerSecond since it was asked last.
bool Connection::is_slow(Clock::time_point now) {
  const std::chrono::seconds first(server_.options.body_seconds);
  const auto time = speed_since_ == since_ ? first : std::chrono::seconds(kSpeedTime);
  if (now - speed_since_ < time) return false;
  const auto bytes = static_cast<int64_t>(body_->size());
  const bool result = bytes - speed_bytes_ < time.count() * kLeastBytesPerSecond;
  speed_since_ = now;
  speed_bytes_ = bytes;
  return result;
}

void Connection::tick(Clock::time_point now) {
  const ServerOptions& options = server_.options;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - since_).count();
  if (phase_ != Phase::kLinger && !output_.empty() &&
      now - last_taken_ > std::chrono::seconds(options.stalled_seconds)) {
    ++server_.counts.stalled_readers;
    return close();
  }
  switch (phase_) {
    case Phase::kHandshake:
      if (seconds < options.head_seconds) break;
      ++server_.counts.head_timeouts;
      close();
      break;
    case Phase::kIdle:
      if (output_.empty() && seconds >= options.idle_seconds) close();
      break;
    case Phase::kHead:
      if (seconds < options.head_seconds) break;
      ++server_.counts.head_timeouts;
      refuse({408, "http.timeout", "the head of the request took too long"});
      break;
    case Phase::kBody:
      if (!is_slow(now)) break;
      ++server_.counts.body_timeouts;
      refuse({408, "http.timeout", "the body of the request took too long"});
      break;
    case Phase::kAnswer:
      if (is_stream_ && now - last_said_ >= std::chrono::seconds(options.ping_seconds)) {
        write(": ping\n\n");
      }
      break;
    case Phase::kLinger:
      if (now - since_ > kLingerTime) close();
      break;
    case Phase::kClosed:
      break;
  }
}

}  // namespace subbyte::http
