#include "jinja/search.h"

namespace subbyte::jinja {

Search::Search(Meter& meter, std::string_view text, std::string_view pattern)
    : text_(text), pattern_(pattern), borders_(meter) {
  meter.scan(text.size());
}

void Search::find_borders(bool is_back) {
  if (!borders_.empty()) return;
  meter().look_at(pattern_.size());
  borders_.reserve(pattern_.size());
  borders_.push_back(0);
  for (std::size_t i = 1; i < pattern_.size(); ++i) {
    borders_.push_back(longer(borders_.back(), letter(i, is_back), is_back));
  }
}

std::size_t Search::next(std::size_t from) {
  meter().step();  // a place may lie next to the one before
  if (text_.size() - from < pattern_.size()) return kNowhere;
  if (pattern_.empty()) return from;
  // Most places are known by their first character to be others, at the speed of memory. Where many
  // are not, each character is looked at once.
  constexpr std::size_t kFree = 16;
  constexpr std::size_t kBytesPerTry = 64;
  std::size_t at = from;
  for (std::size_t tries = 0; tries < kFree + (at - from) / kBytesPerTry; ++tries) {
    at = text_.find(pattern_[0], at);
    if (at == kNowhere || text_.size() - at < pattern_.size()) return kNowhere;
    constexpr std::size_t kLook = 64;
    const std::size_t look = pattern_.size() < kLook ? pattern_.size() : kLook;
    if (text_.substr(at, look) == pattern_.substr(0, look)) {
      if (look == pattern_.size()) return at;
      break;
    }
    ++at;
  }
  find_borders(false);
  std::size_t matched = 0;
  for (; at < text_.size(); ++at) {
    charge_walk(at);
    matched = longer(matched, text_[at], false);
    if (matched == pattern_.size()) return at + 1 - matched;
  }
  return kNowhere;
}

std::size_t Search::last(std::size_t end) {
  meter().step();
  if (end < pattern_.size()) return kNowhere;
  if (pattern_.empty()) return end;
  find_borders(true);
  std::size_t matched = 0;
  for (std::size_t at = end; at > 0; --at) {
    charge_walk(at);
    matched = longer(matched, text_[at - 1], true);
    if (matched == pattern_.size()) return at - 1;
  }
  return kNowhere;
}

}  // namespace subbyte::jinja
