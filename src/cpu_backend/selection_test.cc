#include "cpu_backend/selection.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/attention_problem.h"
#include "support/selection_problem.h"

namespace subbyte {
namespace {

using testing::PagedCache;
using testing::Problem;
using testing::SelectionProblem;

AttentionShape index_shape(int64_t heads, int64_t dim, int64_t top) {
  return {.heads = heads, .kv_heads = 1, .head_dim = dim, .top = top};
}

class Selection : public testing::IsaTest {
 protected:
  static void expect_selected(const SelectionProblem& problem, Element type) {
    Problem stored;
    stored.shape = problem.shape;
    stored.capacity = problem.first_position + problem.tokens;
    stored.keys = stored.values = problem.keys;
    PagedCache cache(stored, type);
    const int64_t top = problem.shape.top;
    std::vector<float> out(static_cast<std::size_t>(problem.tokens * top), NAN);
    const SelectionPart part = {problem.q.data(), problem.weights.data(), out.data(),
                                problem.tokens,   problem.first_position, cache.pages()};
    const Status status = select_positions(execution(2), part, cache.layer(), problem.shape);
    ASSERT_TRUE(status.ok()) << status.error().message;
    for (int64_t token = 0; token < problem.tokens; ++token) {
      const auto begin = out.begin() + token * top;
      if (problem.first_position + token < top) {
        EXPECT_TRUE(std::isnan(*begin)) << token;
        continue;
      }
      EXPECT_EQ(std::vector<float>(begin, begin + top), problem.expected(token)) << token;
    }
  }
};

/// Of a cache that has these positions alone.
void add_expected(Execution& execution, const Problem& problem, int64_t token,
                  const std::vector<float>& positions, Element type, std::vector<float>& to) {
  const AttentionShape& shape = problem.shape;
  Problem one = problem;
  one.capacity = shape.top;
  one.keys.clear();
  for (const float position : positions) {
    const float* const key = &problem.keys[static_cast<int64_t>(position) * shape.head_dim];
    one.keys.insert(one.keys.end(), key, key + shape.head_dim);
  }
  one.values = one.keys;
  PagedCache cache(one, type);
  std::vector<float> out(static_cast<std::size_t>(shape.result_size()));
  const AttentionPart part = {&problem.q[token * shape.q_size()], out.data(), 1, shape.top - 1,
                              cache.pages()};
  attention(execution, {&part, 1}, shape.q_size(), cache.layer(), shape);
  to.insert(to.end(), out.begin(), out.end());
}

TEST_P(Selection, has_the_largest_scores_and_the_lower_positions_on_ties) {
  for (const Element type : {Element::kF32, Element::kF16, Element::kBF16, Element::kE4M3}) {
    expect_selected({index_shape(3, 16, 5), 40, 0, 1}, type);
    expect_selected({index_shape(1, 8, 1), 3, 2, 2}, type);
  }
  expect_selected({index_shape(6, 32, 64), 35, 1100, 3}, Element::kF32);
}

TEST_P(Selection, attention_sees_what_is_selected_alone) {
  for (const Element type : {Element::kF32, Element::kE4M3}) {
    const AttentionShape shape = {.heads = 3,
                                  .kv_heads = 1,
                                  .head_dim = 32,
                                  .scale = 0.25f,
                                  .values_in_keys = 16,
                                  .top = 140};
    const SelectionProblem index(index_shape(2, 8, shape.top), 7, 300, 4);
    Problem problem =
        testing::make_problem(shape, index.tokens, index.first_position, false, 5, 307);
    problem.values = problem.keys;
    PagedCache cache(problem, type);
    std::vector<float> selected;
    std::vector<float> expected;
    for (int64_t token = 0; token < index.tokens; ++token) {
      const std::vector<float> positions = index.expected(token);
      selected.insert(selected.end(), positions.begin(), positions.end());
      add_expected(execution(1), problem, token, positions, type, expected);
    }
    std::vector<float> out(expected.size(), NAN);
    attention_of_selected(
        execution(2),
        {problem.q.data(), out.data(), index.tokens, index.first_position, cache.pages()},
        shape.q_size(), selected.data(), cache.layer(), shape, {});
    EXPECT_EQ(out, expected);
  }
}

SUBBYTE_FOR_EVERY_ISA(Selection);

}  // namespace
}  // namespace subbyte
