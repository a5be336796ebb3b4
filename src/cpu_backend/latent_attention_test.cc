// Latent attention, absorbed and expanded, beside keys and values of every head in double
// precision.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "cpu_backend/cpu_backend.h"
#include "cpu_backend/latent_expansion.h"
#include "support/attributes_model.h"
#include "support/isa_of.h"
#include "support/isa_test.h"
#include "support/latent_model.h"

namespace subbyte {
namespace {

std::vector<int32_t> some_tokens(int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(i * i % 47));
  return tokens;
}

// The last ones have no room for queries of heads.
constexpr LatentSizes kAllSizes[] = {
    testing::kLatentSizes,
    {.heads = 20, .rank = 64, .turning = 8, .nope = 24, .value = 40},
    {.heads = 3, .rank = 40, .turning = 8, .nope = 16, .value = 12},
    {.heads = 1, .rank = 24, .turning = 16, .nope = 32, .value = 40}};

TEST(LatentAttention, gives_what_keys_and_values_of_every_head_give) {
  const std::vector<int32_t> tokens = some_tokens(150);
  for (const LatentSizes& sizes : kAllSizes) {
    const testing::LatentModel model(sizes);
    const std::vector<float> expected = model.expected(tokens);
    for (const std::string& isa : testing::isas_of_this_machine()) {
      const auto backend = std::move(make_cpu_backend({.num_threads = 2, .isa = isa})).value();
      for (const int64_t piece : {1, 5, 60, 150}) {
        const auto logits = testing::logits_with(model, *backend, Element::kF32, tokens, piece);
        ASSERT_TRUE(logits.ok()) << logits.error().message;
        // As for other attributes, and 1e-4 of the largest.
        EXPECT_GT(testing::noise_decibels(*logits, expected), isa == "amx" ? 86 : 95)
            << isa << ", heads " << sizes.heads << ", pieces of " << piece;
      }
    }
  }
}

TEST(LatentAttention, gives_the_same_of_absorbed_and_of_expanded_latents) {
  const std::vector<int32_t> tokens = some_tokens(700);  // of two pages
  for (const LatentSizes& sizes : kAllSizes) {
    EXPECT_EQ(sizes.is_expanded(300, 0), sizes.nope <= sizes.rank);
    const testing::LatentModel model(sizes);
    for (const std::string& isa : testing::isas_of_this_machine()) {
      const auto expanding = std::move(make_cpu_backend({.num_threads = 2, .isa = isa})).value();
      // Here what is done with a token may not depend on others: nothing is expanded.
      const auto absorbing =
          std::move(make_cpu_backend({.num_threads = 2, .isa = isa, .batch_invariant = true}))
              .value();
      for (const int64_t piece : {300, 700}) {
        const auto logits =
            testing::logits_with(model, *expanding, Element::kF16, tokens, piece).value();
        const auto absorbed =
            testing::logits_with(model, *absorbing, Element::kF16, tokens, piece).value();
        double largest = 0;
        double difference = 0;
        for (std::size_t i = 0; i < logits.size(); ++i) {
          largest = std::max<double>(largest, std::abs(absorbed[i]));
          difference = std::max<double>(difference, std::abs(logits[i] - absorbed[i]));
        }
        EXPECT_LT(difference, 1e-4 * largest) << isa << ", heads " << sizes.heads;
      }
    }
  }
}

/// Rows of which latents are expanded: the queries of heads begin with zeros.
class ExpandedRows : public StepObserver {
 public:
  explicit ExpandedRows(const LatentSizes& sizes) : sizes_(sizes) {}

  void observe(const Op& op, ValueId, std::span<const float> numbers) override {
    const auto* const heads = std::get_if<HeadsLinearOp>(&op.what);
    if (heads == nullptr || heads->rest == kNoValue) return;
    const int64_t dim = sizes_.rank + sizes_.turning;
    const int64_t cols = sizes_.heads * dim + heads->rest_cols;
    rows.clear();
    for (int64_t i = 0; i < std::ssize(numbers) / cols; ++i) {
      const float* const row = numbers.data() + i * cols;
      rows.push_back(std::all_of(row, row + sizes_.rank - sizes_.nope,
                                 [](float number) { return number == 0; }));
    }
  }

  std::vector<bool> rows;

