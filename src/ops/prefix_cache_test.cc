#include "ops/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/random.h"
#include "support/text_pool.h"

namespace subbyte {
namespace {

using testing::TextPool;
using Tokens = std::vector<int32_t>;

constexpr CacheGroup kAll = {.layers = 1, .kv_heads = 1, .head_dim = 1};
constexpr CacheGroup kWindow = {.layers = 1, .kv_heads = 1, .head_dim = 1, .window = 150};
constexpr CacheGroup kState = {.layers = 1, .state_size = 4};

Tokens text(Random& random, int64_t length, int32_t symbols = 1000) {
  Tokens made(length);
  for (int32_t& token : made) token = static_cast<int32_t>(random.below(symbols));
  return made;
}

class Prefixes : public ::testing::Test {
 protected:
  void make(const std::vector<CacheGroup>& layout, int64_t units) {
    cache_.reset();
    made_.emplace(layout, units);
    cache_.emplace(*made_->pool);
  }

  /// Computes a text in steps of so many tokens that end at `ends`, too, and keeps it.
  void compute(const Tokens& text, int64_t chunk = 64, const std::vector<int64_t>& ends = {}) {
    Sequence sequence(*made_->pool, 100000);
    PrefixCache::Found found = cache_->attach({}, std::span(text).first(text.size() - 1), sequence);
    EXPECT_TRUE(made_->is_right(sequence, text));
    found_ = found;
    while (sequence.length() < std::ssize(text)) {
      int64_t tokens = std::min<int64_t>(chunk, std::ssize(text) - sequence.length());
      for (const int64_t end : ends) {
        if (end > sequence.length()) tokens = std::min(tokens, end - sequence.length());
      }
      for (int32_t group = 0; group < std::ssize(made_->memories); ++group) {
        while (sequence.missing(group, tokens) > 0) ASSERT_TRUE(cache_->evict(group));
      }
      ASSERT_TRUE(made_->compute(sequence, text, tokens));
      const int64_t length = sequence.length();
      const bool is_end = std::ranges::find(ends, length) != ends.end();
      cache_->keep({}, std::span(text).first(length), sequence,
                   is_end || length == std::ssize(text));
      sequence.settle(length);
    }
    cache_->use({}, text);
  }

  int64_t known(const Tokens& text, const TextKind& kind = {}) {
    Sequence sequence(*made_->pool, 100000);
    const int64_t length = cache_->attach(kind, text, sequence).length;
    EXPECT_EQ(sequence.length(), length);
    EXPECT_TRUE(made_->is_right(sequence, text));
    return length;
  }

