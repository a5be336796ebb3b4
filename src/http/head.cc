#include "http/head.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace subbyte::http {
namespace {

constexpr std::string_view kEnd = "\r\n\r\n";
constexpr std::size_t kMaxLengthDigits = 18;

Refusal bad(std::string_view message) {
  return {400, "http.syntax", std::string(message)};
}

/// A character of names of methods and fields (RFC 9110, 5.6.2).
bool is_token_character(char character) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  const bool is_letter =
      (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z');
  return is_letter || (character >= '0' && character <= '9') ||
         kOthers.find(character) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, is_token_character);
}

bool is_value(std::string_view text) {
  return std::ranges::all_of(text, [](char character) {
    const auto byte = static_cast<unsigned char>(character);
    return (byte >= 0x20 && byte != 0x7F) || byte == '\t';
  });
}

bool is_target(std::string_view text) {
  return std::ranges::all_of(text,
                             [](char character) { return character > 0x20 && character < 0x7F; });
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

/// Takes the text up to the end of the line away.
std::string_view take_line(std::string_view& rest) {
  const std::size_t end = std::min(rest.find("\r\n"), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 2, rest.size()));
  return line;
}

/// Takes "http://host" away from the front of a URL, as clients of a proxy send it. Returns the
/// host, and nothing where there is none.
std::string_view take_authority(std::string_view& target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!is_same_name(target.substr(0, scheme.size()), scheme)) continue;
    const std::string_view rest = target.substr(scheme.size());
    const std::string_view host = rest.substr(0, rest.find_first_of("/?"));
    if (host.empty() || host.find('@') != std::string_view::npos) return {};
    target = rest.substr(host.size());
    return host;
  }
  return {};
}

/// "POST /path?query HTTP/1.1". `host`: that of the URL, where it has one.
std::optional<Refusal> read_request_line(std::string_view line, Request& request, Framing& framing,
                                         std::string_view& host) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return bad("expected a method, a path and a version in the first line");
  }
  const std::string_view method = line.substr(0, first);
  std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(method)) return bad("the method is no name");
  if (target.size() > kMaxTargetBytes) return Refusal{414, "http.target", "the URL is too long"};
  host = take_authority(target);
  const bool is_rest = !host.empty() && (target.empty() || target[0] == '?');  // of "http://host"
  const bool is_path = is_rest || target.starts_with('/') || target == "*";
  if (!is_path || !is_target(target) || !is_target(host)) {
    return bad("the URL is no path of printable characters without blanks");
  }
  if (version == "HTTP/2.0") return bad("HTTP/2 is not spoken here");
  framing.is_version_1_0 = version == "HTTP/1.0";
  if (version != "HTTP/1.1" && !framing.is_version_1_0) {
    const bool is_other = version.starts_with("HTTP/");
    return is_other ? Refusal{505, "http.version", "the version of HTTP is neither 1.1 nor 1.0"}
                    : bad("the first line does not end with a version of HTTP");
  }
  const std::size_t query = std::min(target.find('?'), target.size());
  request.method = method;
  request.path = query == 0 ? std::string_view("/") : target.substr(0, query);
  request.query = query < target.size() ? target.substr(query + 1) : std::string_view();
  return std::nullopt;
}

/// "Name: value".
std::optional<Refusal> read_field(std::string_view line, Request& request) {
  if (line.starts_with(' ') || line.starts_with('\t')) return bad("a field goes over two lines");
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return bad("a field has no colon");
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (!is_token(name)) return bad("the name of a field has other characters than a name");
  if (!is_value(value)) return bad("the value of a field has control characters");
  request.headers.push_back({std::string(name), std::string(value)});
  return std::nullopt;
}

std::optional<Refusal> read_length(std::string_view value, Framing& framing) {
  if (framing.length) return Refusal{400, "http.length", "there are two Content-Lengths"};
  uint64_t length = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), length);
  const bool is_number = error == std::errc() && end == value.data() + value.size();
  if (!is_number || value.size() > kMaxLengthDigits) {
    return Refusal{400, "http.length", "Content-Length is no number of bytes"};
  }
  framing.length = length;
  return std::nullopt;
}

std::optional<Refusal> read_coding(std::string_view value, Framing& framing) {
  if (framing.is_chunked || !is_same_name(value, "chunked") || framing.is_version_1_0) {
    return Refusal{400, "http.coding", "the one Transfer-Encoding there is, is chunked, once"};
  }
  framing.is_chunked = true;
  return std::nullopt;
}