 private:
  LatentSizes sizes_;
};

/// Floats of some heads of so many positions, of whole pages, with what they are made of.
int64_t room_of(const LatentSizes& sizes, int64_t heads, int64_t positions) {
  return positions * (sizes.rank + sizes.turning) +
         heads * (sizes.rank * sizes.nope + 2 * sizes.head_dim() * ((positions + 127) / 128 * 128));
}

TEST(LatentAttention, expands_as_many_heads_at_a_time_as_fit) {
  const std::vector<int32_t> tokens = some_tokens(150);
  for (const LatentSizes& sizes : kAllSizes) {
    if (sizes.heads <= 3) continue;
    std::vector<float> sinks;
    for (int64_t i = 0; i < sizes.heads; ++i) sinks.push_back(static_cast<float>(i % 5) - 1);
    const testing::LatentModel model(sizes, {Format::kF32}, sinks);
    const std::vector<float> expected = model.expected(tokens);
    for (const std::string& isa : testing::isas_of_this_machine()) {
      for (const int64_t heads : {1, 3}) {
        const auto backend =
            std::move(
                make_cpu_backend(
                    {.num_threads = 2, .isa = isa, .expansion_floats = room_of(sizes, heads, 150)}))
                .value();
        const auto logits = testing::logits_with(model, *backend, Element::kF32, tokens, 150);
        ASSERT_TRUE(logits.ok()) << logits.error().message;
        EXPECT_GT(testing::noise_decibels(*logits, expected), isa == "amx" ? 86 : 95)
            << isa << ", " << heads << " of " << sizes.heads << " heads at a time";
      }
    }
  }
}

TEST(LatentAttention, expands_nothing_where_no_head_fits) {
  const LatentSizes sizes = testing::kLatentSizes;
  const testing::LatentModel model(sizes);
  const std::vector<int32_t> tokens = some_tokens(150);
  const std::vector<float> expected = model.expected(tokens);
  for (const bool fits : {true, false}) {
    const auto backend =
        std::move(make_cpu_backend({.num_threads = 2,
                                    .expansion_floats = room_of(sizes, 1, 150) - (fits ? 0 : 1)}))
            .value();
    const auto step = backend->compile(model.plan(*backend).value()).value();
    KvPool pool = backend->make_kv_pool(step->plan().cache, Element::kF32, {512}).value();
    Sequence sequence(pool, 512);
    ASSERT_TRUE(sequence.reserve(150).ok());
    const Part part = {&sequence, tokens, 150};
    ExpandedRows seen(sizes);
    Batch batch = {{&part, 1}};
    batch.observer = &seen;
    backend->submit(*step, batch);
    Logits logits;
    ASSERT_TRUE(backend->wait(logits).ok());
    EXPECT_EQ(seen.rows, std::vector<bool>(150, fits));
    EXPECT_GT(testing::noise_decibels(logits.values, expected), 86);
  }
}

TEST(LatentAttention, expands_some_parts_of_a_batch) {
  const testing::LatentModel model;
  const auto backend = std::move(make_cpu_backend({.num_threads = 2})).value();
  const auto step = backend->compile(model.plan(*backend).value()).value();
  const std::vector<int32_t> tokens = some_tokens(120);
  KvPool pool = backend->make_kv_pool(step->plan().cache, Element::kF32, {8192}).value();
  ExpandedRows seen(testing::kLatentSizes);
  const auto run = [&](std::vector<Sequence>& sequences, const std::vector<int64_t>& counts) {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      EXPECT_TRUE(sequences[i].reserve(counts[i]).ok());
      parts.push_back({&sequences[i], std::span(tokens).first(counts[i]), counts[i]});
    }
    Batch batch = {parts};
    batch.observer = &seen;
    backend->submit(*step, batch);
    Logits logits;
    EXPECT_TRUE(backend->wait(logits).ok());
    for (std::size_t i = 0; i < counts.size(); ++i) sequences[i].advance(counts[i]);
    return logits.values;
  };
  const auto begun = [&] {
    std::vector<Sequence> one;
    one.emplace_back(pool, 512);
    run(one, {40});
    return std::move(one.front());
  };
  // Prompts after a context, of which two follow each other, one that is too short, single tokens.
  const std::vector<int64_t> counts = {1, 90, 1, 60, 1, 120, 80, 2};
  std::vector<float> alone;
  std::vector<Sequence> together;
  std::vector<bool> expanded;
  for (const int64_t count : counts) {
    std::vector<Sequence> one;
    one.push_back(begun());
    const std::vector<float> logits = run(one, {count});
    EXPECT_EQ(seen.rows, std::vector<bool>(count, count >= 80));
    alone.insert(alone.end(), logits.begin(), logits.end());
    expanded.insert(expanded.end(), count, count >= 80);
    together.push_back(begun());
  }
  const std::vector<float> logits = run(together, counts);
  EXPECT_EQ(seen.rows, expanded);
  ASSERT_EQ(logits.size(), alone.size());
  EXPECT_GT(testing::noise_decibels(logits, alone), 110);
}

