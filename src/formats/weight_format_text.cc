#include "formats/weight_format_text.h"

#include <algorithm>
#include <charconv>

#include "formats/weight_format.h"

namespace subbyte {
namespace {

/// Words of a text, one after the other.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}
  std::string_view next() {
    const std::size_t end = std::min(rest_.find(' '), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return word;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

std::optional<int64_t> group_of(Words& words) {
  const std::string_view word = words.next();
  if (word == "per") return words.next() == "row" ? std::optional<int64_t>(0) : std::nullopt;
  return word.starts_with('g') ? find_matrix_size(word.substr(1)) : std::nullopt;
}

std::optional<Zero> zero_of(std::string_view kind, std::string_view type) {
  if (kind == "zero" && type == "u8") return Zero::kU8;
  if (kind == "zero" && type == "u16") return Zero::kU16;
  if (kind == "offset" && type == "f16") return Zero::kF16;
  if (kind == "offset" && type == "bf16") return Zero::kBF16;
  if (kind == "offset" && type == "f32") return Zero::kF32;
  if (kind == "offset" && type == "u4") return Zero::kOffsetU4;
  if (kind == "offset" && type == "u6") return Zero::kOffsetU6;
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> find_matrix_size(std::string_view text) {
  int64_t size = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), size);
  const bool whole =
      failed == std::errc() && end == text.data() + text.size() && !text.starts_with('0');
  return whole && size >= 1 && size <= int64_t{1} << 24 ? std::optional(size) : std::nullopt;
}

std::optional<WeightFormat> find_weight_format(std::string_view text) {
  Words words(text);
  const std::optional<Format> element = find_format(words.next());
  if (!element || text.ends_with(' ')) return std::nullopt;
  WeightFormat format;
  format.element = *element;
  if (words.done()) return format;
  const std::optional<int64_t> group = group_of(words);
  const bool has_scale = words.next() == "scale";
  const std::optional<Format> scale = find_format(words.next());
  if (!group || !has_scale || !scale || !is_scale(*scale) || bits(*element) > 8) {
    return std::nullopt;
  }
  format.group_size = *group;
  format.scale = *scale;
  std::string_view word = words.next();
  if (const std::optional<Zero> zero =
          word.empty() || word == "x" ? Zero::kNone : zero_of(word, words.next())) {
    format.zero = *zero;
    if (*zero != Zero::kNone) word = words.next();
    const bool says_factors = word == "x" && words.next() == "f16" && words.next() == "g256";
    const bool is_whole = words.done() && (says_factors || word.empty());
    if (is_whole && says_factors == has_two_levels(format)) return format;
  }
  return std::nullopt;
}

}  // namespace subbyte
