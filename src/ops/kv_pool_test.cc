#include "ops/kv_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  KvPool make(int64_t pages) {
    auto memory = std::make_unique<CountingMemory>();
    memory_ = memory.get();
    return {{1, 1, 1, KvType::kF32}, pages, std::move(memory)};
  }

  /// Appends positions as a step does.
  static std::string append(Sequence& sequence, int64_t tokens) {
    const Status status = sequence.reserve(tokens);
    if (!status.ok()) return std::string(status.error().code);
    sequence.advance(tokens);
    return "";
  }

  static std::vector<int32_t> pages(const Sequence& sequence) {
    return {sequence.pages().begin(), sequence.pages().end()};
  }

  CountingMemory* memory_ = nullptr;
};

TEST_F(KvPools, sizes_are_those_of_the_shape) {
  const KvShape shape = {36, 8, 128, KvType::kF32};
  EXPECT_EQ(shape.bytes_per_position(), 2 * 36 * 8 * 128 * 4);
  EXPECT_EQ((KvShape{36, 8, 128, KvType::kBF16}).bytes_per_position(), 2 * 36 * 8 * 128 * 2);
  const KvShape e4m3 = {36, 8, 128, KvType::kE4M3};
  EXPECT_EQ(e4m3.bytes_per_position(), 2 * 36 * 8 * (128 + 1));
  EXPECT_EQ(e4m3.run_bytes(), e4m3.elements_bytes() + kKvPagePositions);
  EXPECT_EQ(shape.page_bytes(), kKvPagePositions * shape.bytes_per_position());
  EXPECT_EQ(kv_pages(0), 0);
  EXPECT_EQ(kv_pages(1), 1);
  EXPECT_EQ(kv_pages(kKvPagePositions), 1);
  EXPECT_EQ(kv_pages(kKvPagePositions + 1), 2);
}

TEST_F(KvPools, a_sequence_takes_pages_as_it_grows_and_gives_them_back) {
  KvPool pool = make(4);
  {
    Sequence sequence(pool, 1000);
    EXPECT_EQ(append(sequence, 1), "");
    EXPECT_EQ(pool.free_pages(), 3);
    EXPECT_EQ(append(sequence, 127), "");
    EXPECT_EQ(pool.free_pages(), 3);
    EXPECT_EQ(append(sequence, 130), "");
    EXPECT_EQ(sequence.length(), 258);
    EXPECT_EQ(pool.free_pages(), 1);
    sequence.truncate(129);
    EXPECT_EQ(pool.free_pages(), 2);
    sequence.truncate(500);
    EXPECT_EQ(sequence.length(), 129);
    sequence.truncate(128);
    EXPECT_EQ(pool.free_pages(), 3);
  }
  EXPECT_EQ(pool.free_pages(), 4);
}

TEST_F(KvPools, refuses_what_does_not_fit) {
  KvPool pool = make(2);
  Sequence sequence(pool, 300);
  EXPECT_EQ(append(sequence, 301), "model.context_full");
  EXPECT_EQ(append(sequence, 257), "kv.no_pages");
  EXPECT_EQ(sequence.length(), 0);
  EXPECT_EQ(pool.free_pages(), 2);  // what cannot go on takes nothing
  EXPECT_EQ(append(sequence, 256), "");
  EXPECT_EQ(append(sequence, 1), "kv.no_pages");
  EXPECT_EQ(append(sequence, 0), "");
  EXPECT_EQ(sequence.length(), 256);
  Sequence other(pool, 300);
  EXPECT_EQ(append(other, 1), "kv.no_pages");
  sequence.truncate(100);
  EXPECT_EQ(append(other, 1), "");
}

TEST_F(KvPools, a_shared_page_is_copied_by_the_first_that_writes_to_it) {
  KvPool pool = make(8);
  Sequence first(pool, 1000);
  append(first, 300);
  Sequence second = first.share(300);
  EXPECT_EQ(pages(second), pages(first));
  EXPECT_EQ(pool.free_pages(), 5);
  const std::vector<int32_t> before = pages(first);
  EXPECT_EQ(append(second, 1), "");
  EXPECT_EQ(memory_->copies,
            (std::vector<CountingMemory::Copy>{{before[2], second.pages()[2], 300 - 256}}));
  EXPECT_EQ(pages(first), before);
  EXPECT_NE(second.pages()[2], before[2]);
  EXPECT_EQ(second.pages()[0], before[0]);
  // The page is first's alone now, and second has its own.
  EXPECT_EQ(append(first, 1), "");
  EXPECT_EQ(append(second, 1), "");
  EXPECT_EQ(memory_->copies.size(), 1u);
  EXPECT_EQ(pages(first), before);
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
  EXPECT_EQ(pool.free_pages(), 8 - 4 - 3);
  std::set<int32_t> all;
  for (const Sequence& other : others) all.insert(other.pages()[2]);
  EXPECT_EQ(all.size(), 3u);
}

TEST_F(KvPools, shared_pages_are_free_when_the_last_owner_is_gone) {
  KvPool pool = make(4);
  std::optional<Sequence> first(std::in_place, pool, 1000);
  append(*first, 200);
  std::optional<Sequence> second(first->share(150));
  first.reset();
  EXPECT_EQ(pool.free_pages(), 2);
  EXPECT_EQ(append(*second, 1), "");  // nobody else has it
  EXPECT_TRUE(memory_->copies.empty());
  second.reset();
  EXPECT_EQ(pool.free_pages(), 4);
}

TEST_F(KvPools, no_page_for_a_copy_changes_nothing) {
  KvPool pool = make(1);
  Sequence first(pool, 1000);
  append(first, 10);
  Sequence second = first.share(10);
  EXPECT_EQ(append(second, 1), "kv.no_pages");
  EXPECT_EQ(second.length(), 10);
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
  EXPECT_EQ(pool.free_pages(), 2);
}

}  // namespace
}  // namespace subbyte
