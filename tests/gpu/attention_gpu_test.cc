// Attention against the textbook formula in double precision: several sequences in one call, of
// prompts and single tokens.

#include <gtest/gtest.h>

#include <algorithm>

#include "attention_problem.h"
#include "kernels/cuda/attention/paged_hopper.h"
#include "kernels/cuda/linear.h"
#include "support/value_of.h"

namespace subbyte::testing {
namespace {

/// y [tokens][heads][dim] of all parts in one call.
std::vector<float> run(const AttentionProblem& problem, const Cache& cache,
                       const std::vector<cuda::AttentionPart>& parts, const std::vector<float>& qkv,
                       const std::vector<float>& sinks) {
  cuda::AttentionLayers layers = {problem.heads / problem.kv_heads, problem.kv_heads,
                                  problem.window};
  if (problem.has_wgmma) layers.prompt_rows = cuda::kPagedTokens * layers.q_per_kv;
  const int64_t stride = (problem.heads + 2 * problem.kv_heads) * problem.dim;
  const int64_t tokens = std::ssize(qkv) / stride;
  cuda::AttentionTasks tasks = problem.batch_invariant
                                   ? cuda::invariant_attention_tasks(parts, layers)
                                   : cuda::attention_tasks(parts, layers, kSplitCtas);
  cuda::round_up_tasks(tasks);  // those without tokens do nothing
  const DeviceNumbers qkv_device(qkv, problem.element);
  const DeviceBytes cache_device(cache.bytes());
  const DeviceNumbers sinks_device(sinks, Element::kF32);
  const DeviceNumbers y(tokens * problem.heads * problem.dim, problem.element);
  const DeviceNumbers partials(
      tasks.num_partials * cuda::attention_partial_floats(problem.kv_heads, problem.dim),
      Element::kF32);
  const DeviceBytes table(as_bytes(cache.table()));
  const DeviceBytes prompt(as_bytes(tasks.prompt));
  const DeviceBytes split(as_bytes(tasks.split));
  const DeviceBytes merge(as_bytes(tasks.merge));
  cuda::AttentionCall call;
  call.qkv = qkv_device.data();
  call.y = y.data();
  call.element = problem.element;
  call.qkv_stride = stride;
  call.heads = static_cast<int32_t>(problem.heads);
  call.kv_heads = static_cast<int32_t>(problem.kv_heads);
  call.head_dim = static_cast<int32_t>(problem.dim);
  call.window = static_cast<int32_t>(problem.window);
  call.scale = 1 / std::sqrt(static_cast<float>(problem.dim));
  call.cap = problem.cap;
  if (problem.has_sinks) call.sinks = sinks_device.data<float>();
  call.pages = reinterpret_cast<const int32_t*>(table.data());
  call.cache = cache.layer(cache_device.data());
  call.partials = partials.data<float>();
  call.prompt = reinterpret_cast<const cuda::AttentionTask*>(prompt.data());
  call.split = reinterpret_cast<const cuda::AttentionTask*>(split.data());
  call.merge = reinterpret_cast<const cuda::MergeTask*>(merge.data());
  call.num_prompt = std::ssize(tasks.prompt);
  call.slices = tasks.slices;
  if (problem.has_wgmma) {
    EXPECT_TRUE(cuda::serves_paged_hopper(layers, problem.dim, problem.cache));
    EXPECT_TRUE(cuda::run_paged_hopper(call, tokens, nullptr).ok());
    call.num_prompt = 0;
  }
  cuda::run_attention(call, nullptr);
  expect_ran();
  partials.read();  // for its canaries
  return y.read();
}

std::vector<float> run(const AttentionProblem& problem, const Cache& cache,
                       const std::vector<float>& qkv, const std::vector<float>& sinks) {
  return run(problem, cache, parts_of(problem, cache), qkv, sinks);
}

std::vector<float> random_qkv(const AttentionProblem& problem) {
  int64_t tokens = 0;
  for (const PartSize& part : problem.parts) tokens += part.tokens;
  const int64_t heads = problem.heads + 2 * problem.kv_heads;
  return rounded(normals(tokens * heads * problem.dim, 1, 31), problem.element);
}

void expect_attention(const AttentionProblem& problem) {
  const Cache cache(problem, 30);
  const std::vector<float> qkv = random_qkv(problem);
  const std::vector<float> sinks = normals(problem.heads, 2, 32);
  const std::vector<float> found = run(problem, cache, qkv, sinks);
  std::vector<double> expected;
  std::vector<double> bounds;
  int64_t row = 0;
  for (std::size_t p = 0; p < problem.parts.size(); ++p) {
    for (int64_t t = 0; t < problem.parts[p].tokens; ++t, ++row) {
      for (int64_t head = 0; head < problem.heads; ++head) {
        const int64_t at = row * (problem.heads + 2 * problem.kv_heads) + head;
        const RowResult result = expect_row(problem, cache, p, t, head, &qkv[at * problem.dim],
                                            problem.has_sinks ? sinks.data() : nullptr);
        expected.insert(expected.end(), result.values.begin(), result.values.end());
        bounds.insert(bounds.end(), result.bounds.begin(), result.bounds.end());
      }
    }
  }
  expect_within(found, expected, bounds,
                std::to_string(problem.heads) + "/" + std::to_string(problem.kv_heads) +
                    " heads of " + std::to_string(problem.dim) + ", window " +
                    std::to_string(problem.window) + ", cache " + name_of(problem.cache) +
                    (problem.batch_invariant ? ", batch-invariant" : ""));
}

/// Short and long, of one token and of many.
const std::vector<PartSize> kParts = {{1, 0}, {1, 700}, {5, 123}, {33, 0}, {70, 190}, {1, 127}};

class GpuAttention : public ::testing::TestWithParam<Element> {};

TEST_P(GpuAttention, agrees_with_the_formula) {
  for (const Element element : kHalves) {
    const struct {
      int64_t heads, kv_heads, dim;
    } shapes[] = {{4, 2, 64},  {6, 2, 64},  {3, 3, 16},  {5, 1, 80}, {8, 2, 128},
                  {4, 1, 256}, {6, 3, 112}, {8, 2, 512}, {3, 1, 352}};
    for (const auto& [heads, kv_heads, dim] : shapes) {
      expect_attention({heads, kv_heads, dim, element, GetParam(), 0, false, kParts});
    }
  }
}

/// Every size of heads with a window and sinks, of one token and of prompts.
TEST_P(GpuAttention, sizes_of_heads) {
  for (const int64_t dim : {64, 80, 96, 128, 256, 512}) {
    for (const Element element : kHalves) {
      for (const bool batch_invariant : {false, true}) {
        for (const int64_t window : {0, 150}) {
          expect_attention({8,
                            2,
                            dim,
                            element,
                            GetParam(),
                            window,
                            window > 0,
                            {{1, 0}, {1, 300}, {40, 170}},
                            batch_invariant});
        }
        expect_attention(
            {4, 2, dim, element, GetParam(), 0, true, {{1, 200}, {20, 0}}, batch_invariant});
      }
    }
  }
}

TEST_P(GpuAttention, windows_and_sinks) {
  for (const int64_t window : {1, 40, 130, 100000}) {
    expect_attention({6, 2, 64, Element::kF16, GetParam(), window, true, kParts});
    expect_attention({2, 2, 128, Element::kF16, GetParam(), window, false, kParts});
  }
  expect_attention({4, 2, 96, Element::kBF16, GetParam(), 0, true, kParts});
}

TEST_P(GpuAttention, caps_of_scores) {
  for (const int64_t dim : {64, 128, 256}) {
    AttentionProblem problem = {4, 2, dim, Element::kBF16, GetParam(), 0, true, kParts};
    problem.cap = 2;
    expect_attention(problem);
  }
}

/// Of one to three tasks of 128 tokens, beside single tokens, on both sides of borders of pages.
TEST(GpuPagedAttention, prompts_by_wgmma_agree_with_the_formula) {
  if (value_of(cuda::query_device(0)).compute_capability != 90) {
    GTEST_SKIP() << "no Hopper: wgmma";
  }
  const std::vector<PartSize> parts = {{33, 0},    {1, 700},   {70, 190},
                                       {257, 100}, {128, 128}, {5, 0}};
  for (const Element element : kHalves) {
    const struct { int64_t heads, kv_heads; } shapes[] = {{4, 1}, {6, 2}, {2, 2}, {24, 1}};
    for (const auto& [heads, kv_heads] : shapes) {
      for (const bool has_sinks : {false, true}) {
        expect_attention(
            {heads, kv_heads, 128, element, element, 0, has_sinks, parts, false, true});
      }
    }
    AttentionProblem capped = {4, 2, 128, element, element, 0, false, parts, false, true};
    capped.cap = 2;
    expect_attention(capped);
  }
}

TEST_P(GpuAttention, more_heads_of_a_group_than_rows_of_a_tile) {
  expect_attention({40, 2, 64, Element::kF16, GetParam(), 0, false, {{1, 300}, {3, 20}}});
}

TEST_P(GpuAttention, long_sequences_in_many_splits) {
  expect_attention({4, 2, 64, Element::kF16, GetParam(), 0, true, {{1, 4999}, {4, 9000}}});
}

/// The results of the last part of a problem, which is cut into parts of `chunk` tokens.
std::vector<float> run_in_chunks(const AttentionProblem& problem, const Cache& cache, int64_t chunk,
                                 int64_t neighbours) {
  const PartSize whole = problem.parts.back();
  const std::vector<float> qkv = random_qkv(problem);
  const std::vector<float> sinks = normals(problem.heads, 2, 35);
  const int64_t stride = (problem.heads + 2 * problem.kv_heads) * problem.dim;
  const int64_t row = problem.heads * problem.dim;
  int64_t before = 0;
  for (std::size_t p = 0; p + 1 < problem.parts.size(); ++p) before += problem.parts[p].tokens;
  std::vector<float> found;
  for (int64_t at = 0; at < whole.tokens; at += chunk) {
    const int64_t tokens = std::min(chunk, whole.tokens - at);
    std::vector<cuda::AttentionPart> parts = parts_of(problem, cache);
    parts.back().position += static_cast<int32_t>(at);
    parts.back().num_tokens = static_cast<int32_t>(tokens);
    parts.erase(parts.begin(), parts.end() - 1 - neighbours);
    const int32_t first = parts.front().first_token;
    for (cuda::AttentionPart& part : parts) part.first_token -= first;
    std::vector<float> some(qkv.begin() + first * stride, qkv.begin() + before * stride);
    some.insert(some.end(), qkv.begin() + (before + at) * stride,
                qkv.begin() + (before + at + tokens) * stride);
    const std::vector<float> y = run(problem, cache, parts, some, sinks);
    found.insert(found.end(), y.end() - tokens * row, y.end());
  }
  return found;
}

/// Around the positions at which splits become larger, and beyond a window.
TEST_P(GpuAttention, batch_invariant_bits_do_not_depend_on_the_cut) {
  const struct { int64_t window, heads; } cases[] = {{0, 6}, {200, 34}, {5000, 2}};
  for (const auto& [window, heads] : cases) {
    AttentionProblem problem = {heads, 2, 64, Element::kF16, GetParam(), window, true, {}, true};
    problem.parts = {{1, 5}, {3, 300}, {30, 4080}};
    const Cache cache(problem, 34);
    const std::vector<float> alone = run_in_chunks(problem, cache, 1, 0);
    for (const int64_t chunk : {7, 30}) {
      EXPECT_EQ(run_in_chunks(problem, cache, chunk, 0), alone) << chunk;
      EXPECT_EQ(run_in_chunks(problem, cache, chunk, 2), alone) << chunk << " with neighbours";
    }
  }
}

TEST_P(GpuAttention, batch_invariant_agrees_with_the_formula) {
  for (const int64_t window : {0, 300}) {
    expect_attention({8, 2, 64, Element::kF16, GetParam(), window, true, kParts, true});
    expect_attention(
        {40, 2, 64, Element::kBF16, GetParam(), window, false, {{3, 4200}, {200, 0}}, true});
  }
}

TEST_P(GpuAttention, the_same_bits_in_every_run) {
  const AttentionProblem problem = {8, 2, 64, Element::kF16, GetParam(), 0, false, kParts};
  const Cache cache(problem, 33);
  const std::vector<float> qkv = random_qkv(problem);
  const std::vector<float> first = run(problem, cache, qkv, {});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(problem, cache, qkv, {}), first);
}

INSTANTIATE_TEST_SUITE_P(Caches, GpuAttention, ::testing::ValuesIn(kCaches),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace subbyte::testing
