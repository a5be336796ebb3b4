// A server whose limits are short, and a client that has sockets alone.

#include "http/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace subbyte::http {
namespace {

constexpr int kPatience = 10;  // seconds that a test waits for what should come

/// Answers with what it was sent. "/late" is never answered, "/stream" in parts, and "/flood" with
/// more than anybody reads.
class Echo : public Handler {
 public:
  std::optional<Response> check(const Request& head) override {
    if (head.path != "/none") return std::nullopt;
    return error_response({404, "test.none", "none"});
  }
  void handle(const std::shared_ptr<Exchange>& exchange) override {
    const std::string& path = exchange->request().path;
    if (path == "/late" || path == "/flood" || path == "/ping") {
      exchange->on_over = [this] { ++num_over; };
    }
    if (path == "/late") {
      late = exchange;
    } else if (path == "/ping") {
      exchange->begin({});
      late = exchange;
    } else if (path == "/stream") {
      exchange->begin({});
      for (const char* const part : {"one", "two", "three"}) exchange->write(part);
      exchange->end();
    } else if (path == "/flood") {
      exchange->begin({});
      while (!exchange->is_over()) exchange->write(std::string(64 << 10, 'x'));
    } else {
      Response response;
      response.body = exchange->request().method + " " + path + " " + exchange->request().body;
      exchange->send(std::move(response));
    }
  }
  void finish(const Request&, Response&) override {}

  std::shared_ptr<Exchange> late;
  std::atomic<int> num_over = 0;
};

ServerOptions short_limits() {
  ServerOptions options;
  options.port = 0;
  options.max_body_bytes = 1000;
  options.max_held_bytes = 1500;
  options.max_connections = 3;
  options.head_seconds = 1;
  options.body_seconds = 1;
  options.idle_seconds = 2;
  options.stalled_seconds = 1;
  options.ping_seconds = 1;
  return options;
}

class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience = {kPatience, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& text) {
    EXPECT_EQ(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
  }
  /// What comes until `end` is in it; all until the connection ends where that is empty.
  std::string receive(const std::string& end) {
    std::string text;
    char part[4096];
    while (end.empty() || text.find(end) == std::string::npos) {
      const ssize_t size = ::recv(socket_, part, sizeof(part), 0);
      is_closed_ = size == 0;
      if (size <= 0) return text;
      text.append(part, static_cast<std::size_t>(size));
    }
    return text;
  }
  std::string ask(const std::string& text, const std::string& end = {}) {
    send(text);
    return receive(end);
  }
  bool is_closed() const { return is_closed_; }
  /// Sends nothing more.
  void finish() { ::shutdown(socket_, SHUT_WR); }

 private:
  int socket_;
  bool is_closed_ = false;
};

class HttpServer : public ::testing::Test {
 protected:
  HttpServer() {
    auto listening = Server::listen(short_limits(), echo_);
    EXPECT_TRUE(listening.ok());
    server_ = *std::move(listening);
    thread_ = std::thread([this] { server_->run(); });
  }
  ~HttpServer() override {
    server_->stop();
    thread_.join();
    echo_.late.reset();
  }

  int port() const {
    const std::string& address = server_->address();
    return std::stoi(address.substr(address.rfind(':') + 1));
  }

  /// Asks for something else until a request is over, but not for longer than one waits.
  void wait_until_over(Client& other) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kPatience);
    while (echo_.num_over == 0 && std::chrono::steady_clock::now() < end) {
      other.ask("GET /a HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a ");
    }
    EXPECT_EQ(echo_.num_over, 1);
  }

  Echo echo_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

const std::string kHost = " HTTP/1.1\r\nHost: h\r\n";

