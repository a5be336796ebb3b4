#include "ops/kv_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace subbyte {
namespace {

/// Counts instead of copying.
class CountingMemory : public KvMemory {
 public:
  struct Copy {
    int32_t from, to;
    int64_t positions;
    bool operator==(const Copy&) const = default;
  };
  void copy_page(int32_t from, int32_t to, int64_t positions) override {
    copies.push_back({from, to, positions});
  }
  std::vector<Copy> copies;
};

class KvPools : public testing::Test {
 protected:
  static constexpr CacheGroup kAll = {.layers = 1, .kv_heads = 1, .head_dim = 1};
  static constexpr CacheGroup kWindow = {.layers = 1, .kv_heads = 1, .head_dim = 1, .window = 200};
  static constexpr CacheGroup kState = {.layers = 1, .state_size = 4};

  /// Of the groups, with so many pages or states in each.
  KvPool make(int64_t units, const std::vector<CacheGroup>& layout = {kAll}) {
    std::vector<KvGroup> groups;
    for (const CacheGroup& group : layout) {
      auto memory = std::make_unique<CountingMemory>();
      memory_ = memory.get();
      groups.emplace_back(group, units, std::move(memory));
    }
    return {{layout}, Element::kF32, {units * kPagePositions}, std::move(groups)};
  }

  static int64_t free_units(const KvPool& pool, std::size_t group = 0) {
    return pool.groups()[group].num_free();
  }

  /// Appends positions as a step does.
  static std::string append(Sequence& sequence, int64_t tokens) {
    const Status status = sequence.reserve(tokens);
    if (!status.ok()) return std::string(status.error().code);
    sequence.advance(tokens);
    return "";
  }

  static std::vector<int32_t> pages(const Sequence& sequence) {
    return {sequence.pages(0).begin(), sequence.pages(0).end()};
  }

