// A service whose backend fails.

#include "serve/service.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "support/failing_backend.h"
#include "support/open_session.h"
#include "support/paths.h"

namespace subbyte::serve {
namespace {

const std::string kModel = std::string(SUBBYTE_TEST_DATA) + "/../../demo/model";

/// The CPU, which fails when it is told to.
class OwnFailingBackend : public ::subbyte::testing::FailingBackend {
 public:
  explicit OwnFailingBackend(std::unique_ptr<Backend> machine)
      : FailingBackend(*machine), machine_(std::move(machine)) {}

 private:
  std::unique_ptr<Backend> machine_;
};

Result<std::unique_ptr<Backend>> make_failing(const DeviceOptions& device) {
  SUBBYTE_TRY(std::unique_ptr<Backend> machine, make_backend(device));
  return std::unique_ptr<Backend>(std::make_unique<OwnFailingBackend>(std::move(machine)));
}

class Client {
 public:
  explicit Client(const std::string& address) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience = {20, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port =
        htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    ::inet_pton(AF_INET, "127.0.0.1", &place.sin_addr);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&place), sizeof(place)), 0);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& head, const std::string& body = {}) {
    const std::string text =
        head + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body;
    EXPECT_EQ(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
  }
  /// What comes until `end` is in it.
  std::string receive(const std::string& end) {
    std::string text;
    char part[4096];
    while (text.find(end) == std::string::npos) {
      const ssize_t size = ::recv(socket_, part, sizeof(part), 0);
      if (size <= 0) return text + " (and no more)";
      text.append(part, static_cast<std::size_t>(size));
    }
    return text;
  }

 private:
  int socket_;
};

TEST(Service, ends_all_requests_after_an_error_of_the_backend) {
  SessionOptions options;
  options.device = {.device = "cpu", .num_threads = 1};
  options.context = 300;
  options.max_sequences = 1;  // one is computed, one waits
  auto session = ::subbyte::testing::open_session(kModel, options, {.make = make_failing});
  ASSERT_TRUE(session.ok()) << session.error().message;
  dynamic_cast<OwnFailingBackend&>(*session->ready().backend).fail_after(4);
  ServiceOptions service_options;
  service_options.models = {"m"};
  service_options.num_workers = 1;
  Service service(service_options);
  http::ServerOptions http;
  http.port = 0;
  const auto server = http::Server::listen(http, service).value();
  service.attach(*server);
  std::thread connections([&] { server->run(); });
  service.open(*std::move(session));
  {
    Client whole(server->address());
    Client stream(server->address());
    const std::string body = "{\"prompt\": \"It was\", \"max_tokens\": 200";
    whole.send("GET /health");
    EXPECT_NE(whole.receive("ok").find(" 200 "), std::string::npos);
    whole.send("POST /v1/completions", body + "}");
    stream.send("POST /v1/completions", body + ", \"stream\": true}");
    // The one worker has read the first one then.
    EXPECT_NE(stream.receive("\r\n\r\n").find(" 200 "), std::string::npos);
    const Status status = service.run();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, "memory");
    const std::string answer = whole.receive("\"code\":\"memory\"");
    EXPECT_NE(answer.find(" 500 "), std::string::npos) << answer;
    EXPECT_NE(stream.receive("\"code\":\"memory\"").find("data: {\"error\""), std::string::npos);
    Client later(server->address());
    later.send("GET /health");
    EXPECT_NE(later.receive("\r\n\r\n").find(" 503 "), std::string::npos);
    later.send("POST /v1/completions", body + "}");
    EXPECT_NE(later.receive("memory").find(" 503 "), std::string::npos);
  }
  server->stop();
  connections.join();
  service.close();
}

TEST(Service, is_not_ready_while_the_model_is_loaded) {
  ServiceOptions options;
  options.models = {"m"};
  Service service(options);
  http::ServerOptions http;
  http.port = 0;
  const auto server = http::Server::listen(http, service).value();
  service.attach(*server);
  std::thread connections([&] { server->run(); });
  {
    Client client(server->address());
    for (const auto& [line, status] : {std::pair("GET /ready", " 503 "),
                                       {"GET /health", " 200 "},
                                       {"GET /v1/models", " 200 "},
                                       {"GET /metrics", " 200 "}}) {
      client.send(line);
      EXPECT_NE(client.receive("\n\r\n").find(status), std::string::npos) << line;
    }
    Client other(server->address());
    other.send("POST /v1/completions", "{\"prompt\": \"a\"}");
    const std::string answer = other.receive("server.loading");
    EXPECT_NE(answer.find(" 503 "), std::string::npos);
    EXPECT_NE(answer.find("Retry-After"), std::string::npos);
  }
  server->stop();
  connections.join();
  service.close();
}

}  // namespace
}  // namespace subbyte::serve
