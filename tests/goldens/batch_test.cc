// Several sequences in one step against single runs: unequal lengths, chunks of prompts beside
// single tokens, pages scattered over the pool, prefixes shared and copied on write.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/random.h"
#include "support/goldens.h"
#include "support/test_context.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

constexpr int64_t kPoolPages = 40;
constexpr int64_t kLongest = 400;  // positions of a sequence

/// A conversation: what it is to hold, and the logits of each token so far.
struct Conversation {
  Sequence sequence;
  std::vector<int32_t> tokens;
  std::vector<float> logits;

  int64_t left() const { return std::ssize(tokens) - sequence.length(); }
};

class Batches : public ::testing::TestWithParam<const char*> {
 protected:
  void start(bool batch_invariant, Element type = Element::kF32) {
    const char* isa = std::getenv("SUBBYTE_ISA");
    auto backend = make_backend({.device = "cpu",
                                 .num_threads = 2,
                                 .isa = isa == nullptr ? "" : isa,
                                 .batch_invariant = batch_invariant});
    ASSERT_TRUE(backend.ok());
    backend_ = std::move(backend).value();
    const auto directory = testing::golden_folder(GetParam());
    auto model = load_model(directory, *backend_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
    type_ = type;
    auto pool = model_->make_kv_pool(*backend_, type, {kPoolPages * kPagePositions, 16});
    ASSERT_TRUE(pool.ok());
    pool_.emplace(std::move(pool).value());
  }

  std::vector<int32_t> random_tokens(int64_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(random_.below(model_->config().vocab_size));
    }
    return tokens;
  }

  Conversation conversation(int64_t length) {
    return {Sequence(*pool_, kLongest), random_tokens(length), {}};
  }

  /// One step with the next `counts[i]` tokens of each conversation, of those that have some left.
  void step(std::vector<Conversation>& all, const std::vector<int64_t>& counts) {
    std::vector<Part> parts;
    std::vector<Conversation*> owners;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const int64_t count = std::min(counts[i], all[i].left());
      if (count == 0) continue;
      parts.push_back({&all[i].sequence,
                       std::span(all[i].tokens).subspan(all[i].sequence.length(), count), count});
      owners.push_back(&all[i]);
    }
    if (parts.empty()) return;
    Logits logits;
    const Status status = model_->forward(*backend_, {parts}, logits);
    ASSERT_TRUE(status.ok()) << status.error().message;
    int64_t row = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (int64_t t = 0; t < parts[i].num_logits; ++t, ++row) {
        const auto one = logits.row(row);
        owners[i]->logits.insert(owners[i]->logits.end(), one.begin(), one.end());
      }
    }
  }

  /// Steps of random chunks, some of them of one token, until none has tokens left.
  void run(std::vector<Conversation>& all) {
    const auto left = [](const Conversation& one) { return one.left() > 0; };
    while (std::ranges::any_of(all, left)) {
      std::vector<int64_t> counts;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const uint64_t kind = random_.below(4);
        counts.push_back(kind == 0 ? 0 : kind == 1 ? 1 : static_cast<int64_t>(random_.below(70)));
      }
      step(all, counts);
      if (HasFatalFailure()) return;
    }
  }

  /// Takes the last tokens of a conversation back, where its sequence still holds what is before.
  void take_back(Conversation& one, int64_t count) {
    const int64_t length = one.sequence.length() - count;
    if (length < 0 || !one.sequence.holds(length)) return;
    one.sequence.truncate(length);
    one.tokens.resize(length);
    one.logits.resize(length * model_->config().vocab_size);
  }

  /// Sixteen conversations of unequal lengths, some of which begin with what others have, and three
  /// with all of it, which layers with a window have, too; others take their last tokens back.
  std::vector<Conversation> run_sixteen() {
    std::vector<Conversation> all;
    for (const int64_t length : {1, 5, 17, 130, 256, 300, 3, 64, 129, 190}) {
      all.push_back(conversation(length));
    }
    run(all);
    for (const auto& [from, length] : {std::pair{5, 128}, std::pair{5, 201}, std::pair{5, 300},
                                       std::pair{4, 256}, std::pair{9, 100}, std::pair{2, 17}}) {
      Conversation& parent = all[from];
      Conversation child = {parent.sequence.share(length), {}, {}};
      // Of a prefix whose window is gone nothing is shared.
      const int64_t shared = child.sequence.length();
      EXPECT_EQ(shared, parent.sequence.holds(length) ? length : 0);
      if (length == parent.sequence.length()) {
        EXPECT_EQ(shared, length);
      }
      child.tokens.assign(parent.tokens.begin(), parent.tokens.begin() + length);
      child.logits.assign(parent.logits.begin(),
                          parent.logits.begin() + shared * model_->config().vocab_size);
      all.push_back(std::move(child));
    }
    for (const std::size_t i : {3, 6, 8, 12}) take_back(all[i], 2);
    // All go on: those that share a page, and the one that they have it of.
    for (Conversation& one : all) {
      const std::vector<int32_t> more = random_tokens(60);
      one.tokens.insert(one.tokens.end(), more.begin(), more.end());
    }
    run(all);
    return all;
  }

  std::vector<float> alone(const std::vector<int32_t>& tokens) {
    return ::subbyte::testing::logits_of(*model_, *backend_, tokens, type_);
  }

  Random random_{11};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::optional<KvPool> pool_;
  Element type_ = Element::kF32;
};

