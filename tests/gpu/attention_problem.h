#pragma once
// Attention of several sequences over scattered pages, whatever nobody may see being NaN, and the
// textbook formula in double precision.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/attention/attention.h"
#include "ops_gpu.h"
#include "support/kv_e4m3.h"

namespace subbyte::testing {

struct PartSize {
  int64_t tokens;
  int64_t position;
};

struct AttentionProblem {
  int64_t heads, kv_heads, dim;
  Element element, cache;
  int64_t window = 0;
  bool has_sinks = false;
  std::vector<PartSize> parts;
  bool batch_invariant = false;
  bool has_wgmma = false;
  float cap = 0;  // scores s become cap * tanh(s / cap); 0: they stay
};

/// Keys and values of the parts, and where they lie in the pages of two layers.
class Cache {
 public:
  Cache(const AttentionProblem& problem, uint64_t seed) : problem_(problem) {
    Random random(seed);
    int64_t pages = 1;
    for (const PartSize& part : problem.parts) {
      pages_begin_.push_back(static_cast<int32_t>(table_.size()));
      const int64_t length = part.position + part.tokens;
      const int64_t count = (length + kPagePositions - 1) / kPagePositions;
      for (int64_t i = 0; i < count; ++i) table_.push_back(static_cast<int32_t>(pages++));
    }
    for (std::size_t i = table_.size(); i > 1; --i)
      std::swap(table_[i - 1], table_[random.below(i)]);
    run_ = kPagePositions * problem.dim;
    page_ = 2 * 2 * problem.kv_heads * run_;
    values_.assign(pages * page_, NAN);
    for (std::size_t p = 0; p < problem.parts.size(); ++p) fill(p, random);
    store();
  }

  /// An element of a key (0) or value (1) of part `p`.
  float at(std::size_t p, int64_t position, int64_t kv_head, int is_value, int64_t d) const {
    return values_[index(p, position, kv_head, is_value) + d];
  }
  /// As the kernels read it.
  const std::vector<std::byte>& bytes() const { return bytes_; }
  const std::vector<int32_t>& table() const { return table_; }
  int32_t pages_begin(std::size_t p) const { return pages_begin_[p]; }
  int32_t page(std::size_t p, int64_t position) const {
    return table_[pages_begin_[p] + position / kPagePositions];
  }
  /// What a kernel has made of it, in a type that is no e4m3.
  void take(const std::vector<std::byte>& bytes) {
    bytes_ = bytes;
    values_ = decode(bytes_, problem_.cache);
  }
  KvLayer layer(std::byte* memory) const {
    const int64_t bytes = run_bytes();
    const int64_t runs = page_ / run_;
    return {memory, runs * bytes, runs / 2 * bytes, bytes, problem_.cache};
  }

 private:
  int64_t run_bytes() const {
    const int64_t scales = problem_.cache == Element::kE4M3 ? kPagePositions : 0;
    return run_ * element_bytes(problem_.cache) + scales;
  }

  /// Encodes the values, which are what was encoded then.
  void store() {
    if (problem_.cache != Element::kE4M3) {
      bytes_ = encode(values_, problem_.cache);
      values_ = decode(bytes_, problem_.cache);
      return;
    }
    bytes_.resize(std::ssize(values_) / run_ * run_bytes());
    for (int64_t at = 0; at < std::ssize(values_); at += problem_.dim) {
      const std::span<float> one(&values_[at], problem_.dim);
      const E4M3Run stored = to_e4m3(one);
      std::byte* const run = &bytes_[at / run_ * run_bytes()];
      std::memcpy(run + at % run_, stored.elements.data(), stored.elements.size());
      run[run_ + at % run_ / problem_.dim] = static_cast<std::byte>(stored.scale);
      std::ranges::copy(stored.values, one.begin());
    }
  }

  void fill(std::size_t p, Random& random) {
    const auto [tokens, position] = problem_.parts[p];
    const int64_t first =
        problem_.window > 0 ? std::max<int64_t>(0, position - problem_.window + 1) : 0;
    for (int64_t at = first; at < position + tokens; ++at) {
      for (int64_t head = 0; head < problem_.kv_heads; ++head) {
        for (const int is_value : {0, 1}) {
          for (int64_t d = 0; d < problem_.dim; ++d) {
            values_[index(p, at, head, is_value) + d] = static_cast<float>(random.normal());
          }
        }
      }
    }
  }

  int64_t index(std::size_t p, int64_t position, int64_t kv_head, int is_value) const {
    return page(p, position) * page_ + page_ / 2 + (2 * kv_head + is_value) * run_ +
           position % kPagePositions * problem_.dim;
  }

