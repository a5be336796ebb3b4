#include "http/body_reader.h"

#include <algorithm>
#include <charconv>

namespace subbyte::http {
namespace {

/// Bytes of the line of a size, or of a trailer.
constexpr std::size_t kMaxLineBytes = 1024;

Refusal bad(std::string_view message) {
  return {400, "http.syntax", std::string(message)};
}

bool has_controls(std::string_view line) {
  return std::ranges::any_of(line, [](char character) {
    const auto byte = static_cast<unsigned char>(character);
    return (byte < 0x20 && byte != '\t') || byte == 0x7F;
  });
}

}  // namespace

BodyReader::BodyReader(const Framing& framing, uint64_t max_bytes)
    : is_chunked_(framing.is_chunked),
      max_bytes_(max_bytes),
      left_(framing.length.value_or(0)),
      part_(framing.is_chunked ? Part::kSize
            : left_ > 0        ? Part::kData
                               : Part::kDone) {}

std::optional<Refusal> BodyReader::take(std::string_view& bytes) {
  while (!bytes.empty() && !is_done()) {
    if (part_ == Part::kData) {
      take_data(bytes);
      continue;
    }
    const std::size_t end = bytes.substr(0, kMaxLineBytes + 2).find("\r\n");
    if (end == std::string_view::npos) {
      if (bytes.size() < kMaxLineBytes + 2) return std::nullopt;
      return bad("a line between chunks is too long");
    }
    const std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(end + 2);
    if (auto refusal = take_line(line)) return refusal;
  }
  return std::nullopt;
}

void BodyReader::take_data(std::string_view& bytes) {
  const std::size_t size = std::min<uint64_t>(left_, bytes.size());
  body_.append(bytes.substr(0, size));
  bytes.remove_prefix(size);
  left_ -= size;
  if (left_ == 0) part_ = is_chunked_ ? Part::kDataEnd : Part::kDone;
}

std::optional<Refusal> BodyReader::take_line(std::string_view line) {
  if (has_controls(line)) return bad("a line between chunks has control characters");
  if (part_ == Part::kSize) return take_size(line);
  if (part_ == Part::kDataEnd) {
    part_ = Part::kSize;
    if (!line.empty()) return bad("a chunk is longer than it said");
    return std::nullopt;
  }
  trailer_bytes_ += line.size();
  if (trailer_bytes_ > kMaxHeadBytes) return bad("the trailers are longer than 16 KiB");
  if (line.empty()) part_ = Part::kDone;
  return std::nullopt;
}

std::optional<Refusal> BodyReader::take_size(std::string_view line) {
  const std::size_t digits = std::min(line.find(';'), line.size());
  uint64_t size = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + digits, size, 16);
  if (error != std::errc() || end != line.data() + digits) {
    return bad("the size of a chunk is no number of hexadecimal digits");
  }
  if (size > max_bytes_ - body_.size()) {
    return Refusal{413, "http.body", "the body is longer than --max-body-bytes"};
  }
  left_ = size;
  part_ = size > 0 ? Part::kData : Part::kTrailers;
  return std::nullopt;
}

}  // namespace subbyte::http