  CountingMemory* memory_ = nullptr;
};

TEST_F(KvPools, sizes_are_those_of_the_shape) {
  const KvShape shape = {36, 8, 128, Element::kF32};
  EXPECT_EQ(shape.bytes_per_position(), 2 * 36 * 8 * 128 * 4);
  EXPECT_EQ((KvShape{36, 8, 128, Element::kBF16}).bytes_per_position(), 2 * 36 * 8 * 128 * 2);
  const KvShape e4m3 = {36, 8, 128, Element::kE4M3};
  EXPECT_EQ(e4m3.bytes_per_position(), 2 * 36 * 8 * (128 + 1));
  EXPECT_EQ(e4m3.run_bytes(), e4m3.elements_bytes() + kPagePositions);
  EXPECT_EQ(shape.page_bytes(), kPagePositions * shape.bytes_per_position());
  EXPECT_EQ(kv_pages(0), 0);
  EXPECT_EQ(kv_pages(1), 1);
  EXPECT_EQ(kv_pages(kPagePositions), 1);
  EXPECT_EQ(kv_pages(kPagePositions + 1), 2);
}

TEST_F(KvPools, a_sequence_takes_pages_as_it_grows_and_gives_them_back) {
  KvPool pool = make(4);
  {
    Sequence sequence(pool, 1000);
    EXPECT_EQ(append(sequence, 1), "");
    EXPECT_EQ(free_units(pool), 3);
    EXPECT_EQ(append(sequence, 127), "");
    EXPECT_EQ(free_units(pool), 3);
    EXPECT_EQ(append(sequence, 130), "");
    EXPECT_EQ(sequence.length(), 258);
    EXPECT_EQ(free_units(pool), 1);
    sequence.truncate(129);
    EXPECT_EQ(free_units(pool), 2);
    sequence.truncate(500);
    EXPECT_EQ(sequence.length(), 129);
    sequence.truncate(128);
    EXPECT_EQ(free_units(pool), 3);
  }
  EXPECT_EQ(free_units(pool), 4);
}

TEST_F(KvPools, refuses_what_does_not_fit) {
  KvPool pool = make(2);
  Sequence sequence(pool, 300);
  EXPECT_EQ(append(sequence, 301), "model.context_full");
  EXPECT_EQ(append(sequence, 257), "kv.no_pages");
  EXPECT_EQ(sequence.length(), 0);
  EXPECT_EQ(free_units(pool), 2);  // what cannot go on takes nothing
  EXPECT_EQ(append(sequence, 256), "");
  EXPECT_EQ(append(sequence, 1), "kv.no_pages");
  EXPECT_EQ(append(sequence, 0), "");
  EXPECT_EQ(sequence.length(), 256);
  Sequence other(pool, 300);
  EXPECT_EQ(append(other, 1), "kv.no_pages");
  sequence.truncate(100);
  EXPECT_EQ(append(other, 1), "");
}

TEST_F(KvPools, of_those_that_share_a_page_the_first_goes_on_in_it_and_the_others_copy_it) {
  KvPool pool = make(8);
  Sequence first(pool, 1000);
  append(first, 300);
  Sequence second = first.share(300);
  EXPECT_EQ(pages(second), pages(first));
  EXPECT_EQ(free_units(pool), 5);
  const std::vector<int32_t> before = pages(first);
  EXPECT_EQ(append(second, 1), "");
  EXPECT_EQ(append(second, 1), "");
  EXPECT_TRUE(memory_->copies.empty()) << "the first does not see what is after its positions";
  EXPECT_EQ(pages(second), before);
  EXPECT_EQ(append(first, 1), "");
  EXPECT_EQ(memory_->copies,
            (std::vector<CountingMemory::Copy>{{before[2], first.pages(0)[2], 300 - 256}}));
  EXPECT_NE(first.pages(0)[2], before[2]);
  EXPECT_EQ(first.pages(0)[0], before[0]);
  // Each has its own now.
  EXPECT_EQ(append(first, 1), "");
  EXPECT_EQ(append(second, 1), "");
  EXPECT_EQ(memory_->copies.size(), 1u);
}

TEST_F(KvPools, who_takes_steps_back_copies_the_page_that_others_share) {
  KvPool pool = make(8);
  Sequence first(pool, 1000);
  append(first, 40);
  const Sequence second = first.share(40);
  EXPECT_EQ(append(first, 5), "");
  EXPECT_TRUE(memory_->copies.empty());
  first.truncate(30);
  EXPECT_EQ(append(first, 1), "");
  EXPECT_EQ(memory_->copies.size(), 1u);
  EXPECT_EQ(memory_->copies[0].positions, 30);
}

TEST_F(KvPools, a_prefix_of_whole_pages_is_never_copied) {
  KvPool pool = make(8);
  Sequence first(pool, 1000);
  append(first, 400);
  std::vector<Sequence> others;
  for (int i = 0; i < 3; ++i) others.push_back(first.share(256));
  for (Sequence& other : others) {
    EXPECT_EQ(other.length(), 256);
    EXPECT_EQ(append(other, 1), "");
  }
  EXPECT_TRUE(memory_->copies.empty());
  EXPECT_EQ(free_units(pool), 8 - 4 - 3);
  std::set<int32_t> all;
  for (const Sequence& other : others) all.insert(other.pages(0)[2]);
  EXPECT_EQ(all.size(), 3u);
}

TEST_F(KvPools, shared_pages_are_free_when_the_last_owner_is_gone) {
  KvPool pool = make(4);
  std::optional<Sequence> first(std::in_place, pool, 1000);
  append(*first, 200);
  std::optional<Sequence> second(first->share(150));
  first.reset();
  EXPECT_EQ(free_units(pool), 2);
  EXPECT_EQ(append(*second, 1), "");  // nobody else has it
  EXPECT_TRUE(memory_->copies.empty());
  second.reset();
  EXPECT_EQ(free_units(pool), 4);
}

TEST_F(KvPools, no_page_for_a_copy_changes_nothing) {
  KvPool pool = make(1);
  Sequence first(pool, 1000);
  append(first, 10);
  Sequence second = first.share(9);
  EXPECT_EQ(append(second, 1), "kv.no_pages");
  EXPECT_EQ(second.length(), 9);
  EXPECT_EQ(pages(second), pages(first));
  first.truncate(0);
  EXPECT_EQ(append(second, 1), "");
}

TEST_F(KvPools, sequences_can_be_moved) {
  KvPool pool = make(4);
  Sequence first(pool, 1000);
  append(first, 200);
  Sequence second(std::move(first));
  EXPECT_EQ(second.length(), 200);
  EXPECT_EQ(first.length(), 0);
  Sequence third(pool, 500);
  append(third, 1);
  third = std::move(second);
  EXPECT_EQ(third.length(), 200);
  EXPECT_EQ(third.max_length(), 1000);
  second.truncate(0);
  EXPECT_EQ(free_units(pool), 2);
}

/// Of 0 to 2 pages in front of a page that is there.
int64_t given_back(const Sequence& sequence, int32_t group) {
  return std::ranges::count(sequence.pages(group), kNoPage);
}

TEST_F(KvPools, pages_before_a_window_are_given_back_when_steps_are_settled) {
  KvPool pool = make(8, {kAll, kWindow});
  Sequence sequence(pool, 1000);
  append(sequence, 500);
  EXPECT_EQ(free_units(pool, 1), 4);
  EXPECT_TRUE(sequence.holds(1)) << "the step may still be taken back";
  sequence.settle(328);
  EXPECT_EQ(given_back(sequence, 1), 1) << "position 128 is seen by the token at 327";
  sequence.settle(500);
  EXPECT_EQ(given_back(sequence, 1), 2);
  EXPECT_EQ(given_back(sequence, 0), 0);
  EXPECT_EQ(free_units(pool, 1), 6);
  EXPECT_EQ(free_units(pool, 0), 4);
  EXPECT_TRUE(sequence.holds(499));
  EXPECT_TRUE(sequence.holds(456)) << "whose token sees 256 and later ones";
  EXPECT_FALSE(sequence.holds(454));
  EXPECT_TRUE(sequence.holds(0));
  sequence.truncate(456);
  EXPECT_EQ(sequence.length(), 456);
  EXPECT_EQ(sequence.rewind(100), 0);
  EXPECT_EQ(free_units(pool, 0), 8);
  EXPECT_EQ(free_units(pool, 1), 8);
  EXPECT_TRUE(sequence.is_empty());
}

TEST_F(KvPools, what_is_before_a_window_is_not_shared) {
  KvPool pool = make(8, {kAll, kWindow});
  Sequence first(pool, 1000);
  append(first, 500);
  first.settle(500);
  {
    const Sequence second = first.share(480);
    EXPECT_EQ(given_back(second, 1), 2);
    EXPECT_EQ(free_units(pool, 1), 6);
    first.truncate(0);
    EXPECT_EQ(free_units(pool, 1), 6);
    EXPECT_TRUE(second.holds(480));
  }
  EXPECT_EQ(free_units(pool, 1), 8);
}

TEST_F(KvPools, a_window_alone_needs_few_pages) {
  EXPECT_EQ(cache_units(kWindow, {100000, 1, 512}), 2 + 2 + 8);
  EXPECT_EQ(cache_units(kWindow, {100000, 16, 512}), 16 * 4 + 8);
  EXPECT_EQ(cache_units(kWindow, {1000, 16, 512}), 8) << "no more than there are positions";
  EXPECT_EQ(cache_units(kAll, {100000, 16, 512}), 782);
  EXPECT_EQ(cache_units(kState, {100000, 16, 512}), 48);
  KvPool pool = make(12, {kWindow});
  Sequence sequence(pool, 100000);
  for (int64_t length = 0; length < 50000; length += 500) {
    ASSERT_EQ(append(sequence, 500), "") << length;
    sequence.settle(sequence.length() - 500);  // two steps are on their way
  }
}

TEST_F(KvPools, what_a_second_step_would_need_of_a_window_is_not_touched_by_one) {
  const int64_t units = cache_units(kWindow, {100000, 1, 512});
  KvPool pool = make(units, {kWindow});
  Sequence sequence(pool, 100000);
  int32_t last = 0;
  for (int64_t length = 0; length < 50000; length += 500) {
    ASSERT_EQ(append(sequence, 500), "") << length;
    for (const int32_t page : sequence.pages(0)) last = std::max(last, page);
    sequence.settle(sequence.length());
  }
  EXPECT_LT(last, units - kv_pages(512));
}

TEST_F(KvPools, a_state_is_written_once_and_read_by_the_next_step) {
  KvPool pool = make(3, {kState});
  Sequence sequence(pool, 1000);
  EXPECT_EQ(sequence.state(0), kNoPage);
  ASSERT_TRUE(sequence.reserve(7).ok());
  ASSERT_TRUE(sequence.reserve(7).ok()) << "the same once more";
  const int32_t first = sequence.next_state(0);
  EXPECT_EQ(free_units(pool), 2);
  sequence.advance(7);
  EXPECT_EQ(sequence.state(0), first);
  append(sequence, 1);
  const int32_t second = sequence.state(0);
  EXPECT_NE(second, first);
  append(sequence, 1);
  EXPECT_EQ(append(sequence, 1), "kv.no_pages");
  EXPECT_TRUE(sequence.holds(7));
  EXPECT_FALSE(sequence.holds(6));
  sequence.truncate(8);  // a step that was ahead is taken back
  EXPECT_EQ(sequence.state(0), second);
  sequence.settle(8);
  EXPECT_EQ(free_units(pool), 2);
  EXPECT_FALSE(sequence.holds(7));
  EXPECT_EQ(sequence.rewind(7), 0);
  EXPECT_EQ(sequence.state(0), kNoPage);
  EXPECT_EQ(free_units(pool), 3);
}

TEST_F(KvPools, states_are_shared_until_the_last_owner_is_gone) {
  KvPool pool = make(4, {kAll, kState});
  Sequence first(pool, 1000);
  append(first, 130);
  {
    Sequence second = first.share(130);
    EXPECT_EQ(second.state(1), first.state(1));
    EXPECT_EQ(free_units(pool, 1), 3);
    append(second, 1);
    EXPECT_NE(second.state(1), first.state(1));
    first.truncate(0);
    EXPECT_EQ(free_units(pool, 1), 2);
    second.settle(131);
    EXPECT_EQ(free_units(pool, 1), 3);
  }
  EXPECT_EQ(free_units(pool, 1), 4);
  EXPECT_EQ(free_units(pool, 0), 4);
}

}  // namespace
}  // namespace subbyte
