#include "jinja/origin_text.h"

#include <algorithm>

namespace subbyte::jinja {

Origin OriginText::origin() const {
  const bool has_input =
      std::ranges::any_of(runs_, [](const Run& run) { return run.origin == Origin::kInput; });
  return has_input ? Origin::kInput : Origin::kTemplate;
}

void OriginText::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  add_run(bytes.size(), origin);
  bytes_ += bytes;
}

void OriginText::append(const OriginText& text, std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  auto run = std::ranges::upper_bound(text.runs_, begin, {}, &Run::end);
  const std::string_view bytes = text.bytes_;
  while (begin < end) {
    const std::size_t stop = std::min(end, run->end);
    append(bytes.substr(begin, stop - begin), run->origin);
    begin = stop;
    ++run;
  }
}

OriginText OriginText::part(std::size_t begin, std::size_t end) const {
  OriginText result;
  result.append(*this, begin, end);
  return result;
}

void OriginText::add_run(std::size_t length, Origin origin) {
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end += length;
  } else {
    runs_.push_back({bytes_.size() + length, origin});
  }
}

}  // namespace subbyte::jinja
