#pragma once
// Text that knows of each byte where it comes from: the template, or what a user put in.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace subbyte::jinja {

enum class Origin : unsigned char { kTemplate, kInput };

class OriginText {
 public:
  /// A run of bytes of one origin ends at `end`.
  struct Run {
    std::size_t end;
    Origin origin;
  };

  OriginText() = default;
  OriginText(std::string_view bytes, Origin origin) { append(bytes, origin); }

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  /// Runs in order, which cover all bytes; neighbours differ.
  const std::vector<Run>& runs() const { return runs_; }
  /// kInput where any byte is.
  Origin origin() const;

  void reserve(std::size_t num_bytes, std::size_t num_runs) {
    bytes_.reserve(num_bytes);
    runs_.reserve(num_runs);
  }
  void append(std::string_view bytes, Origin origin);
  void append(const OriginText& text) { append(text, 0, text.size()); }
  /// Adds the bytes of `text` from `begin` up to `end`.
  void append(const OriginText& text, std::size_t begin, std::size_t end);
  OriginText part(std::size_t begin, std::size_t end) const;

 private:
  void add_run(std::size_t length, Origin origin);

  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace subbyte::jinja