/// "close, x": the options of a Connection.
void read_connection(std::string_view value, Framing& framing) {
  while (!value.empty()) {
    const std::size_t comma = std::min(value.find(','), value.size());
    const std::string_view option = trimmed(value.substr(0, comma));
    if (is_same_name(option, "close")) framing.keeps_alive = false;
    if (is_same_name(option, "keep-alive") && framing.is_version_1_0) framing.keeps_alive = true;
    value.remove_prefix(std::min(comma + 1, value.size()));
  }
}

/// What fields say of the body and of the connection.
std::optional<Refusal> read_framing(const Request& request, Framing& framing) {
  int hosts = 0;
  framing.keeps_alive = !framing.is_version_1_0;
  for (const auto& [name, value] : request.headers) {
    std::optional<Refusal> refusal;
    if (is_same_name(name, "host")) ++hosts;
    if (is_same_name(name, "content-length")) refusal = read_length(value, framing);
    if (is_same_name(name, "transfer-encoding")) refusal = read_coding(value, framing);
    if (is_same_name(name, "connection")) read_connection(value, framing);
    if (is_same_name(name, "expect")) {
      if (!is_same_name(value, "100-continue")) {
        refusal = Refusal{417, "http.expect", "the one expectation that is met is 100-continue"};
      }
      framing.expects_continue = !framing.is_version_1_0;
    }
    if (refusal) return refusal;
  }
  if (hosts > 1) return Refusal{400, "http.host", "there are two Hosts"};
  if (hosts == 0 && !framing.is_version_1_0) {
    return Refusal{400, "http.host", "there is no Host"};
  }
  if (framing.length && framing.is_chunked) {
    return Refusal{400, "http.length", "there are both a Content-Length and a Transfer-Encoding"};
  }
  const bool asks_alone = request.method == "GET" || request.method == "HEAD";
  if (asks_alone && framing.has_body()) {  // which nobody reads, and which would be held meanwhile
    return Refusal{400, "http.body", "a request with this method has no body"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> head_size(std::string_view bytes) {
  const std::size_t end = bytes.find(kEnd);
  if (end == std::string_view::npos) return std::nullopt;
  return end + kEnd.size();
}

std::optional<Refusal> check_beginning(std::string_view bytes) {
  constexpr char kTlsHandshake = 0x16;
  if (bytes.starts_with(kTlsHandshake)) return bad("TLS is not spoken on this port");
  const std::size_t end = head_size(bytes).value_or(bytes.size());
  const std::string_view head = bytes.substr(0, end);
  for (std::size_t i = 0; i < std::min(head.size(), kMaxHeadBytes); ++i) {
    if (head[i] == '\0') return bad("there is a NUL in the head");
    const bool is_bare_lf = head[i] == '\n' && (i == 0 || head[i - 1] != '\r');
    const bool is_bare_cr = head[i] == '\r' && i + 1 < head.size() && head[i + 1] != '\n';
    if (is_bare_lf || is_bare_cr) return bad("a line does not end with CR and LF");
  }
  const std::size_t line = std::min(head.find("\r\n"), head.size());
  // A method and a version are beside the URL.
  if (line > kMaxTargetBytes + 64) return Refusal{414, "http.target", "the URL is too long"};
  if (head.size() <= kMaxHeadBytes) return std::nullopt;
  return Refusal{431, "http.head", "line and fields together are longer than 16 KiB"};
}

std::optional<Refusal> read_head(std::string_view head, Request& request, Framing& framing) {
  if (auto refusal = check_beginning(head)) return refusal;
  std::string_view rest = head;
  std::string_view host;
  if (auto refusal = read_request_line(take_line(rest), request, framing, host)) return refusal;
  while (true) {
    const std::string_view line = take_line(rest);
    if (line.empty()) break;
    if (request.headers.size() == kMaxFields) {
      return Refusal{431, "http.head", "there are more than 100 fields"};
    }
    if (auto refusal = read_field(line, request)) return refusal;
  }
  if (auto refusal = read_framing(request, framing)) return refusal;
  if (host.empty()) return std::nullopt;
  // That of the URL counts (RFC 9112, 3.2.2).
  std::erase_if(request.headers,
                [](const Header& field) { return is_same_name(field.name, "host"); });
  request.headers.push_back({"Host", std::string(host)});
  return std::nullopt;
}

}  // namespace subbyte::http