/// Decibels of the median token.
double decibels(const std::vector<float>& found, const std::vector<float>& expected,
                std::size_t vocab) {
  std::vector<double> tokens;
  for (std::size_t first = 0; first < found.size(); first += vocab) {
    double signal = 0;
    double noise = 1e-30;
    for (std::size_t i = first; i < first + vocab; ++i) {
      signal += double(expected[i]) * expected[i];
      noise += (double(found[i]) - expected[i]) * (double(found[i]) - expected[i]);
    }
    tokens.push_back(10 * std::log10(signal / noise));
  }
  std::ranges::sort(tokens);
  return tokens[tokens.size() / 2];
}

TEST_P(Batches, sixteen_sequences_give_the_bits_of_single_runs_in_the_invariant_mode) {
  for (const Element type : {Element::kF32, Element::kF16, Element::kBF16, Element::kE4M3}) {
    start(true, type);
    const std::vector<Conversation> all = run_sixteen();
    for (const Conversation& one : all) {
      const std::vector<float> expected = alone(one.tokens);
      ASSERT_EQ(one.logits.size(), expected.size());
      EXPECT_EQ(std::memcmp(one.logits.data(), expected.data(), expected.size() * sizeof(float)), 0)
          << one.tokens.size() << " tokens, cache type " << static_cast<int>(type);
    }
  }
}

TEST_P(Batches, sixteen_sequences_are_near_single_runs) {
  start(false);
  for (const Conversation& one : run_sixteen()) {
    const std::vector<float> expected = alone(one.tokens);
    ASSERT_EQ(one.logits.size(), expected.size());
    // Both are within 80 dB of the exact logits (precision_test); of differences alone three more.
    EXPECT_GT(decibels(one.logits, expected, model_->config().vocab_size), 77);
  }
}

TEST_P(Batches, neighbours_that_come_and_go_do_not_matter) {
  start(true);
  const std::vector<int32_t> tokens = random_tokens(90);
  const std::vector<float> expected = alone(tokens);
  for (int round = 0; round < 6; ++round) {
    std::vector<Conversation> all;
    for (uint64_t i = 0; i < random_.below(4); ++i) {
      all.push_back(conversation(static_cast<int64_t>(1 + random_.below(200))));
    }
    all.push_back({Sequence(*pool_, kLongest), tokens, {}});
    run(all);
    ASSERT_EQ(all.back().logits.size(), expected.size());
    EXPECT_EQ(
        std::memcmp(all.back().logits.data(), expected.data(), expected.size() * sizeof(float)), 0);
  }
  for (const KvGroup& group : pool_->groups()) EXPECT_EQ(group.num_held(), 0);
}

TEST_P(Batches, one_part_gives_the_bits_of_a_single_run) {
  start(false);
  std::vector<Conversation> all;
  all.push_back(conversation(150));
  step(all, {150});
  const std::vector<float> expected = alone(all[0].tokens);
  EXPECT_EQ(all[0].logits, expected);
}

TEST_P(Batches, gives_the_logits_that_are_asked_for) {
  start(true);
  std::vector<Conversation> all;
  for (const int64_t length : {7, 1, 30}) all.push_back(conversation(length));
  std::vector<Part> parts;
  const int64_t wanted[] = {2, 0, 30};
  for (std::size_t i = 0; i < 3; ++i) {
    parts.push_back({&all[i].sequence, all[i].tokens, wanted[i]});
  }
  Logits logits;
  ASSERT_TRUE(model_->forward(*backend_, {parts}, logits).ok());
  const int64_t vocab = model_->config().vocab_size;
  EXPECT_EQ(logits.vocab_size, vocab);
  ASSERT_EQ(std::ssize(logits.values), 32 * vocab);
  std::vector<float> expected = alone(all[0].tokens);
  expected.erase(expected.begin(), expected.end() - 2 * vocab);
  const std::vector<float> third = alone(all[2].tokens);
  expected.insert(expected.end(), third.begin(), third.end());
  EXPECT_EQ(logits.values, expected);
  const Part none = {&all[1].sequence, all[1].tokens, 0};
  ASSERT_TRUE(model_->forward(*backend_, {{&none, 1}}, logits).ok());
  EXPECT_TRUE(logits.values.empty());
}

