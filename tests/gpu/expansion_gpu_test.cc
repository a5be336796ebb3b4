// Attention over keys and values that are made of latents, beside double precision: prompts of
// several sequences in one call, over scattered pages, whatever nobody may see being NaN.

#include "kernels/cuda/attention/expansion.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cuda/linear.h"
#include "ops_gpu.h"
#include "support/kv_e4m3.h"
#include "support/value_of.h"

namespace subbyte::testing {
namespace {

struct PartSize {
  int64_t tokens;
  int64_t position;
};

struct Problem {
  cuda::ExpandedSizes sizes;
  Element element, cache;
  std::vector<PartSize> parts;
  bool has_sinks = false;

  int64_t latent() const { return sizes.rank + sizes.turning; }
  /// Of what is made.
  Element made() const { return cache == Element::kE4M3 ? element : cache; }
};

/// Latents of all parts in pages, of which those that are not there are NaN.
class Latents {
 public:
  explicit Latents(const Problem& problem) : dim_(problem.latent()), cache_(problem.cache) {
    int32_t pages = 0;
    int32_t first = 0;
    for (const PartSize& part : problem.parts) {
      parts_.expanded.push_back(
          {first, static_cast<int32_t>(part.tokens), static_cast<int32_t>(part.position), pages});
      first += static_cast<int32_t>(part.tokens);
      for (int64_t left = part.position + part.tokens; left > 0; left -= kPagePositions) {
        parts_.pages.push_back(
            {pages++, static_cast<int32_t>(std::min<int64_t>(left, kPagePositions))});
      }
    }
    for (cuda::ExpandedPage& page : parts_.pages) page.page = pages - 1 - page.page;
    bytes_.assign(static_cast<std::size_t>(pages * page_bytes()), std::byte{0xFF});
    numbers_.resize(static_cast<std::size_t>(pages * kPagePositions * dim_));
    for (std::size_t i = 0; i < parts_.pages.size(); ++i) {
      for (int64_t j = 0; j < parts_.pages[i].positions; ++j) put(i, j, problem.made());
    }
  }

  const cuda::ExpandedParts& parts() const { return parts_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  /// Of a position of part `p`, as attention reads it.
  const float* at(std::size_t p, int64_t position) const {
    const int64_t first = parts_.expanded[p].pages_begin * kPagePositions;
    return numbers_.data() + (first + position) * dim_;
  }
  KvLayer layer(std::byte* memory) const { return {memory, page_bytes(), 0, page_bytes(), cache_}; }

 private:
  int64_t page_bytes() const {
    return kPagePositions * (dim_ * element_bytes(cache_) + (cache_ == Element::kE4M3 ? 1 : 0));
  }
  void put(std::size_t page, int64_t row, Element made) {
    const auto position = static_cast<int64_t>(page) * kPagePositions + row;
    std::vector<float> numbers = normals(dim_, 1, 1000 + position);
    std::byte* const run = bytes_.data() + parts_.pages[page].page * page_bytes();
    if (cache_ == Element::kE4M3) {
      const E4M3Run stored = to_e4m3(numbers);
      std::memcpy(run + row * dim_, stored.elements.data(), stored.elements.size());
      run[kPagePositions * dim_ + row] = static_cast<std::byte>(stored.scale);
      numbers = rounded(stored.values, made);
    } else {
      const std::vector<std::byte> encoded = encode(numbers, cache_);
      std::ranges::copy(encoded, run + row * std::ssize(encoded));
      numbers = decode(encoded, cache_);
    }
    std::ranges::copy(numbers, numbers_.begin() + position * dim_);
  }

  int64_t dim_;
  Element cache_;
  cuda::ExpandedParts parts_;
  std::vector<std::byte> bytes_;
  std::vector<float> numbers_;
};

struct Operands {
  std::vector<float> q, keys, values, sinks;

