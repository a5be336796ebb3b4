#include "foreign_layouts/marlin_act_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "foreign_layouts/marlin.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

/// perm as GPTQ's readers make it: the inputs sorted by their group, equal ones as they were.
std::vector<int32_t> sorted_by_group(const std::vector<int32_t>& g_idx) {
  std::vector<int32_t> perm(g_idx.size());
  std::iota(perm.begin(), perm.end(), 0);
  std::stable_sort(perm.begin(), perm.end(),
                   [&](int32_t a, int32_t b) { return g_idx[a] < g_idx[b]; });
  return perm;
}

TEST(MarlinActOrder, every_order_of_few_inputs_comes_back) {
  // All ways to put six inputs into three groups of two: 90 of them.
  std::vector<int32_t> g_idx = {0, 0, 1, 1, 2, 2};
  int count = 0;
  do {
    const std::vector<int32_t> perm = sorted_by_group(g_idx);
    MatrixView view;
    view.format = {Format::kU4, Format::kF16, Zero::kU8, 2};
    view.cols = 6;
    const std::vector<uint32_t> inputs(perm.begin(), perm.end());
    view.input_order = inputs;
    const MarlinActOrder order = marlin_act_order(view);
    EXPECT_EQ(order.perm, perm);
    EXPECT_EQ(order.g_idx, (std::vector<int32_t>{0, 0, 1, 1, 2, 2}));
    for (std::size_t k = 0; k < 6; ++k) EXPECT_EQ(g_idx[order.perm[k]], order.g_idx[k]);
    const auto back = input_order_of(order, 2);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, inputs);
    ++count;
  } while (std::next_permutation(g_idx.begin(), g_idx.end()));
  EXPECT_EQ(count, 90);
}

/// What the kernel adds up: the words' row k times activation perm[k] is the weight of that input.
TEST(MarlinActOrder, words_and_gathered_activations_are_the_layer) {
  constexpr int64_t kRows = 64, kCols = 32;
  auto matrix = testing::random_matrix({Format::kU4, Format::kF16, Zero::kU8, 8}, kRows, kCols,
                                       testing::Contents::kReal, 4);
  std::vector<int32_t> g_idx(kCols);
  for (int32_t k = 0; k < kCols; ++k) g_idx[k] = k * 5 % 32 / 8;
  const std::vector<int32_t> perm = sorted_by_group(g_idx);
  const std::vector<uint32_t> inputs(perm.begin(), perm.end());
  matrix.view.input_order = inputs;
  const MarlinActOrder order = marlin_act_order(matrix.view);
  std::vector<std::byte> words(kRows * kCols / 2);
  pack_marlin(words.data(), matrix.view.codes.data(), kRows, kCols);
  for (int64_t n = 0; n < kRows; ++n) {
    for (int64_t k = 0; k < kCols; ++k) {
      const NibblePlace place = marlin_place(n, k, kRows);
      const auto code = std::to_integer<uint32_t>(words[place.byte] >> place.shift) & 0xF;
      const auto stored = std::find(inputs.begin(), inputs.end(), order.perm[k]) - inputs.begin();
      EXPECT_EQ(code, code_at(matrix.view, n, stored));
      EXPECT_EQ(order.g_idx[k], g_idx[order.perm[k]]);
    }
  }
}

TEST(MarlinActOrder, is_empty_without_an_order) {
  MatrixView view;
  view.format.group_size = 8;
  view.cols = 32;
  EXPECT_TRUE(marlin_act_order(view).perm.empty());
  EXPECT_TRUE(marlin_act_order(view).g_idx.empty());
  EXPECT_TRUE(input_order_of({}, 8)->empty());
}

TEST(MarlinActOrder, what_is_no_order_is_refused) {
  const auto code = [](MarlinActOrder order, int64_t group_size = 2) {
    const auto found = input_order_of(order, group_size);
    return found.ok() ? std::string() : std::string(found.error().code);
  };
  EXPECT_EQ(code({{3, 1, 0, 2}, {0, 0, 1, 1}}), "");
  EXPECT_EQ(code({{3, 1, 0, 3}, {0, 0, 1, 1}}), "layout.input_order");
  EXPECT_EQ(code({{3, 1, 0, 4}, {0, 0, 1, 1}}), "layout.input_order");
  EXPECT_EQ(code({{3, 1, 0, -1}, {0, 0, 1, 1}}), "layout.input_order");
  EXPECT_EQ(code({{3, 1, 0, 2}, {0, 1, 0, 1}}), "layout.input_order");
  EXPECT_EQ(code({{3, 1, 0, 2}, {0, 0, 1}}), "layout.input_order");
  EXPECT_EQ(code({{3, 1, 0, 2}, {0, 0, 1, 1}}, 0), "layout.input_order");
}

}  // namespace
}  // namespace subbyte
