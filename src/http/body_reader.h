#pragma once
// The body of a request, as it comes: of a length that its head says, or in chunks.
//
//   5;x=y\r\n     size in hexadecimal digits, and extensions, which say nothing here
//   Hello\r\n
//   0\r\n
//   X: y\r\n      trailers, which count for nothing
//   \r\n

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "http/head.h"
#include "http/message.h"

namespace subbyte::http {

class BodyReader {
 public:
  BodyReader(const Framing& framing, uint64_t max_bytes);

  /// Takes what it can from the front of `bytes`. What is after the end of the body stays there,
  /// and so does the part of a line that more bytes are needed for.
  std::optional<Refusal> take(std::string_view& bytes);
  bool is_done() const { return part_ == Part::kDone; }
  std::size_t size() const { return body_.size(); }
  std::string take_body() { return std::move(body_); }

 private:
  enum class Part : uint8_t { kSize, kData, kDataEnd, kTrailers, kDone };

  void take_data(std::string_view& bytes);
  std::optional<Refusal> take_line(std::string_view line);
  std::optional<Refusal> take_size(std::string_view line);

  bool is_chunked_;
  uint64_t max_bytes_;
  uint64_t left_;  // of what kData reads
  Part part_;
  std::size_t trailer_bytes_ = 0;
  std::string body_;
};

}  // namespace subbyte::http
