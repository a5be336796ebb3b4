#include "verify/magnitudes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "verify/statistics.h"

namespace subbyte {
namespace {

constexpr double kFar = 1024;  // times the median
constexpr std::size_t kFewest = 3;

}  // namespace

void Magnitudes::add(std::string_view tensor, double largest) {
  kinds_[tensor_kind(tensor)].push_back({largest, std::string(tensor)});
}

void Magnitudes::report(Findings& findings) const {
  for (const auto& [kind, unsorted] : kinds_) {
    if (unsorted.size() < kFewest) continue;
    std::vector<Entry> entries = unsorted;
    std::ranges::sort(entries);
    const Entry& median = entries[(entries.size() - 1) / 2];
    if (median.largest == 0) continue;
    for (const Entry& entry : entries) {
      if (entry.largest <= kFar * median.largest || entry.largest > kLargestFactor) continue;
      findings.add("verify.outlier", entry.tensor,
                   fmt::format("numbers like those of {}, the median of {} of its kind (up to "
                               "{:.3g})",
                               quote_name(median.tensor), entries.size(), median.largest),
                   fmt::format("numbers up to {:.3g}", entry.largest));
    }
  }
}

}  // namespace subbyte
