#include "engine/stop_strings.h"

#include <algorithm>
#include <utility>

namespace subbyte {

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  // The stop string that is complete first, and of several that end together the longest: so the
  // result does not depend on how the text was cut into pieces.
  std::size_t first = std::string::npos;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = stop.empty() ? std::string::npos : held_.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    if (at + stop.size() == end && at >= first) continue;
    found_ = static_cast<std::size_t>(&stop - stops_.data());
    first = at;
    end = at + stop.size();
  }
  if (first != std::string::npos) {
    stopped_ = true;
    std::string shown = held_.substr(0, first);
    held_.clear();
    return shown;
  }
  // Keep the longest end of the text that is the beginning of a stop string.
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size(), held_.size()); n > keep; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    }
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

}  // namespace subbyte
