// What a server relies on: long runs beside the CPU, contexts of 20,000 tokens with windows, bits
// that neighbours do not change, pages that run out, come back and are shared.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "engine/generate.h"
#include "model_on_gpu.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "synth/synth.h"

namespace subbyte {
namespace {

using namespace testing;  // of tests/gpu/model_on_gpu.h

constexpr int kCpuThreads = 4;  // several of these programs run side by side

DeviceOptions cpu() {
  return {.device = "cpu", .num_threads = kCpuThreads};
}

/// Appends `tokens` to the context in steps of `step`: the logits of each.
std::vector<float> in_steps(TestContext& context, std::span<const int32_t> tokens, int64_t step) {
  std::vector<float> logits;
  for (int64_t at = 0; at < std::ssize(tokens); at += step) {
    append(logits, context.forward(tokens.subspan(at, std::min(step, std::ssize(tokens) - at))));
  }
  return logits;
}

/// Logits are as near as stated, and so are the best tokens: equal unless the two best of the
/// reference are nearer than the error that is stated.
void expect_near(const LoadedModel& on, std::span<const float> found,
                 std::span<const float> expected, double stated) {
  const int64_t vocab = on.model->config().vocab_size;
  int equal = 0;
  int near = 0;
  for (int64_t at = 0; at < std::ssize(expected); at += vocab) {
    const auto exact = expected.subspan(at, vocab);
    const Best best = best_of(exact);
    const bool is_equal = best_of(found.subspan(at, vocab)).token == best.token;
    const bool is_near = best.gap <= stated_difference(exact, stated);
    EXPECT_TRUE(is_equal || is_near) << "token " << at / vocab << ", gap " << best.gap;
    equal += is_equal;
    near += is_near;
  }
  const double seen = decibels(found, expected);
  std::printf("%.1f dB, %d of %d best tokens equal, %d times two near ones\n", seen, equal,
              static_cast<int>(std::ssize(expected) / vocab), near);
  EXPECT_GT(seen, stated);
}

// --- beside the CPU

/// Two texts as long as the model's context, drawn by the CPU. Both machines are fed with them.
TEST(GpuEngine, two_thousand_tokens_of_the_demo_model_beside_the_cpu) {
  constexpr int64_t kTokens = 1000;
  const LoadedModel reference = load(demo(), cpu());
  const LoadedModel on = load(demo(), gpu());
  for (const uint64_t seed : {1, 2}) {
    std::vector<int32_t> tokens = random_tokens(on, 5, seed);
    TestContext context(*reference.model, *reference.backend, kTokens);
    GenerateOptions options;
    options.sampling = {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed};
    options.max_tokens = kTokens - std::ssize(tokens);
    const auto stats = generate(*reference.model, *reference.backend, context.sequence(),
                                std::vector<int32_t>(tokens), options, [&](int32_t token) {
                                  tokens.push_back(token);
                                  return true;
                                });
    ASSERT_TRUE(stats.ok()) << stats.error().message;
    ASSERT_EQ(std::ssize(tokens), kTokens);
    const auto expected = logits_of(*reference.model, *reference.backend, tokens);
    TestContext on_gpu(*on.model, *on.backend, kTokens, Element::kF16);
    std::vector<float> found = in_steps(on_gpu, std::span(tokens).first(100), 50);
    append(found, in_steps(on_gpu, std::span(tokens).subspan(100), 1));
    expect_near(on, found, expected, kF16Decibels - kEightLayers);
  }
}

/// Layers of the shape of Qwen3 8B with random weights.
class GpuEngineShape : public ::testing::Test {
 protected:
  LoadedModel load_shape(const DeviceOptions& device) {
    if (!std::filesystem::exists(folder_ / "model")) {
      ThreadPool pool(8);
      value_of(synthesize(folder_ / "model", {.shape = "8b", .format = "awq", .layers = 2}, pool));
    }
    return load(folder_ / "model", device);
  }

