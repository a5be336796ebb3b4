#include "parallel/shares.h"

#include <gtest/gtest.h>

namespace subbyte {
namespace {

TEST(Shares, units_are_divided_as_evenly_as_they_can_be) {
  EXPECT_EQ(share_of(7, 0, 3), (ColumnRange{0, 2}));
  EXPECT_EQ(share_of(7, 1, 3), (ColumnRange{2, 2}));
  EXPECT_EQ(share_of(7, 2, 3), (ColumnRange{4, 3}));
  EXPECT_EQ(even_parts(100, 32, 2), (Parts{{{0, 64}}, {{64, 36}}}));
  EXPECT_TRUE(even_parts(64, 32, 3).empty());
}

TEST(Shares, heads_of_keys_are_divided_or_shared) {
  const auto divided = head_shares(12, 4, 2);
  EXPECT_EQ(divided[1].q, (ColumnRange{6, 6}));
  EXPECT_EQ(divided[1].kv, (ColumnRange{2, 2}));
  const auto uneven = head_shares(9, 3, 2);
  EXPECT_EQ(uneven[0].q, (ColumnRange{0, 3}));
  EXPECT_EQ(uneven[1].kv, (ColumnRange{1, 2}));
  const auto shared = head_shares(16, 2, 4);
  EXPECT_EQ(shared[1].q, (ColumnRange{4, 4}));
  EXPECT_EQ(shared[1].kv, (ColumnRange{0, 1}));
  EXPECT_EQ(shared[3].kv, (ColumnRange{1, 1}));
  EXPECT_TRUE(head_shares(6, 3, 4).empty());
  EXPECT_TRUE(head_shares(2, 1, 4).empty());
}

TEST(Shares, columns_of_heads_are_those_of_queries_keys_and_values) {
  const AttentionShape shape = {.heads = 4, .kv_heads = 2, .head_dim = 8};
  EXPECT_EQ(columns_of(shape, head_shares(shape, 2)[1]), (Columns{{16, 16}, {40, 8}, {56, 8}}));
  const AttentionShape latents = {.heads = 4, .kv_heads = 1, .head_dim = 8, .values_in_keys = 6};
  EXPECT_EQ(columns_of(latents, head_shares(latents, 2)[0]), (Columns{{0, 16}, {32, 8}}));
}

TEST(Shares, columns_are_found_where_a_rank_has_them) {
  const Columns here = {{8, 8}, {40, 8}};
  EXPECT_EQ(places_of({{10, 2}, {40, 4}}, here), (Columns{{2, 2}, {8, 4}}));
  EXPECT_EQ(places_of({{12, 4}}, here), (Columns{{4, 4}}));
  EXPECT_FALSE(places_of({{12, 6}}, here));
  EXPECT_FALSE(places_of({{0, 1}}, here));
  EXPECT_EQ(mapped({{1, 3}}, {{10, 2}, {30, 5}}), (Columns{{11, 1}, {30, 2}}));
  EXPECT_EQ(merged({{4, 2}, {0, 2}}, {{1, 2}}), (Columns{{0, 3}, {4, 2}}));
}

}  // namespace
}  // namespace subbyte