/// Keys of 60 and of 300 positions, one call after the other, have matrices of many and of few
/// heads.
TEST(LatentExpansion, takes_no_more_memory_than_it_may) {
  constexpr LatentSizes kSizes = {.heads = 12, .rank = 64, .turning = 16, .nope = 64, .value = 48};
  constexpr int64_t kDim = kSizes.rank + kSizes.turning;
  const int64_t most = room_of(kSizes, 2, 300);
  const auto execution =
      std::move(Execution::create({.num_threads = 2, .expansion_floats = most})).value();
  const testing::RandomMatrix keys = testing::random_matrix(
      {Format::kF32}, kSizes.heads * kSizes.rank, kSizes.nope, testing::Contents::kReal, 1);
  const testing::RandomMatrix values = testing::random_matrix(
      {Format::kF32}, kSizes.heads * kSizes.value, kSizes.rank, testing::Contents::kReal, 2);
  std::vector<float> cached(3 * kPagePositions * kDim);
  constexpr auto kPageBytes = static_cast<int64_t>(kPagePositions * kDim * sizeof(float));
  const KvLayer layer = {reinterpret_cast<std::byte*>(cached.data()), kPageBytes, 0, kPageBytes,
                         Element::kF32};
  const std::vector<int32_t> pages = {0, 1, 2};
  const std::vector<float> q(300 * kSizes.heads * kDim);
  std::vector<float> out(300 * kSizes.heads * kSizes.rank);
  const AttentionShape shape = {.heads = kSizes.heads,
                                .kv_heads = 1,
                                .head_dim = kDim,
                                .values_in_keys = kSizes.rank,
                                .first_turning = kSizes.rank};
  for (const auto& [positions, heads] : {std::pair(60, 6), {300, 2}, {60, 6}}) {
    EXPECT_EQ(heads_that_fit(*execution, kSizes, positions), heads);
    const AttentionPart part = {q.data(), out.data(), positions, 0, pages};
    ASSERT_TRUE(attention_of_expanded(*execution, {&part, 1}, kSizes.heads * kDim, layer, shape,
                                      kSizes, {keys.view, values.view}, {})
                    .ok());
    EXPECT_LE(execution->buffer_bytes(Execution::Slot::kLatents), 4 * most);
  }
  EXPECT_EQ(execution->buffer_bytes(Execution::Slot::kLatents), 4 * most);
  // DeepSeek V3 within 128 MiB.
  constexpr LatentSizes kV3 = {.heads = 128, .rank = 512, .turning = 64, .nope = 128, .value = 128};
  const auto usual = std::move(Execution::create({.num_threads = 1})).value();
  for (const int64_t positions : {100, 512, 4096, 20'000}) {
    const int64_t heads = heads_that_fit(*usual, kV3, positions);
    EXPECT_LE(4 * room_of(kV3, heads, positions), 128 << 20);
    EXPECT_TRUE(heads == kV3.heads || 4 * room_of(kV3, heads + 1, positions) > 128 << 20);
  }
}

TEST(LatentSizes, are_expanded_where_that_saves_products) {
  constexpr LatentSizes glm = {.heads = 20, .rank = 512, .turning = 64, .nope = 192, .value = 256};
  EXPECT_FALSE(glm.is_expanded(1, 0));
  EXPECT_FALSE(glm.is_expanded(1, 4096));
  // 32 times as long as a product for each of the 512 * 192 numbers of a matrix that is turned.
  EXPECT_FALSE(glm.is_expanded(98, 0));
  EXPECT_TRUE(glm.is_expanded(99, 0));
  EXPECT_TRUE(glm.is_expanded(4096, 0));
  // 512 (192 + 256) products of each cached key; each pair saves 2 (576 - 256).
  EXPECT_FALSE(glm.is_expanded(350, 1'000'000));
  EXPECT_TRUE(glm.is_expanded(360, 1'000'000));
  LatentSizes other = glm;
  other.top = 2048;
  EXPECT_TRUE(other.is_expanded(1024, 1024));
  EXPECT_FALSE(other.is_expanded(1024, 1025));
  other = glm;
  other.value = 513;
  EXPECT_FALSE(other.is_expanded(4096, 0));
  EXPECT_FALSE(LatentSizes().is_expanded(4096, 0));
}

TEST(LatentAttention, keeps_one_run_of_a_position) {
  const LatentSizes sizes = testing::kLatentSizes;
  const auto backend = std::move(make_cpu_backend({.num_threads = 1})).value();
  const auto plan = testing::LatentModel(sizes).plan(*backend);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(cache_position_bytes(plan->cache, Element::kF16), 2 * (sizes.rank + sizes.turning));
}

/// Rounded keys are off by up to 2^-9 of themselves in bf16, by 2^-4 in e4m3.
TEST(LatentAttention, reads_every_type_of_cache) {
  const testing::LatentModel model;
  const std::vector<int32_t> tokens = some_tokens(140);
  const std::vector<float> expected = model.expected(tokens);
  for (const std::string& isa : testing::isas_of_this_machine()) {
    const auto backend = std::move(make_cpu_backend({.num_threads = 2, .isa = isa})).value();
    for (const auto& [type, decibels] :
         {std::pair(Element::kF16, 55), {Element::kBF16, 40}, {Element::kE4M3, 20}}) {
      for (const int64_t piece : {1, 140}) {
        const auto logits = testing::logits_with(model, *backend, type, tokens, piece);
        ASSERT_TRUE(logits.ok()) << logits.error().message;
        EXPECT_GT(testing::noise_decibels(*logits, expected), decibels) << isa;
      }
    }
  }
}

}  // namespace
}  // namespace subbyte
