// Positions that tokens attend to, beside their definition: of small integers, which the tensor
// cores add up exactly, so that there are ties.

#include <gtest/gtest.h>

#include "kernels/cuda/attention/select.h"
#include "ops_gpu.h"
#include "support/kv_e4m3.h"
#include "support/selection_problem.h"

namespace subbyte::testing {
namespace {

/// Keys in pages that lie in another order, all else being NaN.
struct IndexCache {
  std::vector<std::byte> bytes;
  std::vector<int32_t> pages;
  int64_t run_bytes = 0;

  IndexCache(const SelectionProblem& problem, Element type) {
    const int64_t dim = problem.shape.head_dim;
    const int64_t used = problem.first_position + problem.tokens;
    const int64_t count = (used + kPagePositions - 1) / kPagePositions;
    for (int64_t i = 0; i < count; ++i) pages.push_back(static_cast<int32_t>(count - 1 - i));
    const int64_t elements = kPagePositions * dim * element_bytes(type);
    run_bytes = elements + (type == Element::kE4M3 ? kPagePositions : 0);
    bytes.assign(count * run_bytes, std::byte{0xFF});
    for (int64_t p = 0; p < used; ++p) {
      const std::vector<float> key(problem.keys.begin() + p * dim,
                                   problem.keys.begin() + (p + 1) * dim);
      std::byte* const run = &bytes[pages[p / kPagePositions] * run_bytes];
      const int64_t at = p % kPagePositions;
      if (type == Element::kE4M3) {
        const E4M3Run stored = to_e4m3(key);
        std::memcpy(run + at * dim, stored.elements.data(), stored.elements.size());
        run[elements + at] = static_cast<std::byte>(stored.scale);
      } else {
        const std::vector<std::byte> stored = encode(key, type);
        std::memcpy(run + at * dim * element_bytes(type), stored.data(), stored.size());
      }
    }
  }
};

void expect_selected(const SelectionProblem& problem, Element element, Element type,
                     int64_t rows_at_a_time) {
  const AttentionShape& shape = problem.shape;
  const IndexCache cache(problem, type);
  std::vector<cuda::RowPlace> places;
  for (int64_t t = 0; t < problem.tokens; ++t) {
    const auto position = static_cast<int32_t>(problem.first_position + t);
    places.push_back({position, cache.pages[position / kPagePositions], 0});
  }
  const DeviceNumbers q(problem.q, element);
  const DeviceNumbers weights(problem.weights, Element::kF32);
  const DeviceNumbers out(problem.tokens * shape.top, Element::kF32);
  const DeviceBytes keys(cache.bytes);
  const DeviceBytes table(as_bytes(cache.pages));
  const DeviceBytes place_bytes(as_bytes(places));
  const int64_t positions = std::ssize(cache.pages) * kPagePositions;
  const DeviceNumbers scores(rows_at_a_time * positions, Element::kF32);
  cuda::SelectCall call;
  call.q = q.data();
  call.element = element;
  call.weights = weights.data<float>();
  call.out = out.data<float>();
  call.num_rows = problem.tokens;
  call.heads = static_cast<int32_t>(shape.heads);
  call.head_dim = static_cast<int32_t>(shape.head_dim);
  call.top = static_cast<int32_t>(shape.top);
  call.places = reinterpret_cast<const cuda::RowPlace*>(place_bytes.data());
  call.pages = reinterpret_cast<const int32_t*>(table.data());
  call.cache = {keys.data(), cache.run_bytes, 0, cache.run_bytes, type};
  call.scores = scores.data<float>();
  call.positions = positions;
  call.rows_at_a_time = rows_at_a_time;
  cuda::run_select(call, nullptr);
  expect_ran();
  scores.read();
  const std::vector<float> found = out.read();
  for (int64_t t = 0; t < problem.tokens; ++t) {
    const std::vector<float> expected = problem.expected(t);
    const auto begin = found.begin() + t * shape.top;
    EXPECT_EQ(std::vector<float>(begin, begin + std::ssize(expected)), expected) << t;
  }
}

TEST(GpuSelect, has_the_largest_scores_and_the_lower_positions_on_ties) {
  const auto shape = [](int64_t heads, int64_t dim, int64_t top) {
    return AttentionShape{.heads = heads, .kv_heads = 1, .head_dim = dim, .top = top};
  };
  for (const Element element : kHalves) {
    for (const Element type : kCaches) {
      SCOPED_TRACE(name_of(element) + " " + name_of(type));
      expect_selected({shape(3, 16, 5), 40, 0, 1}, element, type, 40);
      expect_selected({shape(64, 128, 300), 9, 1500, 2}, element, type, 4);
      expect_selected({shape(20, 64, 1), 1, 128, 3}, element, type, 1);
    }
  }
}

}  // namespace
}  // namespace subbyte::testing