  AttentionProblem problem_;
  int64_t run_ = 0;   // elements
  int64_t page_ = 0;  // of two layers
  std::vector<int32_t> table_;
  std::vector<int32_t> pages_begin_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
};

struct RowResult {
  std::vector<double> values, bounds;
};

/// The formula, and how far the kernel may be from it. Products are in the 16 bits of the cache,
/// or, of e4m3, in those of the activations. Relative to what each stands in:
///   scores   queries rounded to that type, if they have another; tensor cores cut nine times for
///            eight inputs, 2^-23 each; three roundings of the scale, one of the scale of a key;
///            one of the difference to the largest score, which is at most twice the largest sum of
///            magnitudes away; exp2f within two units, four u; with a cap, which brings scores
///            nearer to each other, tanhf within two units and three roundings of at most the cap
///   weights  that error twice, in the sum of the weights, too; rounded for the product, in f16 by
///            2^-25 at least, as values of e4m3 are there; a factor with ten roundings at each tile
///            of 32 keys or more, and when partials are merged
///   sums     tensor cores as above over the keys; a float32 sum of the weights
inline RowResult expect_row(const AttentionProblem& problem, const Cache& cache, std::size_t p,
                            int64_t token, int64_t head, const float* q, const float* sinks) {
  constexpr double u = 0x1p-24;
  const int64_t kv_head = head / (problem.heads / problem.kv_heads);
  const int64_t last = problem.parts[p].position + token;
  const int64_t first = problem.window > 0 ? std::max<int64_t>(0, last - problem.window + 1) : 0;
  const double scale = 1 / std::sqrt(static_cast<float>(problem.dim));
  std::vector<double> scores;
  double magnitude = 0;
  for (int64_t position = first; position <= last; ++position) {
    double score = 0;
    double sum = 0;
    for (int64_t d = 0; d < problem.dim; ++d) {
      const double product = double(q[d]) * cache.at(p, position, kv_head, 0, d);
      score += product;
      sum += std::fabs(product);
    }
    score *= scale;
    scores.push_back(problem.cap > 0 ? problem.cap * std::tanh(score / problem.cap) : score);
    magnitude = std::max(magnitude, sum * scale);
  }
  double largest = sinks == nullptr ? -INFINITY : double(sinks[head]);
  for (const double score : scores) largest = std::max(largest, score);
  double denominator = sinks == nullptr ? 0 : std::exp(sinks[head] - largest);
  RowResult result = {std::vector<double>(problem.dim), std::vector<double>(problem.dim)};
  std::vector<double> smallest(problem.dim);  // what weights lose by f16's smallest step
  const Element product = problem.cache == Element::kE4M3 ? problem.element : problem.cache;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(scores[i] - largest);
    denominator += weight;
    for (int64_t d = 0; d < problem.dim; ++d) {
      const double value = cache.at(p, first + static_cast<int64_t>(i), kv_head, 1, d);
      result.values[d] += weight * value;
      result.bounds[d] += weight * std::fabs(value);
      if (product != Element::kF16) continue;
      smallest[d] += 0x1p-25 * std::fabs(value);
      if (problem.cache == Element::kE4M3) smallest[d] += weight * 0x1p-25;
    }
  }
  const auto n = static_cast<double>(scores.size()) + 64;
  const double of_queries = product == problem.element ? 0 : 1.01 * unit_of(product);
  const double dim_cuts = 9.0 / 8 * double(problem.dim) * 0x1p-23;
  const double extra = sinks == nullptr ? 0 : std::fabs(sinks[head]);
  const double score_error = (of_queries + dim_cuts + 4 * u) * magnitude +
                             2 * u * (2 * magnitude + extra) + 4 * u + 7 * u * problem.cap;
  const double relative = std::expm1(2 * score_error) + 1.01 * unit_of(product) +
                          9.0 / 8 * n * 0x1p-23 + (n + 10 * (n / 32 + 32) + 20) * u;
  for (int64_t d = 0; d < problem.dim; ++d) {
    result.values[d] /= denominator;
    result.bounds[d] = rounded_bound(problem.element, result.values[d],
                                     (relative * result.bounds[d] + smallest[d]) / denominator);
  }
  return result;
}

inline std::vector<cuda::AttentionPart> parts_of(const AttentionProblem& problem,
                                                 const Cache& cache) {
  std::vector<cuda::AttentionPart> parts;
  int32_t first = 0;
  for (std::size_t p = 0; p < problem.parts.size(); ++p) {
    const auto tokens = static_cast<int32_t>(problem.parts[p].tokens);
    parts.push_back(
        {first, tokens, static_cast<int32_t>(problem.parts[p].position), cache.pages_begin(p)});
    first += tokens;
  }
  return parts;
}

inline constexpr int64_t kSplitCtas = 264;  // two for each multiprocessor of an H200

}  // namespace subbyte::testing