  explicit Operands(const Problem& problem) {
    const cuda::ExpandedSizes& s = problem.sizes;
    int64_t tokens = 0;
    for (const PartSize& part : problem.parts) tokens += part.tokens;
    const double scale = 1 / std::sqrt(static_cast<double>(s.rank));
    q = rounded(normals(tokens * s.heads * s.head_dim(), 1, 1), problem.element);
    keys = rounded(normals(s.heads * s.rank * s.nope, scale, 2), problem.made());
    values = rounded(normals(s.heads * s.value * s.rank, scale, 3), problem.made());
    if (problem.has_sinks) sinks = normals(s.heads, 1, 4);
  }
};

/// [tokens][heads][value]
std::vector<float> run(const Problem& problem, const Latents& latents, const Operands& operands,
                       bool has_wgmma) {
  const cuda::ExpandedSizes& s = problem.sizes;
  const int64_t tokens = std::ssize(operands.q) / (s.heads * s.head_dim());
  const cuda::AttentionTasks tasks = cuda::expanded_tasks(latents.parts(), s);
  const DeviceNumbers q(operands.q, problem.element);
  const DeviceNumbers keys(operands.keys, problem.made());
  const DeviceNumbers values(operands.values, problem.made());
  const DeviceNumbers sinks(operands.sinks, Element::kF32);
  const DeviceNumbers rows(tokens * s.heads * problem.latent(), problem.element);
  const DeviceNumbers results(tokens * s.heads * s.rank, problem.element);
  const DeviceNumbers y(tokens * s.heads * s.value, problem.element);
  const DeviceBytes cache(latents.bytes());
  const DeviceBytes pages(as_bytes(latents.parts().pages));
  const DeviceBytes prompt(as_bytes(tasks.prompt));
  const DeviceBytes memory(static_cast<std::size_t>(s.most_bytes(latents.parts().positions())));
  cuda::MoveHeadsCall move = {.x = q.data(), .y = rows.data(), .rows = tokens};
  move.heads = static_cast<int32_t>(s.heads);
  move.count = move.x_step = static_cast<int32_t>(s.head_dim());
  move.y_step = static_cast<int32_t>(problem.latent());
  move.y_first = static_cast<int32_t>(s.rank - s.nope);
  cuda::run_move_heads(move, nullptr);
  cuda::ExpansionCall call;
  call.attention.qkv = rows.data();
  call.attention.y = results.data();
  call.attention.element = problem.element;
  call.attention.qkv_stride = s.heads * problem.latent();
  call.attention.scale = 1 / std::sqrt(static_cast<float>(s.head_dim()));
  if (problem.has_sinks) call.attention.sinks = sinks.data<float>();
  call.attention.cache = latents.layer(cache.data());
  call.attention.prompt = reinterpret_cast<const cuda::AttentionTask*>(prompt.data());
  call.attention.num_prompt = std::ssize(tasks.prompt);
  call.sizes = s;
  call.num_tokens = tokens;
  call.pages = reinterpret_cast<const cuda::ExpandedPage*>(pages.data());
  call.num_pages = std::ssize(latents.parts().pages);
  call.keys = keys.data();
  call.values = values.data();
  call.keys_element = call.values_element = problem.made();
  call.memory = memory.data();
  call.has_wgmma = has_wgmma;
  cuda::run_expanded_attention(call, nullptr);
  move.x = results.data();
  move.y = y.data();
  move.count = move.y_step = static_cast<int32_t>(s.value);
  move.x_step = static_cast<int32_t>(s.rank);
  move.y_first = 0;
  cuda::run_move_heads(move, nullptr);
  expect_ran();
  EXPECT_TRUE(memory.canaries_are_whole());
  return y.read();
}

/// Keys and values of a head, of all positions of a part.
struct Made {
  std::vector<double> keys, values;