 private:
  TempDir folder_;
};

constexpr int64_t kPage = kPagePositions;

KvPool make_pool(const LoadedModel& on, int64_t num_pages) {
  return value_of(on.model->make_kv_pool(*on.backend, Element::kF16, {num_pages * kPage, 16}));
}

/// Tokens that several sequences append in one step, with the logits of their last tokens.
std::vector<float> forward(const LoadedModel& on, std::vector<Part> parts) {
  Logits logits;
  value_of(on.model->forward(*on.backend, {parts}, logits));
  return logits.values;
}

/// Eight prompts of unequal lengths in one step, then steps of one token each; and each alone.
void expect_eight_near_single_runs(const LoadedModel& on) {
  constexpr int64_t kMore = 4;
  const int64_t vocab = on.model->config().vocab_size;
  KvPool pool = make_pool(on, 16);
  std::vector<std::vector<int32_t>> texts;
  std::vector<Sequence> sequences;
  std::vector<std::vector<float>> together(8);
  for (const int64_t length : {1, 3, 9, 17, 40, 64, 100, 130}) {
    texts.push_back(random_tokens(on, length + kMore, length));
    sequences.emplace_back(pool, length + kMore);
  }
  for (int64_t step = 0; step <= kMore; ++step) {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto text = std::span<const int32_t>(texts[i]);
      const int64_t length = sequences[i].length();
      parts.push_back(
          {&sequences[i], length == 0 ? text.first(text.size() - kMore) : text.subspan(length, 1)});
    }
    const std::vector<float> logits = forward(on, std::move(parts));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      append(together[i], std::span(logits).subspan(i * vocab, vocab));
    }
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto alone = logits_of(*on.model, *on.backend, texts[i], Element::kF16);
    EXPECT_GT(decibels(together[i], std::span(alone).last(together[i].size())),
              kF16Decibels - kOfDifferences)
        << "sequence of " << texts[i].size() << " tokens";
  }
}

TEST_F(GpuEngineShape, layers_of_8b_beside_the_cpu_and_eight_sequences_in_them) {
  const LoadedModel on = load_shape(gpu());
  {
    const LoadedModel reference = load_shape(cpu());
    const std::vector<int32_t> tokens = random_tokens(on, 64, 3);
    const auto expected = logits_of(*reference.model, *reference.backend, tokens);
    TestContext context(*on.model, *on.backend, 64, Element::kF16);
    std::vector<float> found = context.forward(std::span(tokens).first(40));
    append(found, in_steps(context, std::span(tokens).subspan(40), 1));
    expect_near(on, found, expected, kF16Decibels);
  }
  expect_eight_near_single_runs(on);
}

// --- long contexts

constexpr int64_t kLongContext = 20000;
constexpr int64_t kAfterIt = 80;

/// A small Qwen3 of one layer that sees everything and one with a window.
void write_windows(const std::filesystem::path& directory, int64_t window) {
  ThreadPool pool(2);
  const Status made = synthesize(directory, {.shape = "tiny", .format = "awq"}, pool);
  ASSERT_TRUE(made.ok()) << made.error().message;
  std::ifstream file(directory / "config.json");
  std::string config(std::istreambuf_iterator<char>(file), {});
  const auto put = [&](const std::string& before, const std::string& after) {
    const std::size_t at = config.find(before);
    ASSERT_NE(at, std::string::npos) << before;
    config.replace(at, before.size(), after);
  };
  put("\"sliding_window\": null",
      "\"sliding_window\": " + std::to_string(window) +
          ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]");
  put("\"use_sliding_window\": false", "\"use_sliding_window\": true");
  put("\"max_position_embeddings\": 2048", "\"max_position_embeddings\": 32768");
  std::ofstream(directory / "config.json") << config;
}

/// The logits of the tokens after the long context: first one by one, then in one step.
std::vector<float> after_long_context(const LoadedModel& on, std::span<const int32_t> tokens,
                                      Element type) {
  TestContext context(*on.model, *on.backend, std::ssize(tokens), type);
  constexpr int64_t kChunk = 500;
  Logits none;
  for (int64_t at = 0; at < kLongContext; at += kChunk) {
    const Part part = {&context.sequence(), tokens.subspan(at, kChunk), 0};
    value_of(on.model->forward(*on.backend, {{&part, 1}}, none));
  }
  const auto after = tokens.subspan(kLongContext);
  std::vector<float> logits = in_steps(context, after.first(kAfterIt / 2), 1);
  append(logits, context.forward(after.subspan(kAfterIt / 2)));
  return logits;
}

TEST(GpuEngine, windows_and_full_attention_after_20000_tokens_beside_the_cpu) {
  TempDir folder;
  write_windows(folder / "model", 1000);
  write_windows(folder / "narrower", 900);
  const LoadedModel on = load(folder / "model", gpu());
  const LoadedModel reference = load(folder / "model", cpu());
  std::vector<int32_t> tokens = random_tokens(on, kLongContext + kAfterIt, 4);
  const auto expected = after_long_context(reference, tokens, Element::kF32);
  expect_near(on, after_long_context(on, tokens, Element::kF16), expected, kF16Decibels);
  // What the bound has to see: another window, and other tokens far outside of it.
  const LoadedModel narrower = load(folder / "narrower", gpu());
  EXPECT_LT(decibels(after_long_context(narrower, tokens, Element::kF16), expected), kF16Decibels);
  std::ranges::reverse(std::span(tokens).first(kLongContext / 2));
  EXPECT_LT(decibels(after_long_context(on, tokens, Element::kF16), expected), kF16Decibels);
}

