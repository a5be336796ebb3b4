#include "cpu_backend/selection.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/checked.h"
#include "cpu_backend/cached_keys.h"
#include "kernels/cpu/linear.h"

namespace subbyte {
namespace {

constexpr int64_t kTokens = 16;                   // that are scored together
constexpr int64_t kPositions = 1024;              // the same
constexpr int64_t kGathered = int64_t{32} << 20;  // bytes of selected keys at a time
constexpr float kLowest = -std::numeric_limits<float>::infinity();

/// Scores of some tokens for all positions that the last of them sees.
class Scores {
 public:
  Scores(Execution& execution, const SelectionPart& part, const KvLayer& layer,
         const AttentionShape& shape)
      : execution_(execution), part_(part), layer_(layer), shape_(shape) {}

  Status compute(int64_t first, int64_t count) {
    first_ = first;
    count_ = count;
    seen_ = part_.first_position + first + count;
    scores_.resize(static_cast<std::size_t>(count * seen_));
    orders_.resize(execution_.pool().size());
    for (auto& order : orders_) order.resize(static_cast<std::size_t>(seen_));
    for (int64_t begin = 0; begin < seen_; begin += kPositions) {
      SUBBYTE_CHECK(compute_block(begin, std::min(kPositions, seen_ - begin)));
    }
    return {};
  }

  /// The positions of a token, the lower one on ties. Each thread has its own memory.
  void select(int64_t token, int thread, float* out) {
    const float* const scores = scores_.data() + token * seen_;
    const auto sees = static_cast<std::size_t>(part_.first_position + first_ + token + 1);
    const std::span<int32_t> order = std::span(orders_[thread]).first(sees);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    const auto end = order.begin() + shape_.top;
    std::nth_element(order.begin(), end - 1, order.end(), [&](int32_t a, int32_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    std::sort(order.begin(), end);
    std::copy(order.begin(), end, out);
  }

 private:
  Status compute_block(int64_t begin, int64_t positions) {
    const int64_t dim = shape_.head_dim;
    const int64_t heads = shape_.heads;
    keys_.resize(static_cast<std::size_t>(positions * dim));
    products_.resize(static_cast<std::size_t>(count_ * heads * positions));
    execution_.pool().parallel_for(positions, 16, [&](int64_t from, int64_t to, int) {
      for (int64_t i = from; i < to; ++i) {
        read_key(layer_, place_of(layer_, part_.pages, begin + i, dim), keys_.data() + i * dim,
                 dim);
      }
    });
    MatrixView keys;
    keys.format = {Format::kF32};
    keys.rows = positions;
    keys.cols = dim;
    keys.codes = std::as_bytes(std::span(keys_));
    const std::span<const float> queries(part_.q + first_ * heads * dim,
                                         static_cast<std::size_t>(count_ * heads * dim));
    SUBBYTE_CHECK(exact_linear(execution_, products_, queries, count_ * heads, keys));
    execution_.pool().parallel_for(count_, 1, [&](int64_t from, int64_t to, int) {
      for (int64_t token = from; token < to; ++token) add_heads(token, begin, positions);
    });
    return {};
  }

  void add_heads(int64_t token, int64_t begin, int64_t positions) {
    float* const scores = scores_.data() + token * seen_ + begin;
    std::fill_n(scores, positions, 0.0f);
    for (int64_t head = 0; head < shape_.heads; ++head) {
      const int64_t row = token * shape_.heads + head;
      const float weight = part_.weights[first_ * shape_.heads + row];
      const float* const products = products_.data() + row * positions;
      for (int64_t i = 0; i < positions; ++i) scores[i] += weight * std::max(products[i], 0.0f);
    }
    for (int64_t i = 0; i < positions; ++i) {
      if (std::isnan(scores[i])) scores[i] = kLowest;
    }
  }

  Execution& execution_;
  const SelectionPart& part_;
  const KvLayer& layer_;
  const AttentionShape& shape_;
  int64_t first_ = 0;  // of the tokens of the part
  int64_t count_ = 0;
  int64_t seen_ = 0;
  std::vector<float> scores_;                 // [count][seen]
  std::vector<float> keys_;                   // [positions][head_dim] of a block
  std::vector<float> products_;               // [count][heads][positions]
  std::vector<std::vector<int32_t>> orders_;  // of each thread, positions
};

/// Copies the selected keys of a token into pages of their own.
void gather(const KvLayer& layer, std::span<const int32_t> pages, const float* selection,
            const AttentionShape& shape, const KvLayer& to, std::span<const int32_t> to_pages) {
  const int64_t dim = shape.head_dim;
  const auto key_bytes = static_cast<std::size_t>(dim * element_bytes(layer.element));
  for (int64_t i = 0; i < shape.top; ++i) {
    const KeyPlace from = place_of(layer, pages, static_cast<int64_t>(selection[i]), dim);
    const KeyPlace place = place_of(to, to_pages, i, dim);
    std::memcpy(const_cast<std::byte*>(place.key), from.key, key_bytes);
    if (layer.element == Element::kE4M3) *const_cast<std::byte*>(place.scale) = *from.scale;
  }
}

}  // namespace

Status select_positions(Execution& execution, const SelectionPart& part, const KvLayer& layer,
                        const AttentionShape& shape) {
  Scores scores(execution, part, layer, shape);
  const int64_t first = std::max<int64_t>(0, shape.top - part.first_position);
  for (int64_t token = first; token < part.tokens; token += kTokens) {
    const int64_t count = std::min(kTokens, part.tokens - token);
    SUBBYTE_CHECK(scores.compute(token, count));
    execution.pool().parallel_for(count, 1, [&](int64_t from, int64_t to, int thread) {
      for (int64_t i = from; i < to; ++i) {
        scores.select(i, thread, part.out + (token + i) * shape.top);
      }
    });
  }
  return {};
}

void attention_of_selected(Execution& execution, const AttentionPart& part, int64_t q_stride,
                           const float* selection, const KvLayer& layer,
                           const AttentionShape& shape, std::span<const float> sinks) {
  KvLayer gathered = {nullptr, layer.run_bytes, 0, layer.run_bytes, layer.element};
  const auto num_pages = static_cast<int64_t>(ceil_div(shape.top, kPagePositions));
  const int64_t token_bytes = num_pages * layer.run_bytes;
  const int64_t most = std::min(part.tokens, std::max<int64_t>(1, kGathered / token_bytes));
  const auto memory = allocate_bytes(static_cast<std::size_t>(most * token_bytes));
  gathered.pages = memory.get();
  std::vector<int32_t> pages(static_cast<std::size_t>(most * num_pages));
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
  for (int64_t first = 0; first < part.tokens; first += most) {
    const int64_t count = std::min(most, part.tokens - first);
    std::vector<AttentionPart> parts;
    for (int64_t i = 0; i < count; ++i) {
      parts.push_back({part.q + (first + i) * q_stride,
                       part.out + (first + i) * shape.result_size(), 1, shape.top - 1,
                       std::span(pages).subspan(i * num_pages, num_pages)});
    }
    execution.pool().parallel_for(count, 1, [&](int64_t from, int64_t to, int) {
      for (int64_t i = from; i < to; ++i) {
        gather(layer, part.pages, selection + (first + i) * shape.top, shape, gathered,
               parts[i].pages);
      }
    });
    attention(execution, parts, q_stride, gathered, shape, sinks);
  }
}

}  // namespace subbyte
