#pragma once
// Who may ask: keys, names of the host, pages of other origins.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "http/message.h"

namespace subbyte::serve {

struct AccessOptions {
  std::vector<std::string> keys;             // none: everybody may ask
  std::vector<std::string> allowed_hosts;    // names beside those of this machine
  std::vector<std::string> allowed_origins;  // "https://example.org", "*"
  /// Requests with the name of another host are refused, which a page of a stranger sends whose
  /// name was made to mean this machine.
  bool checks_host = true;
};

/// Says whether a host is this machine alone: "localhost", "127.0.0.1", "::1".
bool is_loopback(std::string_view host);

/// Refuses hosts and origins that no request could name. Code usage.arguments.
Status check_allowed(const AccessOptions& options);

/// Refuses a head. `is_public`: it needs no key.
std::optional<http::Response> check_access(const AccessOptions& options, const http::Request& head,
                                           bool is_public);
/// Answers what browsers ask before a request of another origin, which check_access() let through;
/// nullopt for other requests.
std::optional<http::Response> answer_preflight(const http::Request& head);
/// Adds the fields that let a page of an allowed origin read the answer.
void add_origin(const AccessOptions& options, const http::Request& request,
                http::Response& response);

}  // namespace subbyte::serve