// --- neighbours

/// A place in a batch whose every step has one token of each: the generation that is watched, or
/// a neighbour of some random tokens.
struct Slot {
  Sequence sequence;
  std::vector<int32_t> tokens;  // to be fed
  std::vector<float> logits;    // of all fed so far, where it is watched
  std::size_t length = 0;       // tokens that it feeds
  bool is_watched = false;
};

/// Generations of one prompt in a batch of `num_slots`, in which all others begin and end at
/// random.
class Neighbours {
 public:
  Neighbours(const LoadedModel& on, int num_slots)
      : on_(on),
        vocab_(on.model->config().vocab_size),
        prompt_(random_tokens(on, 7, 8)),
        pool_(make_pool(on, num_slots)) {
    for (int i = 0; i < num_slots; ++i) slots_.push_back(next_slot());
  }

  /// Steps until so many watched generations have ended; how many of them had other bits than the
  /// first.
  int run(int generations) {
    int different = 0;
    for (int ended = 0; ended < generations;) {
      step();
      for (Slot& slot : slots_) {
        if (slot.sequence.length() < std::ssize(slot.tokens) || slot.tokens.size() < slot.length) {
          continue;
        }
        if (slot.is_watched) {
          if (first_.empty()) first_ = slot.logits;
          different += !has_bits(slot.logits, first_);
          ++ended;
        }
        slot = next_slot();
      }
    }
    return different;
  }

 private:
  static constexpr std::size_t kWatchedLength = 24;

  static bool has_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  Slot next_slot() {
    Slot slot = {Sequence(pool_, kPage), prompt_, {}, kWatchedLength, true};
    if (random_.below(2) != 0) return slot;
    slot.length = 1 + random_.below(kPage);
    slot.tokens = random_tokens(on_, static_cast<int64_t>(slot.length), random_.next());
    slot.is_watched = false;
    return slot;
  }

  void step() {
    std::vector<Part> parts;
    for (Slot& slot : slots_) {
      parts.push_back({&slot.sequence, std::span(slot.tokens).subspan(slot.sequence.length(), 1)});
    }
    const std::vector<float> logits = forward(on_, std::move(parts));
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (!slot.is_watched) continue;
      const auto row = std::span(logits).subspan(i * vocab_, vocab_);
      append(slot.logits, row);
      const bool wants_more = slot.tokens.size() < slot.length;
      if (wants_more && slot.sequence.length() == std::ssize(slot.tokens)) {
        slot.tokens.push_back(best_of(row).token);
      }
    }
  }

  const LoadedModel& on_;
  int64_t vocab_;
  std::vector<int32_t> prompt_;
  Random random_{12};
  KvPool pool_;
  std::vector<Slot> slots_;
  std::vector<float> first_;
};

/// All steps have as many tokens, because the products choose their kernels by that: a generation
/// in steps of other sizes may have other bits.
TEST(GpuEngine, a_thousand_generations_have_the_same_bits_whatever_their_neighbours) {
  const LoadedModel on = load(demo(), gpu());
  EXPECT_EQ(Neighbours(on, 16).run(900), 0);
  EXPECT_EQ(Neighbours(on, 3).run(100), 0);
}

TEST(GpuEngine, a_few_generations_have_the_same_bits_whatever_their_neighbours) {
  const LoadedModel on = load(golden("qwen3-awq"), gpu());
  EXPECT_EQ(Neighbours(on, 5).run(4), 0);
}

// --- pages

/// Sequences in a pool, each fed with random tokens of its own that go on where it ends.
class Conversations {
 public:
  Conversations(const LoadedModel& on, int64_t num_pages, std::size_t count)
      : on_(on), pool_(make_pool(on, num_pages)) {
    for (std::size_t i = 0; i < count; ++i) {
      texts_.push_back(random_tokens(on, 8 * kPage, 20 + i));
      sequences_.emplace_back(pool_, 8 * kPage);
    }
  }

  /// Appends counts[i] tokens to sequence i, all in one step, unless there are none.
  Status step(const std::vector<int64_t>& counts) {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0) continue;
      const auto text = std::span<const int32_t>(texts_[i]);
      parts.push_back({&sequences_[i], text.subspan(sequences_[i].length(), counts[i])});
    }
    return on_.model->forward(*on_.backend, {parts}, logits_);
  }

  std::vector<float> logits_of_step(const std::vector<int64_t>& counts) {
    value_of(step(counts));
    return logits_.values;
  }

  Sequence& operator[](std::size_t i) { return sequences_[i]; }
  int64_t free_pages() const { return pool_.groups()[0].num_free(); }

 private:
  const LoadedModel& on_;
  KvPool pool_;
  std::vector<std::vector<int32_t>> texts_;
  std::vector<Sequence> sequences_;
  Logits logits_;
};

