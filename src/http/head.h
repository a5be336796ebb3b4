#pragma once
// The head of a request, read strictly: what two programs could understand in different ways is
// refused, since one of them may be a proxy in front of this one.
//
//   POST /v1/completions?a=b HTTP/1.1\r\n
//   Host: localhost:8000\r\n
//   Content-Length: 17\r\n
//   \r\n

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "http/message.h"

namespace subbyte::http {

inline constexpr std::size_t kMaxHeadBytes = 16 << 10;
inline constexpr std::size_t kMaxFields = 100;
inline constexpr std::size_t kMaxTargetBytes = 8 << 10;

/// How a body comes, and what is after it.
struct Framing {
  std::optional<uint64_t> length;  // of Content-Length
  bool is_chunked = false;
  bool is_version_1_0 = false;
  bool keeps_alive = true;
  bool expects_continue = false;

  bool has_body() const { return is_chunked || length.value_or(0) > 0; }
};

/// Bytes up to the end of the head, the empty line included; nullopt where it is not there yet.
std::optional<std::size_t> head_size(std::string_view bytes);

/// Refuses the beginning of a head that no rest makes good: other protocols, bytes that no head
/// has, more than one may have.
std::optional<Refusal> check_beginning(std::string_view bytes);

/// Reads a whole head into `request` and `framing`.
std::optional<Refusal> read_head(std::string_view head, Request& request, Framing& framing);

}  // namespace subbyte::http
