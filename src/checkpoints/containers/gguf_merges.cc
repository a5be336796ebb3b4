#include "checkpoints/containers/gguf_merges.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace subbyte {
namespace {

// More than the largest published vocabulary has, Gemma's of 262,144 pieces.
constexpr uint64_t kMaxPieces = 300'000;
constexpr uint64_t kMaxBytes = 1 << 23;   // of all pieces
constexpr uint64_t kMaxHalves = 1 << 21;  // pieces that begin a piece, and those that end one
constexpr uint64_t kMaxText = 1 << 24;    // bytes of all merges

using Ids = std::vector<uint32_t>;

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

/// Of each piece the shorter pieces that it begins with, or ends with, the shortest first. They are
/// found in the order of the alphabet, where the pieces that one begins with stand before it.
class Halves {
 public:
  enum class Side : uint8_t { kLeft, kRight };

  Halves(std::span<const std::string_view> pieces, Side side) : pieces_(pieces), side_(side) {}

  /// Says whether there are no more than kMaxHalves.
  bool find() {
    Ids order(pieces_.size());
    std::iota(order.begin(), order.end(), uint32_t{0});
    std::ranges::sort(order, [&](uint32_t a, uint32_t b) { return is_before(a, b); });
    places_.resize(pieces_.size());
    Ids open;  // each begins the next
    for (const uint32_t piece : order) {
      while (!open.empty() && !begins(open.back(), piece)) open.pop_back();
      if (ids_.size() + open.size() > kMaxHalves) return false;
      places_[piece] = {ids_.size(), open.size()};
      ids_.insert(ids_.end(), open.begin(), open.end());
      open.push_back(piece);
    }
    return true;
  }

  std::span<const uint32_t> of(uint32_t piece) const {
    return std::span(ids_).subspan(places_[piece].first, places_[piece].second);
  }

 private:
  bool is_before(uint32_t a, uint32_t b) const {
    if (side_ == Side::kLeft) return pieces_[a] < pieces_[b];
    return std::lexicographical_compare(pieces_[a].rbegin(), pieces_[a].rend(), pieces_[b].rbegin(),
                                        pieces_[b].rend());
  }
  bool begins(uint32_t half, uint32_t piece) const {
    return side_ == Side::kLeft ? pieces_[piece].starts_with(pieces_[half])
                                : pieces_[piece].ends_with(pieces_[half]);
  }

  std::span<const std::string_view> pieces_;
  Side side_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  // in ids_
  Ids ids_;
};

/// All cuts of a piece whose halves are pieces, by the ids of their halves.
void cut(std::span<const std::string_view> pieces, uint32_t piece, const Halves& left,
         const Halves& right, std::vector<Cut>& cuts) {
  const std::size_t first = cuts.size();
  const auto ends = right.of(piece);
  std::size_t end = ends.size();
  const uint32_t characters = characters_of(pieces[piece]);
  for (const uint32_t begin : left.of(piece)) {
    const std::size_t rest = pieces[piece].size() - pieces[begin].size();
    while (end > 0 && pieces[ends[end - 1]].size() > rest) --end;
    if (end == 0) break;
    if (pieces[ends[end - 1]].size() != rest) continue;
    const uint32_t before = characters_of(pieces[begin]);
    cuts.push_back({piece, begin, ends[end - 1], before, characters - before});
  }
  std::sort(cuts.begin() + static_cast<std::ptrdiff_t>(first), cuts.end(),
            [](const Cut& a, const Cut& b) {
              return std::pair(a.left, a.right) < std::pair(b.left, b.right);
            });
}

}  // namespace

Result<std::vector<std::pair<std::string_view, std::string_view>>> merges_of_scores(
    std::span<const std::string_view> pieces, std::span<const float> scores) {
  const Error too_much = {"gguf.tokenizer",
                          "its pieces are too many or too long to find their "
                          "merges"};
  uint64_t bytes = 0;
  for (const std::string_view piece : pieces) bytes += piece.size();
  if (pieces.size() > kMaxPieces || bytes > kMaxBytes) return too_much;
  Halves left(pieces, Halves::Side::kLeft);
  Halves right(pieces, Halves::Side::kRight);
  if (!left.find() || !right.find()) return too_much;
  std::vector<Cut> cuts;
  uint64_t text = 0;
  for (uint32_t i = 0; i < pieces.size(); ++i) {
    const std::size_t before = cuts.size();
    cut(pieces, i, left, right, cuts);
    text += (cuts.size() - before) * pieces[i].size();
    if (text > kMaxText) return too_much;
  }
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
