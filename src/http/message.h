#pragma once
// Requests and answers of HTTP/1.1, as who answers them sees them.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace subbyte::http {

struct Header {
  std::string name;
  std::string value;
};

struct Request {
  std::string method;
  std::string path;   // as it was sent, without the query
  std::string query;  // after "?"
  std::vector<Header> headers;
  std::string body;
  std::string address;  // of the client: "127.0.0.1", "unix"
  std::string id;       // for x-request-id: the client's own, or one that was drawn

  /// The value of a field, whose name may have letters of either case; nullptr without one.
  const std::string* find(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  std::vector<Header> headers = {};
};

/// Why something is not answered.
struct Refusal {
  int status = 400;
  std::string code;  // ours, "http.length"
  std::string message;
};

/// A refusal as an answer, in the form of OpenAI's errors. `param` is the field that it is about.
Response error_response(const Refusal& refusal, std::string_view param = {});
/// The same as the value that it is made of, for events of a stream.
std::string error_text(const Refusal& refusal, std::string_view param = {});

/// Says whether two texts are the same but for the case of letters of ASCII.
bool is_same_name(std::string_view a, std::string_view b);

/// "Not Found" for 404.
std::string_view reason_of(int status);

}  // namespace subbyte::http