  std::optional<TextPool> made_;
  std::optional<PrefixCache> cache_;
  PrefixCache::Found found_;
  Random random_{3};
};

Tokens joined(const Tokens& a, int64_t length, const Tokens& b) {
  Tokens made(a.begin(), a.begin() + length);
  made.insert(made.end(), b.begin(), b.end());
  return made;
}

TEST_F(Prefixes, keeps_the_pages_of_who_goes_on_of_two_that_have_the_same) {
  make({kAll}, 8);
  const Tokens one = text(random_, 300);
  Sequence first(*made_->pool, 1000), second(*made_->pool, 1000);
  for (Sequence* sequence : {&first, &second}) {
    ASSERT_TRUE(made_->compute(*sequence, one, 300));
    cache_->keep({}, one, *sequence, false);
  }
  first.truncate(0);
  EXPECT_EQ(std::as_const(*made_->pool).groups()[0].num_idle(), 3);
  cache_->keep({}, one, second, false);
  EXPECT_EQ(std::as_const(*made_->pool).groups()[0].num_idle(), 0);
  EXPECT_EQ(std::as_const(*made_->pool).groups()[0].num_free(), 5);
  EXPECT_EQ(cache_->counts().pages, 3);
}

TEST_F(Prefixes, are_known_to_the_token_that_differs) {
  make({kAll}, 100);
  const Tokens first = text(random_, 300);
  compute(first);
  EXPECT_EQ(known(first), 300);
  for (const int64_t length : {1, 127, 128, 129, 256, 290}) {
    EXPECT_EQ(known(joined(first, length, {2000, 2001})), length);
  }
  EXPECT_EQ(known({2000, 2001}), 0);
  const Tokens longer = joined(first, 300, text(random_, 200));
  compute(longer);
  EXPECT_EQ(found_.length, 300);
  EXPECT_EQ(known(longer), 500);
  EXPECT_EQ(cache_->counts().pages, 4) << "the page that was filled in part has grown";
  EXPECT_EQ(made_->memories[0]->num_copies, 0) << "the sequence that filled it has gone";
  EXPECT_EQ(known(longer, {.salt = "b"}), 0);
  EXPECT_EQ(known(longer, {.request = 7}), 0);
  EXPECT_EQ(known(longer, {.is_long = true}), 0);
  cache_->clear();
  EXPECT_EQ(known(first), 0);
  EXPECT_EQ(made_->pool->groups()[0].num_free(), 100);
}

TEST_F(Prefixes, who_fills_a_page_goes_on_in_it_and_others_copy_it) {
  make({kAll}, 100);
  const Tokens all = text(random_, 100);
  Sequence first(*made_->pool, 1000);
  ASSERT_TRUE(made_->compute(first, all, 40));
  cache_->keep({}, std::span(all).first(40), first, false);
  ASSERT_TRUE(first.reserve(1).ok());  // as the scheduler does before the model
  ASSERT_TRUE(made_->compute(first, all, 1));
  EXPECT_EQ(made_->memories[0]->num_copies, 0);
  const Tokens other_text = joined(all, 40, text(random_, 60));
  Sequence second(*made_->pool, 1000);
  EXPECT_EQ(cache_->attach({}, other_text, second).length, 40);
  ASSERT_TRUE(made_->compute(second, other_text, 60));
  EXPECT_EQ(made_->memories[0]->num_copies, 1);
  ASSERT_TRUE(made_->compute(first, all, 20));
  EXPECT_TRUE(made_->is_right(first, all));
  EXPECT_TRUE(made_->is_right(second, other_text));
}

TEST_F(Prefixes, of_a_window_want_its_last_pages_alone) {
  make({kAll, kWindow}, 20);
  const Tokens first = text(random_, 1000);
  compute(first);
  EXPECT_EQ(known(first), 1000);
  while (made_->pool->groups()[1].num_idle() > 2) ASSERT_TRUE(cache_->evict(1));
  EXPECT_EQ(known(first), 1000) << "its last pages were used last";
  EXPECT_EQ(known(joined(first, 500, {2000})), 0);
  EXPECT_EQ(made_->pool->groups()[0].num_idle(), 8);
}

/// Two texts that differ within a page have a block each there, of which a third can take either.
TEST_F(Prefixes, of_a_window_are_those_of_the_text_that_has_them) {
  make({kAll, kWindow}, 40);
  const Tokens both = text(random_, 500);
  compute(joined(joined(both, 500, {5}), 501, text(random_, 600)));
  compute(joined(joined(both, 500, {10}), 501, text(random_, 600)));
  cache_->use({}, both);
  while (made_->pool->groups()[1].num_idle() > 6) ASSERT_TRUE(cache_->evict(1));
  for (const int32_t next : {0, 6, 20}) EXPECT_EQ(known(joined(both, 500, {next})), 500) << next;
}

TEST_F(Prefixes, of_a_window_stay_while_a_long_text_comes) {
  make({kWindow}, 12);
  const Tokens first = text(random_, 600);
  const Tokens second = text(random_, 300);
  compute(first);
  cache_->use({}, std::span(first).first(300));  // as where a conversation is likely to go on
  compute(second);
  compute(text(random_, 4000));
  EXPECT_EQ(known(second), 300);
  EXPECT_EQ(known(first), 600);
  EXPECT_EQ(known(joined(first, 300, {2000})), 300);
}

TEST_F(Prefixes, with_states_are_known_where_a_step_ended) {
  make({kAll, kState}, 40);
  const Tokens first = text(random_, 300);
  compute(first, 64, {250});
  EXPECT_EQ(known(first), 300);
  EXPECT_EQ(known(joined(first, 299, {2000})), 250);
  const Tokens second = joined(first, 280, text(random_, 100));
  compute(second);
  EXPECT_EQ(found_.length, 250);
  EXPECT_EQ(found_.length_of_pages, 280) << "where a checkpoint is of use to the third";
  compute(joined(first, 280, text(random_, 90)), 64, {280});
  EXPECT_EQ(known(joined(first, 280, {3000})), 280);
  EXPECT_EQ(known(first), 300);
  ASSERT_TRUE(cache_->evict(1));
  EXPECT_EQ(known(joined(second, 380, {1})), 280) << "the others were used after that of its end";
}

TEST_F(Prefixes, go_with_the_least_recently_used_first_and_leaves_before_their_parents) {
  make({kAll}, 12);
  const Tokens first = text(random_, 500);
  const Tokens second = text(random_, 500);
  compute(first);
  compute(second);
  EXPECT_EQ(known(first), 500);
  Sequence user(*made_->pool, 1000);
  cache_->attach({}, std::span(second).first(128), user);  // has the first page of it
  EXPECT_EQ(known(first), 500);
  for (const int64_t left : {384, 256, 128}) {
    ASSERT_TRUE(cache_->evict(0));
    EXPECT_EQ(known(second), left);
    EXPECT_EQ(known(first), 500);
  }
  while (cache_->evict(0)) continue;
  EXPECT_EQ(known(first), 0);
  EXPECT_EQ(known(second), 128) << "which a sequence has";
  user.truncate(0);
  EXPECT_TRUE(cache_->evict(0));
  EXPECT_EQ(made_->pool->groups()[0].num_free(), 12);
}

/// All that was kept.
struct SimpleList {
  void expect(const PrefixCache::Found& found, std::span<const int32_t> wanted,
              bool has_states) const {
    int64_t longest = 0;
    for (const Tokens& one : texts) {
      longest = std::max(longest, std::ranges::mismatch(one, wanted).in1 - one.begin());
    }
    int64_t longest_state = 0;
    for (const Tokens& one : with_state) {
      const bool begins = std::ranges::mismatch(one, wanted).in1 == one.end();
      if (begins) longest_state = std::max(longest_state, std::ssize(one));
    }
    ASSERT_LE(found.length, has_states ? longest_state : longest);
    ASSERT_LE(found.length, found.length_of_pages);
    ASSERT_LE(found.length_of_pages, found.length_in_common);
    if (!is_all_there) return;
    ASSERT_EQ(found.length, has_states ? longest_state : longest);
    ASSERT_EQ(found.length_of_pages, longest);
  }