TEST_P(Batches, chooses_tokens_beside_logits) {
  start(true);
  std::vector<Conversation> all;
  for (const int64_t length : {7, 1, 30, 4}) all.push_back(conversation(length));
  const std::vector<int32_t> history = {1, 2, 3};
  const TokenChoice drawn = {.temperature = 0.9,
                             .top_k = 50,
                             .repetition_penalty = 1.3,
                             .uniform = 0.7,
                             .history = history};
  const std::vector<Part> parts = {{&all[0].sequence, all[0].tokens, 0, drawn},
                                   {&all[1].sequence, all[1].tokens, 0},
                                   {&all[2].sequence, all[2].tokens, 3, TokenChoice{}},
                                   {&all[3].sequence, all[3].tokens, 0, drawn}};
  Logits logits;
  ASSERT_TRUE(model_->forward(*backend_, {parts}, logits).ok());
  const int64_t vocab = model_->config().vocab_size;
  std::vector<float> expected = alone(all[2].tokens);
  expected.erase(expected.begin(), expected.end() - 3 * vocab);
  EXPECT_EQ(logits.values, expected);
  TokenChooser chooser;
  std::vector<int32_t> tokens;
  for (const int i : {0, 2, 3}) {
    const std::vector<float> own = alone(all[i].tokens);
    tokens.push_back(*chooser.choose(std::span(own).last(vocab), *parts[i].choice));
  }
  EXPECT_EQ(logits.tokens, tokens);
}

TEST_P(Batches, refuses_batches_that_make_no_sense_and_changes_nothing) {
  start(false);
  Conversation one = conversation(5);
  Conversation other = conversation(5);
  Logits logits;
  const auto code = [&](const std::vector<Part>& parts) {
    const Status status = model_->forward(*backend_, {parts}, logits);
    return status.ok() ? "" : std::string(status.error().code);
  };
  const Part good = {&one.sequence, one.tokens, 1};
  EXPECT_EQ(code({}), "batch.parts");
  EXPECT_EQ(code({{nullptr, one.tokens, 1}}), "batch.parts");
  EXPECT_EQ(code({{&one.sequence, {}, 0}}), "batch.parts");
  EXPECT_EQ(code({{&one.sequence, one.tokens, 6}}), "batch.parts");
  EXPECT_EQ(code({{&one.sequence, one.tokens, -1}}), "batch.parts");
  EXPECT_EQ(code({good, good}), "batch.parts");
  auto pool = model_->make_kv_pool(*backend_, Element::kF32, {128});
  ASSERT_TRUE(pool.ok());
  Sequence foreign(*pool, 128);
  EXPECT_EQ(code({good, {&foreign, one.tokens, 1}}), "batch.parts");
  const std::vector<int32_t> unknown = {1, 1 << 30};
  EXPECT_EQ(code({good, {&other.sequence, unknown, 1}}), "model.token_range");
  const std::vector<int32_t> many(kLongest + 1, 1);
  EXPECT_EQ(code({good, {&other.sequence, many, 1}}), "model.context_full");
  auto narrow =
      backend_->make_kv_pool({{{.layers = 1, .kv_heads = 1, .head_dim = 8}}}, Element::kF32, {128});
  ASSERT_TRUE(narrow.ok());
  Sequence of_another_model(*narrow, 128);
  EXPECT_EQ(code({{&of_another_model, one.tokens, 1}}), "batch.parts");
  // The second finds no page: the first gives back what it had taken.
  Sequence first(*pool, 200);
  EXPECT_EQ(code({{&first, one.tokens, 1}, {&foreign, one.tokens, 1}}), "kv.no_pages");
  for (const KvGroup& group : pool->groups()) EXPECT_EQ(group.num_held(), 0);
  EXPECT_EQ(one.sequence.length(), 0);
  EXPECT_EQ(other.sequence.length(), 0);
  EXPECT_EQ(code({good, {&other.sequence, other.tokens, 5}}), "");
}

INSTANTIATE_TEST_SUITE_P(Goldens, Batches, ::testing::ValuesIn(testing::goldens(testing::kBatches)),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
