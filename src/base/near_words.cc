#include "base/near_words.h"

#include <algorithm>
#include <vector>

namespace subbyte {
namespace {

constexpr std::size_t kMaxWords = 3;
constexpr std::size_t kLongestWord = 64;

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

/// The distance that is still near for a word of that length.
std::size_t largest_distance(std::size_t length) {
  return length <= 2 ? 0 : length <= 4 ? 1 : length <= 9 ? 2 : 3;
}

std::size_t distance_of(std::string_view typed, std::string_view word) {
  const std::string_view a = without_dashes(typed);
  const std::string_view b = without_dashes(word);
  const bool begins =
      a.size() >= 3 && b.size() > a.size() && edit_distance(a, b.substr(0, a.size())) == 0;
  return begins ? 1 : edit_distance(a, b);
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows of the table of Damerau's distance: of i - 2, i - 1 and i letters of a.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string did_you_mean(std::string_view typed, std::span<const std::string> words) {
  if (typed.size() > kLongestWord) return {};
  std::size_t best = largest_distance(without_dashes(typed).size());
  std::vector<std::string> nearest;
  for (const std::string& word : words) {
    const std::size_t distance = distance_of(typed, word);
    if (distance > best) continue;
    if (distance < best) nearest.clear();
    best = distance;
    if (std::ranges::find(nearest, word) == nearest.end()) nearest.push_back(word);
  }
  if (nearest.empty()) return {};
  nearest.resize(std::min(nearest.size(), kMaxWords));
  std::string text = "; did you mean " + nearest[0];
  for (std::size_t i = 1; i < nearest.size(); ++i) {
    text += (i + 1 < nearest.size() ? ", " : " or ") + nearest[i];
  }
  return text + "?";
}

}  // namespace subbyte
