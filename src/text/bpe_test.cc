#include "text/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "base/random.h"

namespace subbyte {
namespace {

/// The token of a byte is its value.
std::vector<TokenId> symbols_of(std::string_view text) {
  std::vector<TokenId> symbols;
  for (const char c : text) symbols.push_back(static_cast<unsigned char>(c));
  return symbols;
}

std::vector<TokenId> encode(const Bpe& bpe, std::string_view text, bool avoid_reserved = false) {
  Bpe::Scratch scratch;
  std::vector<TokenId> ids;
  bpe.encode(symbols_of(text), avoid_reserved, scratch, ids);
  return ids;
}

/// The definition: find the lowest rank, leftmost, join, begin again.
std::vector<TokenId> encode_slowly(std::string_view text, const std::vector<Bpe::Merge>& merges) {
  std::map<std::pair<TokenId, TokenId>, std::size_t> ranks;
  for (std::size_t i = 0; i < merges.size(); ++i) ranks[{merges[i].left, merges[i].right}] = i;
  std::vector<TokenId> ids = symbols_of(text);
  while (true) {
    std::size_t best = merges.size();
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == merges.size()) return ids;
    ids[at] = merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, joins_the_leftmost_pair_on_ties) {
  const Bpe bpe({{'a', 'a', 256}}, std::vector<bool>(300));
  EXPECT_EQ(encode(bpe, "aaa"), (std::vector<TokenId>{256, 'a'}));
  EXPECT_EQ(encode(bpe, "aaaaa"), (std::vector<TokenId>{256, 256, 'a'}));
  EXPECT_EQ(encode(bpe, ""), (std::vector<TokenId>{}));
}

TEST(Bpe, takes_the_lowest_rank_first_and_the_last_of_equal_merges) {
  const std::vector<Bpe::Merge> merges = {{'b', 'c', 256}, {'a', 'b', 257}, {257, 'c', 258}};
  const Bpe bpe(merges, std::vector<bool>(300));
  EXPECT_EQ(encode(bpe, "abc"), (std::vector<TokenId>{'a', 256}));
  const std::vector<Bpe::Merge> twice = {{'b', 'c', 256}, {'a', 'b', 257}, {'b', 'c', 256}};
  EXPECT_EQ(encode(Bpe(twice, std::vector<bool>(300)), "abc"), (std::vector<TokenId>{257, 'c'}));
}

TEST(Bpe, does_without_merges_into_reserved_tokens_when_told) {
  std::vector<bool> is_reserved(300);
  is_reserved[257] = true;
  const Bpe bpe({{'a', 'b', 256}, {256, 'c', 257}}, is_reserved);
  EXPECT_EQ(encode(bpe, "abc", false), (std::vector<TokenId>{257}));
  EXPECT_EQ(encode(bpe, "abc", true), (std::vector<TokenId>{256, 'c'}));
}

TEST(Bpe, agrees_with_the_definition_on_random_merges) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<Bpe::Merge> merges;
    std::vector<TokenId> known = {'a', 'b', 'c'};
    const auto pick = [&] { return known[random.below(known.size())]; };
    for (TokenId id = 256; id < 276; ++id) {
      merges.push_back({pick(), pick(), id});
      known.push_back(id);
    }
    const Bpe bpe(merges, std::vector<bool>(300));
    for (int i = 0; i < 30; ++i) {
      std::string text;
      for (uint64_t n = random.below(80); n > 0; --n) {
        text.push_back(static_cast<char>('a' + random.below(3)));
      }
      ASSERT_EQ(encode(bpe, text), encode_slowly(text, merges)) << text;
    }
  }
}

TEST(Bpe, work_grows_with_the_length_and_no_faster) {
  // Doubling merges: aa, aaaa, ... so that everything joins, and a chain that grows to the right.
  std::vector<Bpe::Merge> merges = {{'a', 'a', 256}};
  for (TokenId id = 257; id < 280; ++id) merges.push_back({id - 1, id - 1, id});
  merges.push_back({'x', 'y', 280});
  for (TokenId id = 281; id < 300; ++id) merges.push_back({id - 1, 'y', id});
  const Bpe bpe(merges, std::vector<bool>(300));
  for (const std::string& unit :
       {std::string("a"), std::string("xyyyyyyyyyyyy"), std::string("ay")}) {
    for (const std::size_t length : {std::size_t{1} << 12, std::size_t{1} << 16}) {
      std::string text;
      while (text.size() < length) text += unit;
      Bpe::Scratch scratch;
      std::vector<TokenId> ids;
      bpe.encode(symbols_of(text), false, scratch, ids);
      EXPECT_GT(scratch.num_lookups, text.size() / 2);
      EXPECT_LT(scratch.num_heap_entries, 3 * text.size());
      EXPECT_LT(scratch.num_lookups, 3 * text.size());
    }
  }
}

}  // namespace
}  // namespace subbyte