  std::vector<Tokens> texts;
  std::vector<Tokens> with_state;  // that were kept with one
  bool is_all_there = true;        // nothing has gone so far
};

/// Texts that branch, in pools that are too small for them: what is found is always of the text,
/// no longer than a list of all that was kept says, and as long while nothing has gone.
TEST_F(Prefixes, are_those_of_a_simple_list_whatever_comes_and_goes) {
  const std::vector<std::vector<CacheGroup>> layouts = {
      {kAll}, {kAll, kWindow}, {kAll, kState}, {kWindow, kAll, kState, kState}, {kWindow}};
  for (int round = 0; round < 60; ++round) {
    const auto& layout = layouts[round % layouts.size()];
    make(layout, 8 + random_.below(30));
    std::vector<Tokens> texts = {text(random_, 400, 2)};
    SimpleList kept;
    const bool has_states = std::ranges::any_of(layout, &CacheGroup::is_state);
    for (int i = 0; i < 60; ++i) {
      const Tokens& from = texts[random_.below(texts.size())];
      const auto common = static_cast<int64_t>(random_.below(from.size() + 1));
      texts.push_back(joined(from, common, text(random_, 1 + random_.below(300), 2)));
      const Tokens& wanted = texts.back();
      Sequence sequence(*made_->pool, 100000);
      const auto found = cache_->attach({}, std::span(wanted).first(wanted.size() - 1), sequence);
      ASSERT_TRUE(made_->is_right(sequence, wanted));
      kept.expect(found, std::span(wanted).first(wanted.size() - 1), has_states);
      if (HasFatalFailure()) return;
      const auto end = static_cast<int64_t>(random_.below(wanted.size() + 100));  // or cancelled
      while (sequence.length() < std::min<int64_t>(end, std::ssize(wanted))) {
        const int64_t tokens = std::min<int64_t>(1 + static_cast<int64_t>(random_.below(150)),
                                                 std::ssize(wanted) - sequence.length());
        bool has_room = true;
        for (int32_t group = 0; group < std::ssize(layout); ++group) {
          while (has_room && sequence.missing(group, tokens) > 0) {
            has_room = cache_->evict(group);
            kept.is_all_there = false;
          }
        }
        if (!has_room) break;
        ASSERT_TRUE(made_->compute(sequence, wanted, tokens));
        const auto known = std::span(wanted).first(sequence.length());
        const bool has_checkpoint = random_.below(3) == 0;
        cache_->keep({}, known, sequence, has_checkpoint);
        sequence.settle(sequence.length());
        kept.texts.emplace_back(known.begin(), known.end());
        if (has_checkpoint) kept.with_state.push_back(kept.texts.back());
        if (i >= 10 && random_.below(8) == 0) {
          cache_->evict(static_cast<int32_t>(random_.below(layout.size())));
          kept.is_all_there = false;
        }
      }
      if (random_.below(100) == 0) {
        cache_->clear();
        kept.is_all_there = false;
      }
    }
    for (const KvGroup& group : made_->pool->groups()) EXPECT_EQ(group.num_held(), 0);
    cache_->clear();
    for (const KvGroup& group : made_->pool->groups()) {
      EXPECT_EQ(group.num_free(), group.num_units());
    }
  }
}

}  // namespace
}  // namespace subbyte
