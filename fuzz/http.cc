// A connection of HTTP: heads and bodies one after the other. The input is what a client sends.

#include <algorithm>

#include "fuzz/fuzz.h"
#include "http/body_reader.h"
#include "http/head.h"

using namespace subbyte;

namespace {

constexpr uint64_t kMaxBody = 4096;

/// Reads the body at the front of `bytes` in parts of `step`; the bytes after it, or nullopt where
/// it is refused or not whole.
std::optional<std::string> body_of(const http::Framing& framing, std::string_view bytes,
                                   std::size_t step, std::string_view& rest) {
  http::BodyReader reader(framing, kMaxBody);
  std::size_t taken = 0;
  for (std::size_t end = 0; !reader.is_done() && end < bytes.size();) {
    end = std::min(end + step, bytes.size());
    std::string_view part = bytes.substr(taken, end - taken);
    if (reader.take(part)) return std::nullopt;
    taken = end - part.size();
  }
  if (!reader.is_done()) return std::nullopt;
  rest = bytes.substr(taken);
  fuzz::require(!framing.is_chunked || reader.size() <= kMaxBody, "a body within its limit");
  return reader.take_body();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const fuzz::Exact input(data, size);
  std::string_view bytes = input.text();
  while (!http::check_beginning(bytes)) {
    const auto end = http::head_size(bytes);
    if (!end) break;
    const std::string_view head = bytes.substr(0, *end);
    http::Request request;
    http::Framing framing;
    if (http::read_head(head, request, framing)) break;
    fuzz::require(request.headers.size() <= http::kMaxFields, "fields within their limit");
    bytes.remove_prefix(*end);
    if (!framing.has_body()) continue;
    std::string_view rest;
    std::string_view rest_by_bytes;
    const auto body = body_of(framing, bytes, bytes.size() + 1, rest);
    const auto by_bytes = body_of(framing, bytes, 1, rest_by_bytes);
    fuzz::require(body == by_bytes && rest == rest_by_bytes, "the same however it comes");
    if (!body) break;
    fuzz::require(framing.is_chunked || body->size() == *framing.length, "the length that is said");
    bytes = rest;
  }
  return 0;
}
