// Sizes of what ranks have of a model, beside those of the whole.

#include "parallel/rank_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/model.h"
#include "support/goldens.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

GroupSizes sizes_of(const std::string& golden, int ranks) {
  const auto host = testing::make_test_backend(1);
  SizingBackend backend(*host, ranks);
  const Status loaded = check_loading(testing::golden_folder(golden), backend, Reads::kHeaders);
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  return backend.sizes();
}

class RankSizesOfGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(RankSizesOfGoldens, parts_and_what_is_whole_are_the_model) {
  const int64_t model = sizes_of(GetParam(), 1).ranks.front().weight_bytes;
  const GroupSizes sizes = sizes_of(GetParam(), 2);
  ASSERT_EQ(sizes.ranks.size(), 2u);
  int64_t parts = 0;
  for (const RankSizes& rank : sizes.ranks) {
    EXPECT_EQ(rank.whole_bytes, sizes.ranks.front().whole_bytes);
    EXPECT_LT(rank.weight_bytes, model);
    parts += rank.weight_bytes - rank.whole_bytes;
  }
  EXPECT_EQ(parts + sizes.ranks.front().whole_bytes, model);
  int64_t matrices = 0;
  for (const WholeMatrices& one : sizes.whole) matrices += one.bytes;
  EXPECT_LE(matrices, sizes.ranks.front().whole_bytes);
}

// With two heads of keys and values: of fewer both ranks would have the same ones.
INSTANTIATE_TEST_SUITE_P(Goldens, RankSizesOfGoldens,
                         ::testing::Values("llama3-bf16", "olmo2-bf16", "qwen3-vl-moe-bf16"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(RankSizes, names_what_all_ranks_have) {
  const GroupSizes sizes = sizes_of("qwen2-moe-bf16", 2);
  const auto has = [&](const std::string& name) {
    return std::ranges::find(sizes.whole, name, &WholeMatrices::name) != sizes.whole.end();
  };
  EXPECT_TRUE(has("embed_tokens"));
  EXPECT_TRUE(has("layers.*.mlp.gate"));
  EXPECT_FALSE(has("layers.*.self_attn.o_proj"));
}

}  // namespace
}  // namespace subbyte