/// The same steps in a pool that is large enough give the same bits.
TEST(GpuEngine, goes_on_after_pages_ran_out_and_came_back) {
  const LoadedModel on = load(golden("qwen3-awq"), gpu());
  Conversations small(on, 6, 3);
  Conversations large(on, 20, 3);
  for (Conversations* all : {&small, &large}) {
    ASSERT_TRUE(all->step({kPage - 1, kPage + 70, 0}).ok());
    ASSERT_TRUE(all->step({kPage - 1, 1, 0}).ok());
  }
  EXPECT_EQ(small.free_pages(), 2);
  // The first needs one page, the third three: nothing is taken.
  const Status full = small.step({3, 1, 2 * kPage + 1});
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, "kv.no_pages");
  EXPECT_EQ(small.free_pages(), 2);
  EXPECT_EQ(small[0].length(), 2 * kPage - 2);
  EXPECT_EQ(small[2].length(), 0);
  // The others go on, and the third as soon as the second has gone.
  EXPECT_EQ(small.logits_of_step({3, 1, 0}), large.logits_of_step({3, 1, 0}));
  EXPECT_EQ(small.step({0, 0, 2 * kPage + 1}).error().code, "kv.no_pages");
  for (Conversations* all : {&small, &large}) (*all)[1].truncate(0);
  EXPECT_EQ(small.free_pages(), 3);
  EXPECT_EQ(small.logits_of_step({1, 0, 2 * kPage + 1}),
            large.logits_of_step({1, 0, 2 * kPage + 1}));
  EXPECT_EQ(small.free_pages(), 0);
  EXPECT_EQ(small.logits_of_step({1, 0, 1}), large.logits_of_step({1, 0, 1}));
}

/// A prefix of one and a half pages, and what two sequences append to it.
struct SharedPrefix {
  explicit SharedPrefix(const LoadedModel& on)
      : prefix(random_tokens(on, kPage + kPage / 2 + 20, 31)),
        parents(random_tokens(on, 30, 32)),
        childs(random_tokens(on, 30, 33)) {}

  static constexpr int64_t kShared = kPage + kPage / 2;
  std::vector<int32_t> prefix;  // 20 tokens longer than what is shared
  std::vector<int32_t> parents;
  std::vector<int32_t> childs;
};

/// The logits of `tokens` after the first `length` positions of the prefix, without sharing.
std::vector<float> alone(const LoadedModel& on, const SharedPrefix& texts, int64_t length,
                         std::span<const int32_t> tokens) {
  KvPool pool = make_pool(on, 3);
  Sequence sequence(pool, 3 * kPage);
  forward(on, {{&sequence, texts.prefix}});
  sequence.truncate(length);
  return forward(on, {{&sequence, tokens}});
}

TEST(GpuEngine, a_shared_prefix_is_copied_by_who_has_not_written_after_it) {
  const LoadedModel on = load(golden("qwen3-awq"), gpu());
  const SharedPrefix texts(on);
  const auto whole = std::ssize(texts.prefix);
  for (const bool child_is_first : {true, false}) {
    KvPool pool = make_pool(on, 3);
    Sequence parent(pool, 3 * kPage);
    forward(on, {{&parent, texts.prefix}});
    Sequence child = parent.share(texts.kShared);
    EXPECT_EQ(pool.groups()[0].num_free(), 1);
    for (const bool is_child : {child_is_first, !child_is_first}) {
      const auto& tokens = is_child ? texts.childs : texts.parents;
      EXPECT_EQ(forward(on, {{is_child ? &child : &parent, tokens}}),
                alone(on, texts, is_child ? texts.kShared : whole, tokens));
      EXPECT_EQ(pool.groups()[0].num_free(), is_child || child_is_first ? 0 : 1);
    }
  }
}

TEST(GpuEngine, a_copy_of_a_shared_page_needs_a_page) {
  const LoadedModel on = load(golden("qwen3-awq"), gpu());
  const SharedPrefix texts(on);
  KvPool pool = make_pool(on, 2);
  Sequence parent(pool, 3 * kPage);
  forward(on, {{&parent, texts.prefix}});
  {
    Sequence child = parent.share(texts.kShared);
    const Part part = {&child, texts.childs};
    Logits none;
    EXPECT_EQ(on.model->forward(*on.backend, {{&part, 1}}, none).error().code, "kv.no_pages");
    EXPECT_EQ(child.length(), texts.kShared);
  }
  EXPECT_EQ(forward(on, {{&parent, texts.parents}}),
            alone(on, texts, std::ssize(texts.prefix), texts.parents));
}

}  // namespace
}  // namespace subbyte
