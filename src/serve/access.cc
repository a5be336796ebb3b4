#include "serve/access.h"

#include <algorithm>
#include <span>

#include "base/quote.h"
#include "base/sha256.h"

namespace subbyte::serve {
namespace {

/// The name in "localhost:8000" or "[::1]:8000", without brackets.
std::string_view name_of_host(std::string_view host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

bool contains(const std::vector<std::string>& list, std::string_view value) {
  return std::ranges::find(list, "*") != list.end() ||
         std::ranges::any_of(list, [&](const auto& one) { return http::is_same_name(one, value); });
}

/// Says whether a text has names of fields, commas and blanks alone.
bool is_list_of_names(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  });
}

/// Takes the same time for all keys: digests are compared, and all of each.
bool is_same_key(std::string_view a, std::string_view b) {
  const std::string one = sha256(std::as_bytes(std::span(a)));
  const std::string other = sha256(std::as_bytes(std::span(b)));
  unsigned char difference = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    difference |= static_cast<unsigned char>(one[i] ^ other[i]);
  }
  return difference == 0;
}

bool has_key(const AccessOptions& options, const http::Request& head) {
  if (options.keys.empty()) return true;
  constexpr std::string_view kBearer = "bearer ";
  std::string_view key;
  const std::string* const authorization = head.find("authorization");
  if (authorization != nullptr && authorization->size() > kBearer.size() &&
      http::is_same_name(authorization->substr(0, kBearer.size()), kBearer)) {
    key = std::string_view(*authorization).substr(kBearer.size());
  } else if (const std::string* const other = head.find("x-api-key")) {
    key = *other;
  }
  bool is_known = false;
  for (const std::string& known : options.keys) is_known = is_same_key(key, known) || is_known;
  return is_known;
}

/// Says whether a request comes from a page of this server, or of an allowed origin, or of none.
bool has_allowed_origin(const AccessOptions& options, const http::Request& head) {
  const std::string* const origin = head.find("origin");
  if (origin == nullptr || contains(options.allowed_origins, *origin)) return true;
  const std::string* const host = head.find("host");
  const std::size_t name = origin->find("://");
  return host != nullptr && name != std::string::npos &&
         http::is_same_name(std::string_view(*origin).substr(name + 3), *host);
}

}  // namespace

bool is_loopback(std::string_view host) {
  const bool is_number =
      host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos;
  return is_number || host == "::1" || http::is_same_name(host, "localhost");
}

Status check_allowed(const AccessOptions& options) {
  const auto refuse = [](const char* option, const char* expected, const std::string& found) {
    return Error{"usage.arguments",
                 std::string(option) + ": expected " + expected + ", found " + quote(found)};
  };
  for (const std::string& host : options.allowed_hosts) {
    const bool has_port = std::ranges::count(host, ':') == 1;
    if (!host.empty() && !has_port && host.find_first_of("/[, ") == host.npos) continue;
    return refuse("--allowed-hosts", "a name without scheme and port, or *", host);
  }
  for (const std::string& origin : options.allowed_origins) {
    const std::size_t name = origin.find("://");
    const bool is_origin = name != origin.npos && name > 0 && name + 3 < origin.size() &&
                           origin.find_first_of("/, ", name + 3) == origin.npos;
    if (is_origin || origin == "*" || origin == "null") continue;
    return refuse("--allowed-origins", "an origin such as https://example.org:8000, or *", origin);
  }
  return {};
}

std::optional<http::Response> check_access(const AccessOptions& options, const http::Request& head,
                                           bool is_public) {
  if (const std::string* const host = head.find("host"); options.checks_host && host != nullptr) {
    const std::string_view name = name_of_host(*host);
    if (!is_loopback(name) && !contains(options.allowed_hosts, name)) {
      return http::error_response(
          {403, "server.host", "the Host of the request is none of this server (--allowed-hosts)"});
    }
  }
  if (!has_allowed_origin(options, head)) {
    return http::error_response(
        {403, "server.origin", "pages of this origin may not ask here (--allowed-origins)"});
  }
  if (is_public || has_key(options, head)) return std::nullopt;
  http::Response refusal =
      http::error_response({401, "server.key", "the key of the request is none of this server"});
  refusal.headers.push_back({"WWW-Authenticate", "Bearer"});
  return refusal;
}

std::optional<http::Response> answer_preflight(const http::Request& head) {
  if (head.method != "OPTIONS" || head.find("access-control-request-method") == nullptr) {
    return std::nullopt;
  }
  // Clients send fields of their own (x-stainless-os), which change no answer.
  const std::string* const asked = head.find("access-control-request-headers");
  http::Response response = {.status = 204};
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                      {"Access-Control-Allow-Headers",
                       asked != nullptr && is_list_of_names(*asked)
                           ? *asked
                           : "authorization, content-type, x-api-key, x-request-id, x-session-id"},
                      {"Access-Control-Max-Age", "600"}};
  return response;
}

void add_origin(const AccessOptions& options, const http::Request& request,
                http::Response& response) {
  if (options.allowed_origins.empty()) return;
  response.headers.push_back({"Vary", "Origin"});
  const std::string* const origin = request.find("origin");
  if (origin == nullptr || !contains(options.allowed_origins, *origin)) return;
  response.headers.push_back({"Access-Control-Allow-Origin", *origin});
  response.headers.push_back({"Access-Control-Expose-Headers", "x-request-id"});
}

}  // namespace subbyte::serve
