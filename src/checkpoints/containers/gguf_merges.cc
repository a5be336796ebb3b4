#include "checkpoints/containers/gguf_merges.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>

#include "base/utf8.h"

namespace subbyte {
namespace {

constexpr uint64_t kMaxWork = uint64_t{1} << 28;  // bytes that are compared

struct Cut {
  uint32_t piece = 0;
  uint32_t left = 0;  // ids
  uint32_t right = 0;
  uint32_t left_characters = 0;
  uint32_t right_characters = 0;
};

uint32_t characters_of(std::string_view text) {
  return static_cast<uint32_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

class Cutter {
 public:
  explicit Cutter(std::span<const std::string_view> pieces) : pieces_(pieces) {
    order_.resize(pieces.size());
    std::iota(order_.begin(), order_.end(), uint32_t{0});
    std::ranges::sort(order_, {}, [&](uint32_t i) { return pieces[i]; });
  }

  /// All cuts of a piece, by the ids of their halves.
  void cut(uint32_t piece, std::vector<Cut>& cuts) const {
    const std::string_view text = pieces_[piece];
    const std::size_t first = cuts.size();
    const uint32_t characters = characters_of(text);
    uint32_t before = 0;
    for (std::size_t at = utf8_sequence_length(text); at < text.size();
         at += utf8_sequence_length(text.substr(at))) {
      ++before;
      const auto left = find(text.substr(0, at));
      if (!left) continue;
      const auto right = find(text.substr(at));
      if (right) cuts.push_back({piece, *left, *right, before, characters - before});
    }
    std::sort(cuts.begin() + static_cast<std::ptrdiff_t>(first), cuts.end(),
              [](const Cut& a, const Cut& b) {
                return std::pair(a.left, a.right) < std::pair(b.left, b.right);
              });
  }

 private:
  std::optional<uint32_t> find(std::string_view text) const {
    const auto piece = [&](uint32_t i) { return pieces_[i]; };
    const auto at = std::ranges::lower_bound(order_, text, {}, piece);
    if (at == order_.end() || piece(*at) != text) return std::nullopt;
    return *at;
  }

  std::span<const std::string_view> pieces_;
  std::vector<uint32_t> order_;  // sorted, not hashed: a file cannot choose pieces that collide
};

}  // namespace

Result<std::vector<std::pair<std::string_view, std::string_view>>> merges_of_scores(
    std::span<const std::string_view> pieces, std::span<const float> scores) {
  uint64_t work = 0;
  for (const std::string_view piece : pieces) {
    work += uint64_t{piece.size()} * piece.size();
    if (work > kMaxWork) {
      return Error{"gguf.tokenizer", "its pieces are too long to find their merges"};
    }
  }
  const Cutter cutter(pieces);
  std::vector<Cut> cuts;
  for (uint32_t i = 0; i < pieces.size(); ++i) cutter.cut(i, cuts);
  std::ranges::stable_sort(cuts, [&](const Cut& a, const Cut& b) {
    if (scores[a.piece] != scores[b.piece]) return scores[a.piece] > scores[b.piece];
    return std::pair(a.left_characters, a.right_characters) >
           std::pair(b.left_characters, b.right_characters);
  });
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  merges.reserve(cuts.size());
  for (const Cut& cut : cuts) merges.emplace_back(pieces[cut.left], pieces[cut.right]);
  return merges;
}

}  // namespace subbyte
