#pragma once
// Ending a generation at given texts.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace subbyte {

/// Cuts a stream of text at that of several stop strings which is complete first. Text that may be
/// the beginning of one is held back until it is clear.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Text that may be shown now. After a stop string was found, stopped() and nothing more.
  std::string push(std::string_view text);
  /// Text that is still held back when the stream ends.
  std::string finish();
  bool stopped() const { return stopped_; }
  /// The stop string that was found; of several that end together the longest. After stopped().
  const std::string& found() const { return stops_[found_]; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
  std::size_t found_ = 0;  // which one stopped it
};

}  // namespace subbyte
