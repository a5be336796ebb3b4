#pragma once
// Finds a text in a text in a time that grows with both, not with their product, from either end.

#include <string_view>

#include "jinja/meter.h"

namespace subbyte::jinja {

class Search {
 public:
  static constexpr std::size_t kNowhere = std::string_view::npos;

  /// Charges one walk over `text`. Both must outlive this.
  Search(Meter& meter, std::string_view text, std::string_view pattern);

  /// Where the pattern begins first within [from, size). An object is asked from left to right by
  /// next(), or from right to left by last().
  std::size_t next(std::size_t from);
  /// Where it begins last within [0, end); calls go from right to left.
  std::size_t last(std::size_t end);

 private:
  Meter& meter() const { return *borders_.get_allocator().meter(); }
  /// Pays for a walk that looks at each character, while it goes on.
  void charge_walk(std::size_t at) const {
    if (at % Meter::kLookBytes == 0) meter().step();
  }
  /// Makes the table of Knuth, Morris and Pratt: for each length of a beginning of the pattern,
  /// that of the longest shorter beginning with which it ends. last() reads it from its end.
  void find_borders(bool is_back);
  char letter(std::size_t index, bool is_back) const {
    return pattern_[is_back ? pattern_.size() - 1 - index : index];
  }
  /// Says how much of the pattern fits after one more character, where `matched` fitted before.
  std::size_t longer(std::size_t matched, char c, bool is_back) const {
    while (matched > 0 && letter(matched, is_back) != c) matched = borders_[matched - 1];
    return letter(matched, is_back) == c ? matched + 1 : 0;
  }

  std::string_view text_;
  std::string_view pattern_;
  List<std::size_t> borders_;  // none before they are needed
};

}  // namespace subbyte::jinja
