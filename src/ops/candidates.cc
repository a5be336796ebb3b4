#include "ops/candidates.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>

namespace subbyte {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kBlock = 128;  // logits of which only the largest is looked at first

// What every x86-64 machine has. Wider ones the compiler takes apart to single floats.
using Floats [[gnu::vector_size(16)]] = float;
using Masks [[gnu::vector_size(16)]] = int32_t;
constexpr std::size_t kLanes = sizeof(Floats) / sizeof(float);
constexpr std::size_t kChains = 4;  // none waits for the one before it

/// The largest of kBlock logits; infinity if one of them is NaN.
float largest_of(const float* logits) {
  const Floats limit = Floats{} + kInfinity;
  Floats top[kChains] = {-limit, -limit, -limit, -limit};
  Masks ordinary = ~Masks{};
  for (std::size_t i = 0; i < kBlock; i += kChains * kLanes) {
#pragma GCC unroll 4
    for (std::size_t c = 0; c < kChains; ++c) {
      Floats v;
      std::memcpy(&v, logits + i + c * kLanes, sizeof(v));
      ordinary &= v < limit;
      top[c] = v > top[c] ? v : top[c];
    }
  }
  top[0] = top[1] > top[0] ? top[1] : top[0];
  top[2] = top[3] > top[2] ? top[3] : top[2];
  top[0] = top[2] > top[0] ? top[2] : top[0];
  float largest = -kInfinity;
  for (std::size_t i = 0; i < kLanes; ++i) {
    if (ordinary[i] == 0) return kInfinity;
    largest = std::max(largest, top[0][i]);
  }
  return largest;
}

}  // namespace

bool is_better(const TokenCandidate& a, const TokenCandidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

void find_largest(std::span<const float> logits, std::vector<float>& largest) {
  largest.clear();
  std::size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) largest.push_back(largest_of(&logits[i]));
  if (i == logits.size()) return;
  std::array<float, kBlock> last;
  last.fill(-kInfinity);
  std::ranges::copy(logits.subspan(i), last.begin());
  largest.push_back(largest_of(last.data()));
}

/// As many blocks as tokens are wanted have a logit of `least` or more, so at least as many tokens.
void collect_candidates(std::span<const float> logits, std::span<const float> largest,
                        std::size_t wanted, std::vector<TokenCandidate>& candidates) {
  float least = -kInfinity;
  if (wanted < largest.size()) {
    std::vector<float> sorted(largest.begin(), largest.end());
    const auto nth = sorted.begin() + static_cast<std::ptrdiff_t>(wanted) - 1;
    std::ranges::nth_element(sorted, nth, std::greater());
    least = *nth;
  }
  candidates.clear();
  for (std::size_t block = 0; block < largest.size(); ++block) {
    if (largest[block] < least) continue;
    const std::size_t end = std::min(logits.size(), (block + 1) * kBlock);
    for (std::size_t i = block * kBlock; i < end; ++i) {
      if (logits[i] >= least) candidates.push_back({static_cast<int32_t>(i), logits[i], 0});
    }
  }
}

void change_candidates(std::span<const float> logits, const TokenChoice& choice,
                       std::span<const LogitChange> changes, std::span<const int32_t> changed,
                       std::vector<TokenCandidate>& candidates) {
  if (changed.empty()) return;
  const TokenPenalties penalties = {choice.repetition_penalty, choice.frequency_penalty,
                                    choice.presence_penalty};
  std::erase_if(candidates, [&](const TokenCandidate& candidate) {
    return !changes[candidate.token].is_none();
  });
  for (const int32_t token : changed) {
    candidates.push_back({token, changed_logit(logits[token], changes[token], penalties), 0});
  }
}

void keep_best_candidates(std::size_t wanted, std::vector<TokenCandidate>& candidates) {
  if (wanted < candidates.size()) {
    const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(wanted);
    std::ranges::nth_element(candidates, end, is_better);
    candidates.resize(wanted);
  }
  std::iter_swap(candidates.begin(), std::ranges::min_element(candidates, is_better));
}

}  // namespace subbyte