std::string post(const std::string& path, const std::string& body, const std::string& fields = {}) {
  return "POST " + path + kHost + fields + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

TEST_F(HttpServer, keeps_a_connection_for_several_requests) {
  Client client(port());
  EXPECT_NE(client.ask(post("/a", "first"), "first").find("200 OK"), std::string::npos);
  EXPECT_NE(client.ask("GET /b" + kHost + "\r\n", "GET /b ").find("200 OK"), std::string::npos);
  const std::string last = client.ask(post("/c", "last", "Connection: close\r\n"));
  EXPECT_NE(last.find("POST /c last"), std::string::npos);
  EXPECT_NE(last.find("Connection: close"), std::string::npos);
  EXPECT_TRUE(client.is_closed());
}

TEST_F(HttpServer, answers_pipelined_requests_in_their_order) {
  Client client(port());
  const std::string all = client.ask(post("/a", "1") + post("/stream", "2") + post("/b", "3") +
                                     post("/c", "4", "Connection: close\r\n"));
  const std::size_t a = all.find("POST /a 1");
  const std::size_t stream = all.find("3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n");
  const std::size_t b = all.find("POST /b 3");
  const std::size_t c = all.find("POST /c 4");
  EXPECT_LT(a, stream);
  EXPECT_LT(stream, b);
  EXPECT_LT(b, c);
  EXPECT_NE(c, std::string::npos);
}

TEST_F(HttpServer, reads_chunked_bodies_and_nothing_of_their_trailers) {
  Client client(port());
  const std::string head = "POST /a" + kHost + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_NE(client.ask(head + "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n", "abcde").find("200"),
            std::string::npos);
  for (const std::string bad :
       {"3\nabc\r\n0\r\n\r\n", "x\r\nabc\r\n", "3\r\nabcd\r\n0\r\n\r\n", "ffffffffffffffffff\r\n",
        "-1\r\n", "\r\n", " 3\r\nabc\r\n", "0\r\nX: a\rb\r\n\r\n"}) {
    Client other(port());
    EXPECT_NE(other.ask(head + bad).find("400 Bad Request"), std::string::npos) << bad;
    EXPECT_TRUE(other.is_closed());
  }
}

TEST_F(HttpServer, says_continue_only_where_the_body_is_wanted) {
  Client client(port());
  const std::string expects = "Expect: 100-continue\r\n";
  client.send("POST /a" + kHost + expects + "Content-Length: 2\r\n\r\n");
  EXPECT_NE(client.receive("\r\n\r\n").find("100 Continue"), std::string::npos);
  EXPECT_NE(client.ask("hi", "POST /a hi").find("200 OK"), std::string::npos);
  client.send("POST /none" + kHost + expects + "Content-Length: 2\r\n\r\n");
  const std::string refused = client.receive({});
  EXPECT_NE(refused.find("404"), std::string::npos);
  EXPECT_EQ(refused.find("100 Continue"), std::string::npos);
}

TEST_F(HttpServer, answers_head_and_old_versions) {
  Client client(port());
  const std::string head = client.ask("HEAD /a" + kHost + "\r\n", "\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 8\r\n"), std::string::npos);
  EXPECT_EQ(head.substr(head.size() - 4), "\r\n\r\n");
  const std::string old = client.ask("GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.find("chunked"), std::string::npos);
  EXPECT_NE(old.find("\r\n\r\nonetwothree"), std::string::npos);
  EXPECT_TRUE(client.is_closed());
}

TEST_F(HttpServer, refuses_bodies_that_are_too_large) {
  Client said(port());
  EXPECT_NE(said.ask("POST /a" + kHost + "Content-Length: 1001\r\n\r\n").find(" 413 "),
            std::string::npos);
  Client chunked(port());
  chunked.send("POST /a" + kHost + "Transfer-Encoding: chunked\r\n\r\n");
  EXPECT_NE(chunked.ask("3e9\r\n" + std::string(1001, 'a')).find(" 413 "), std::string::npos);
}

TEST_F(HttpServer, takes_an_id_that_can_be_printed) {
  Client client(port());
  EXPECT_NE(client.ask(post("/a", "1", "X-Request-Id: mine-1\r\n"), "/a 1")
                .find("x-request-id: mine-1\r\n"),
            std::string::npos);
  const std::string id(65, 'x');
  EXPECT_EQ(client.ask(post("/a", "2", "X-Request-Id: " + id + "\r\n"), "/a 2").find(id),
            std::string::npos);
}

TEST_F(HttpServer, ends_what_takes_too_long) {
  Client head(port());
  Client body(port());
  Client idle(port());
  head.send("GET / HT");
  body.send("POST /a" + kHost + "Content-Length: 10\r\n\r\n12");
  EXPECT_NE(head.receive({}).find(" 408 "), std::string::npos);
  EXPECT_NE(body.receive({}).find(" 408 "), std::string::npos);
  EXPECT_EQ(idle.receive({}), "");
  EXPECT_TRUE(idle.is_closed());
}

TEST_F(HttpServer, refuses_more_connections_than_it_may_have) {
  {
    Client one(port());
    Client two(port());
    Client three(port());
    one.ask("GET /a" + kHost + "\r\n", "GET /a ");
    two.ask("GET /a" + kHost + "\r\n", "GET /a ");
    three.ask("GET /a" + kHost + "\r\n", "GET /a ");
    Client four(port());
    EXPECT_NE(four.receive({}).find(" 503 "), std::string::npos);
  }
}

TEST_F(HttpServer, tells_when_a_client_goes_away) {
  {
    Client client(port());
    client.send("GET /late" + kHost + "\r\n");
    Client other(port());  // is answered after the first was handled
    other.ask("GET /a" + kHost + "\r\n", "GET /a ");
    EXPECT_EQ(echo_.num_over, 0);
  }
  Client later(port());
  wait_until_over(later);
}

TEST_F(HttpServer, answers_who_sends_nothing_more) {
  for (const std::string path : {"/a", "/stream"}) {
    Client client(port());
    client.send(post("/b", "before") + post(path, "last"));
    client.finish();
    const std::string all = client.receive({});
    EXPECT_NE(all.find("POST /b before"), std::string::npos);
    EXPECT_NE(all.find(path == "/a" ? "POST /a last" : "three\r\n0\r\n\r\n"), std::string::npos);
    EXPECT_TRUE(client.is_closed());
  }
  Client late(port());
  late.send("GET /late" + kHost + "\r\n");
  late.finish();
  EXPECT_NE(late.receive("100 Continue\r\n\r\n").find("100 Continue"), std::string::npos);
  server_->post([this] { echo_.late->send({.body = "late after all"}); });
  EXPECT_NE(late.receive({}).find("200 OK"), std::string::npos);
  Client part(port());
  part.send("POST /a" + kHost + "Content-Length: 10\r\n\r\nhalf");
  part.finish();
  EXPECT_EQ(part.receive({}), "");
  EXPECT_TRUE(part.is_closed());
}

TEST_F(HttpServer, takes_the_end_of_an_old_client_as_its_leave) {
  Client client(port());
  client.send("GET /late HTTP/1.0\r\n\r\n");
  Client other(port());  // is answered after the first was handled
  other.ask("GET /a" + kHost + "\r\n", "GET /a ");
  EXPECT_EQ(echo_.num_over, 0);
  client.finish();
  wait_until_over(other);
}

TEST_F(HttpServer, holds_no_more_than_it_may_of_all_requests) {
  const std::string head = "POST /a" + kHost + "Content-Length: 1000\r\n\r\n";
  Client one(port());
  Client two(port());
  one.send(head + std::string(999, 'a'));
  EXPECT_NE(two.ask(head + std::string(999, 'b')).find(" 503 "), std::string::npos);
  EXPECT_NE(one.ask("a", "aa").find("200 OK"), std::string::npos);
  EXPECT_EQ(server_->counts().too_many_bytes, 1);
  Client three(port());
  EXPECT_NE(three.ask(head + std::string(1000, 'c'), "cc").find("200 OK"), std::string::npos);
}

TEST_F(HttpServer, counts_what_is_still_read_of_clients_that_have_gone) {
  const std::string size = kHost + "Content-Length: 1000\r\n\r\n";
  Client other(port());
  {
    Client gone(port());
    gone.send("POST /late" + size + std::string(1000, 'a'));
    other.ask("GET /a" + kHost + "\r\n", "GET /a ");
  }
  wait_until_over(other);
  Client two(port());
  EXPECT_NE(two.ask("POST /a" + size + std::string(999, 'b')).find(" 503 "), std::string::npos);
  echo_.late = nullptr;  // nobody reads it any more
  Client three(port());
  EXPECT_NE(three.ask("POST /a" + size + std::string(1000, 'c'), "cc").find("200 OK"),
            std::string::npos);
}

TEST_F(HttpServer, ends_who_sends_too_much_before_its_turn) {
  Client client(port());
  client.send("GET /late" + kHost + "\r\n");
  Client other(port());  // is answered after the first was handled
  other.ask("GET /a" + kHost + "\r\n", "GET /a ");
  client.send(std::string(1000, 'a'));  // is held, and nothing follows
  other.ask("GET /a" + kHost + "\r\n", "GET /a ");
  EXPECT_EQ(echo_.num_over, 0);
  client.send(std::string(1000, 'a'));
  EXPECT_EQ(client.receive({}), "");
  wait_until_over(other);
}

TEST_F(HttpServer, ends_a_stream_that_nobody_reads) {
  Client client(port());
  client.send("GET /flood" + kHost + "\r\n");
  Client other(port());
  wait_until_over(other);
  EXPECT_EQ(server_->counts().stalled_readers, 1);
}

TEST_F(HttpServer, says_that_a_stream_is_alive) {
  Client client(port());
  EXPECT_NE(client.ask("GET /ping" + kHost + "\r\n", ": ping").find(": ping"), std::string::npos);
}

}  // namespace
}  // namespace subbyte::http