  Made(const Problem& problem, const Latents& latents, const Operands& operands, std::size_t p,
       int64_t head) {
    const cuda::ExpandedSizes& s = problem.sizes;
    const int64_t positions = problem.parts[p].position + problem.parts[p].tokens;
    for (int64_t position = 0; position < positions; ++position) {
      const float* const c = latents.at(p, position);
      for (int64_t i = 0; i < s.nope; ++i) {
        double sum = 0;
        for (int64_t r = 0; r < s.rank; ++r) {
          sum += double(operands.keys[(head * s.rank + r) * s.nope + i]) * c[r];
        }
        keys.push_back(sum);
      }
      keys.insert(keys.end(), c + s.rank, c + problem.latent());
      for (int64_t i = 0; i < s.value; ++i) {
        double sum = 0;
        for (int64_t r = 0; r < s.rank; ++r) {
          sum += double(operands.values[(head * s.value + i) * s.rank + r]) * c[r];
        }
        values.push_back(sum);
      }
    }
  }
};

std::vector<double> attended(const Problem& problem, const Made& made, const float* q, int64_t last,
                             const float* sink) {
  const int64_t dim = problem.sizes.head_dim();
  const int64_t value = problem.sizes.value;
  std::vector<double> y(static_cast<std::size_t>(value));
  double sum = sink == nullptr ? 0 : std::exp(*sink);
  for (int64_t position = 0; position <= last; ++position) {
    double score = 0;
    for (int64_t i = 0; i < dim; ++i) score += q[i] * made.keys[position * dim + i];
    const double weight = std::exp(score / std::sqrt(static_cast<double>(dim)));
    sum += weight;
    for (int64_t i = 0; i < value; ++i) y[i] += weight * made.values[position * value + i];
  }
  for (double& one : y) one /= sum;
  return y;
}

/// Signal over noise: keys, weights, values and results are rounded to 16 bits, evenly within a
/// unit, which adds a third of its square each.
double decibels_of_roundings(Element element) {
  const double unit = unit_of(element);
  return 10 * std::log10(3 / (4 * unit * unit));
}

void expect_right(const Problem& problem) {
  constexpr double kRoom = 6;  // decibels
  const cuda::ExpandedSizes& s = problem.sizes;
  const Latents latents(problem);
  const Operands operands(problem);
  const bool is_hopper = value_of(cuda::query_device(0)).compute_capability == 90;
  for (const bool has_wgmma : {false, true}) {
    if (has_wgmma && !is_hopper) continue;
    const std::vector<float> y = run(problem, latents, operands, has_wgmma);
    double signal = 0;
    double noise = 0;
    for (std::size_t p = 0; p < problem.parts.size(); ++p) {
      for (const int64_t head : {int64_t{0}, s.heads - 1}) {
        const Made made(problem, latents, operands, p, head);
        const int64_t first = latents.parts().expanded[p].first_token;
        for (int64_t token = 0; token < problem.parts[p].tokens; token += 7) {
          const int64_t row = (first + token) * s.heads + head;
          const std::vector<double> expected =
              attended(problem, made, operands.q.data() + row * s.head_dim(),
                       problem.parts[p].position + token,
                       problem.has_sinks ? &operands.sinks[head] : nullptr);
          for (int64_t i = 0; i < s.value; ++i) {
            signal += expected[i] * expected[i];
            noise += std::pow(y[row * s.value + i] - expected[i], 2);
          }
        }
      }
    }
    const Element coarser = problem.element == Element::kBF16 ? problem.element : problem.made();
    EXPECT_GT(10 * std::log10(signal / noise), decibels_of_roundings(coarser) - kRoom)
        << name_of(problem.element) << ", cache " << name_of(problem.cache) << ", heads of "
        << s.head_dim() << (has_wgmma ? " by wgmma" : " by mma");
  }
}

/// With wgmma, but for the last two: one has no chunks of 64 numbers.
constexpr cuda::ExpandedSizes kSizes[] = {
    {.heads = 3, .rank = 512, .turning = 64, .nope = 192, .value = 256},
    {.heads = 3, .rank = 512, .turning = 64, .nope = 128, .value = 128},
    {.heads = 2, .rank = 256, .turning = 64, .nope = 64, .value = 128},
    {.heads = 5, .rank = 64, .turning = 16, .nope = 32, .value = 48},
    {.heads = 2, .rank = 256, .turning = 32, .nope = 192, .value = 208}};

TEST(GpuExpandedAttention, gives_what_keys_and_values_of_every_head_give) {
  for (const cuda::ExpandedSizes& sizes : kSizes) {
    for (const Element element : kHalves) {
      for (const Element cache : {element, Element::kE4M3}) {
        expect_right({sizes, element, cache, {{130, 70}, {17, 0}, {129, 127}}});
      }
    }
  }
}

TEST(GpuExpandedAttention, has_sinks_and_a_cache_of_another_type) {
  expect_right({kSizes[1], Element::kF16, Element::kF16, {{200, 0}}, true});
  expect_right({kSizes[1], Element::kF16, Element::kBF16, {{200, 30}}});
}

TEST(GpuExpandedAttention, takes_as_many_heads_at_a_time_as_fit) {
  cuda::ExpandedSizes sizes = kSizes[0];
  sizes.heads = 7;
  sizes.most_memory = 2 << 20;
  ASSERT_EQ(sizes.heads_at_a_time(3 * kPagePositions), 3);
  expect_right({sizes, Element::kF16, Element::kF16, {{60, 100}, {20, 10}}});
}

}  // namespace
}  // namespace subbyte::testing
