#include "http/message.h"

#include <algorithm>
#include <array>
#include <utility>

#include "json/strict_json.h"

namespace subbyte::http {
namespace {

using json::Value;

constexpr std::array<std::pair<int, std::string_view>, 21> kReasons = {
    {{100, "Continue"},
     {200, "OK"},
     {204, "No Content"},
     {400, "Bad Request"},
     {401, "Unauthorized"},
     {403, "Forbidden"},
     {404, "Not Found"},
     {405, "Method Not Allowed"},
     {408, "Request Timeout"},
     {411, "Length Required"},
     {413, "Content Too Large"},
     {414, "URI Too Long"},
     {415, "Unsupported Media Type"},
     {417, "Expectation Failed"},
     {421, "Misdirected Request"},
     {429, "Too Many Requests"},
     {431, "Request Header Fields Too Large"},
     {500, "Internal Server Error"},
     {501, "Not Implemented"},
     {503, "Service Unavailable"},
     {505, "HTTP Version Not Supported"}}};

/// The kinds of errors that OpenAI's clients know.
std::string_view type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

char small(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

}  // namespace

bool is_same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, small, small);
}

std::string_view reason_of(int status) {
  const auto found = std::ranges::find(kReasons, status, &std::pair<int, std::string_view>::first);
  return found == kReasons.end() ? "Status" : found->second;
}

const std::string* Request::find(std::string_view name) const {
  for (const Header& header : headers) {
    if (is_same_name(header.name, name)) return &header.value;
  }
  return nullptr;
}

std::string error_text(const Refusal& refusal, std::string_view param) {
  return json::to_text({{"error",
                         {{"message", refusal.message},
                          {"type", type_of(refusal.status)},
                          {"param", param.empty() ? Value() : Value(param)},
                          {"code", refusal.code}}}});
}

Response error_response(const Refusal& refusal, std::string_view param) {
  Response response = {.status = refusal.status, .body = error_text(refusal, param)};
  const bool may_come_again = refusal.status == 429 || refusal.status == 503;
  if (may_come_again) response.headers.push_back({"Retry-After", "1"});
  if (refusal.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

}  // namespace subbyte::http
