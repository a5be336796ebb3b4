#include "parallel/step_message.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/no_observer.h"

namespace subbyte {
namespace {

constexpr int64_t kUnits = 8;

class NoMemory : public KvMemory {
 public:
  void copy_page(int32_t, int32_t, int64_t) override {}
};

KvPool make_pool() {
  const CacheLayout layout = {
      {{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.layers = 1, .state_size = 4}}};
  std::vector<KvGroup> groups;
  for (const CacheGroup& group : layout.groups) {
    groups.emplace_back(group, kUnits, std::make_unique<NoMemory>());
  }
  return {layout, Element::kF32, {.positions = kUnits * kPagePositions}, std::move(groups)};
}

void expect_same(const Sequence& found, const Sequence& expected) {
  EXPECT_EQ(found.length(), expected.length());
  EXPECT_EQ(found.is_long(), expected.is_long());
  EXPECT_EQ(std::vector<int32_t>(found.pages(0).begin(), found.pages(0).end()),
            std::vector<int32_t>(expected.pages(0).begin(), expected.pages(0).end()));
  EXPECT_EQ(found.state(1), expected.state(1));
  EXPECT_EQ(found.next_state(1), expected.next_state(1));
}

TEST(StepMessage, another_process_sees_the_sequences_of_a_batch) {
  KvPool pool = make_pool();
  Sequence used(pool, 400);
  ASSERT_TRUE(used.reserve(200).ok());
  used.advance(200);
  ASSERT_TRUE(used.reserve(1).ok());
  Sequence fresh(pool, 400);
  ASSERT_TRUE(fresh.reserve(3).ok());
  const std::vector<int32_t> one = {7};
  const std::vector<int32_t> three = {1, 2, 3};
  const Part parts[] = {
      {.sequence = &used, .tokens = one, .num_logits = 0, .choice = TokenChoice{}},
      {.sequence = &fresh, .tokens = three, .num_logits = 2}};
  MessageWriter writer;
  write_batch({.parts = parts}, writer);
  MessageReader reader(1, {writer.bytes().begin(), writer.bytes().end()});
  KvPool other = make_pool();
  {
    const MirroredBatch mirrored(reader, other);
    const Batch batch = mirrored.batch();
    ASSERT_EQ(batch.parts.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(&batch.parts[i].sequence->pool(), &other);
      expect_same(*batch.parts[i].sequence, *parts[i].sequence);
      EXPECT_EQ(std::vector<int32_t>(batch.parts[i].tokens.begin(), batch.parts[i].tokens.end()),
                std::vector<int32_t>(parts[i].tokens.begin(), parts[i].tokens.end()));
      EXPECT_EQ(batch.parts[i].num_head_rows(), parts[i].num_head_rows());
      EXPECT_EQ(batch.parts[i].num_logits, parts[i].num_logits);
      EXPECT_EQ(batch.parts[i].choice.has_value(), parts[i].choice.has_value());
    }
  }
  for (const KvGroup& group : other.groups()) EXPECT_EQ(group.num_free(), kUnits);
}

TEST(StepMessage, another_process_knows_how_tokens_are_chosen) {
  KvPool pool = make_pool();
  Sequence sequence(pool, 400);
  ASSERT_TRUE(sequence.reserve(1).ok());
  const std::vector<int32_t> one = {7};
  const std::vector<int32_t> history = {3, 1, 4, 1, 5};
  const std::vector<LogitBias> biases = {{2, 0.5f}, {9, -1}};
  const TokenChoice choice = {0.7, 40, 0.9, 0.05, 1.0, 0.1, 0.2, 0.3, history, 2, biases};
  const Part parts[] = {{.sequence = &sequence, .tokens = one, .num_logits = 0, .choice = choice}};
  MessageWriter writer;
  write_batch({.parts = parts}, writer);
  MessageReader reader(1, {writer.bytes().begin(), writer.bytes().end()});
  KvPool other = make_pool();
  const MirroredBatch mirrored(reader, other);
  ASSERT_TRUE(mirrored.batch().parts.front().choice);
  const TokenChoice& found = *mirrored.batch().parts.front().choice;
  const auto numbers = [](const TokenChoice& of) {
    return std::vector<double>{of.temperature,
                               of.top_p,
                               of.min_p,
                               of.repetition_penalty,
                               of.frequency_penalty,
                               of.presence_penalty,
                               of.uniform,
                               static_cast<double>(of.top_k),
                               static_cast<double>(of.num_generated)};
  };
  EXPECT_EQ(numbers(found), numbers(choice));
  // The last two tokens are those that a penalty applies to.
  EXPECT_EQ(std::vector<int32_t>(found.history.begin(), found.history.end()),
            (std::vector<int32_t>{1, 5}));
  ASSERT_EQ(found.biases.size(), 2u);
  EXPECT_EQ(found.biases[1].token, 9);
  EXPECT_EQ(found.biases[1].bias, -1.0f);
}

TEST(StepMessage, another_process_runs_a_step_that_is_seen_as_one) {
  KvPool pool = make_pool();
  Sequence sequence(pool, 400);
  ASSERT_TRUE(sequence.reserve(1).ok());
  const std::vector<int32_t> one = {7};
  const Part parts[] = {{.sequence = &sequence, .tokens = one}};
  NoObserver observer;
  for (const bool is_seen : {true, false}) {
    MessageWriter writer;
    write_batch({.parts = parts, .observer = is_seen ? &observer : nullptr}, writer);
    MessageReader reader(1, {writer.bytes().begin(), writer.bytes().end()});
    KvPool other = make_pool();
    const MirroredBatch mirrored(reader, other);
    EXPECT_EQ(mirrored.batch().observer != nullptr, is_seen);
    EXPECT_EQ(mirrored.batch().parts.size(), 1u);
  }
}

TEST(StepMessage, copies_of_pages_come_as_they_are) {
  const PageCopy copies[] = {{0, 1, 2, 3, 100}, {1, 0, 5, 4, 1}};
  MessageWriter writer;
  write_copies(copies, writer);
  MessageReader reader(1, {writer.bytes().begin(), writer.bytes().end()});
  const std::vector<PageCopy> found = read_copies(reader);
  ASSERT_EQ(found.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(found[i].pool, copies[i].pool);
    EXPECT_EQ(found[i].group, copies[i].group);
    EXPECT_EQ(found[i].from, copies[i].from);
    EXPECT_EQ(found[i].to, copies[i].to);
    EXPECT_EQ(found[i].positions, copies[i].positions);
  }
}

}  // namespace
}  // namespace subbyte
