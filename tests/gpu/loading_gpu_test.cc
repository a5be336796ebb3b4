// Weights on their way to the GPU: what they take there, and that every format that runs on the
// CPU runs.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "formats/weight_format.h"
#include "model_on_gpu.h"
#include "ops/recorder.h"
#include "support/random_matrix.h"
#include "support/test_context.h"
#include "support/value_of.h"

namespace subbyte {
namespace {

using testing::checkout;
using testing::Contents;
using testing::decibels;
using testing::kF16Decibels;
using testing::random_matrix;
using testing::RandomMatrix;
using testing::value_of;
using enum Format;

constexpr int64_t kMiB = int64_t{1} << 20;
/// cudaMalloc takes memory from the driver in pieces of 2 MiB. There are six allocations: weights,
/// cache and four of the workspace, two more where layers have states; each may begin in a piece
/// that was there, or leave one open.
constexpr int64_t granularity(bool has_states) {
  return (has_states ? 8 : 6) * 2 * kMiB;
}

int64_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return static_cast<int64_t>(free);
}

std::unique_ptr<Backend> backend_of(std::string_view device, bool batch_invariant = false) {
  return value_of(make_backend(
      {.device = std::string(device), .num_threads = 2, .batch_invariant = batch_invariant}));
}

struct Usage {
  bool has_states = false;
  int64_t stated = 0;
  int64_t measured = 0;
  int64_t of_steps = 0;  // beyond what was held after loading
};

Usage measure_usage(const std::filesystem::path& directory, int64_t positions, Element type,
                    bool batch_invariant) {
  const auto backend = backend_of("cuda", batch_invariant);
  Usage usage;
  const int64_t prompt = positions / 4;
  const int64_t before = free_bytes();
  const auto model = value_of(load_model(
      directory, *backend,
      {.cache_type = type, .cache_positions = positions, .step_tokens = prompt, .step_logits = 1}));
  usage.has_states = std::ranges::any_of(model->plan().cache.groups, &CacheGroup::is_state);
  auto pool = value_of(model->make_kv_pool(*backend, type, {positions}));
  const int64_t loaded = free_bytes();
  Sequence sequence(pool, positions);
  const std::vector<int32_t> tokens(positions, 7);
  TokenChoice choice = {.temperature = 1, .repetition_penalty = 1.1, .uniform = 0.5};
  Logits logits;
  for (const int64_t count : {prompt, int64_t{1}, prompt, int64_t{1}, int64_t{9}, int64_t{1}}) {
    const std::span<const int32_t> history = std::span(tokens).first(sequence.length() + count);
    choice.history = history;
    const Part part = {&sequence, history.last(count), 1, choice};
    value_of(model->forward(*backend, {{&part, 1}}, logits));
  }
  usage.of_steps = loaded - free_bytes();
  usage.measured = before - loaded;
  MemoryNeed held = backend->memory()->held();
  held.cache = pool.total_bytes();
  usage.stated = held.sum();
  EXPECT_EQ(held.staging, 0);
  return usage;
}

/// What free memory says of two runs that agree: other programs of the machine take and give back
/// memory, too, and what they do does not repeat itself. Ours does, leaks as well. The code of the
/// kernels comes with the first run.
template <class Measure>
Usage undisturbed(const Measure& measure) {
  constexpr int kMostRuns = 20;
  measure();
  Usage before = measure();
  for (int i = 0; i < kMostRuns; ++i) {
    const Usage usage = measure();
    if (usage.measured == before.measured && usage.of_steps == before.of_steps) return usage;
    before = usage;
  }
  ADD_FAILURE() << "other programs change the free memory all the time";
  return before;
}

TEST(GpuLoading, takes_the_memory_that_it_states) {
  struct Case {
    const char* model;
    int64_t positions;
  };
  const Case cases[] = {{"demo/model", 2048},
                        {"tests/data/goldens/qwen3-gptq-act-order", 2048},
                        {"tests/data/goldens/qwen3-moe-bf16", 2048},
                        {"tests/data/goldens/qwen3_5-int4", 512}};
  for (const Case& test : cases) {
    for (const bool batch_invariant : {false, true}) {
      const Element type = batch_invariant ? Element::kE4M3 : Element::kF16;
      const auto measure = [&] {
        return measure_usage(checkout() / test.model, test.positions, type, batch_invariant);
      };
      const Usage usage = undisturbed(measure);
      std::printf("%s: stated %.2f MiB, measured %.2f, of steps %.2f\n", test.model,
                  static_cast<double>(usage.stated) / kMiB,
                  static_cast<double>(usage.measured) / kMiB,
                  static_cast<double>(usage.of_steps) / kMiB);
      EXPECT_NEAR(static_cast<double>(usage.measured), static_cast<double>(usage.stated),
                  static_cast<double>(granularity(usage.has_states)));
      EXPECT_EQ(usage.of_steps, 0);
    }
  }
}

TEST(GpuLoading, refuses_what_does_not_fit_before_it_allocates) {
  const auto backend = backend_of("cuda");
  const int64_t before = free_bytes();
  const auto model =
      load_model(checkout() / "demo/model", *backend, {.cache_positions = int64_t{1} << 36});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, "memory.device");
  for (const char* part : {"weights", "cache", "workspace", "free on GPU 0"}) {
    EXPECT_NE(model.error().message.find(part), std::string::npos) << model.error().message;
  }
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(backend->memory()->held().sum(), 0);
}

/// Every element with the scales, zero points and groups that importers and quantizers make, some
/// of which have no packed kernels.
std::vector<WeightFormat> formats() {
  std::vector<WeightFormat> all = {
      {kF32, kNone, Zero::kNone, 0}, {kF16, kNone, Zero::kNone, 0}, {kBF16, kNone, Zero::kNone, 0}};
  for (const Format element : {kU2, kU3, kU4, kU5, kU6, kU7, kU8}) {
    const Zero zero = element == kU8 ? Zero::kU16 : Zero::kU8;
    for (const int64_t group : {8, 24, 32, 40, 64, 96, 128, 0}) {
      all.push_back({element, kF16, zero, group});
    }
    all.push_back({element, kBF16, zero, 128});
    all.push_back({element, kF32, zero, 64});
  }
  for (const Format element : {kI2, kI3, kI4, kI5, kI8}) {
    for (const int64_t group : {32, 48, 128, 0}) {
      all.push_back({element, kF16, Zero::kNone, group});
      all.push_back({element, kBF16, Zero::kBF16, group});
    }
  }
  for (const Format scale : {kE8M0, kE4M3}) {
    for (const int64_t group : {16, 32, 64}) all.push_back({kE2M1, scale, Zero::kNone, group});
  }
  for (const int64_t group : {32, 64, 128, 0}) {
    all.push_back({kE4M3, kF32, Zero::kNone, group});
    all.push_back({kE4M3, kE8M0, Zero::kNone, group});
  }
  for (const int64_t group : {32, 64, 128, 256, 512}) {
    all.push_back({kNF4, kF32, Zero::kNone, group});
  }
  all.push_back({kIQ4, kF16, Zero::kNone, 32});
  all.push_back({kIQ4, kI6, Zero::kNone, 32});
  all.push_back({kU2, kU4, Zero::kOffsetU4, 16});
  all.push_back({kI3, kI6, Zero::kNone, 16});
  all.push_back({kU4, kU6, Zero::kOffsetU6, 32});
  all.push_back({kU5, kU6, Zero::kOffsetU6, 32});
  all.push_back({kI6, kI8, Zero::kNone, 16});
  for (const Format element : {kNFL2, kNFL3, kNFL4, kNFL5}) {
    for (const int64_t group : {32, 64}) all.push_back({element, kE4M4, Zero::kNone, group});
  }
  for (const Format element : {kVQ2, kVQ4}) {
    for (const int64_t rotation : {0, 64}) {
      all.push_back({element, kE4M4, Zero::kNone, 32, rotation});
    }
  }
  return all;
}

Matrix unowned(const MatrixView& view) {
  Matrix matrix;
  matrix.view = view;
  return matrix;
}

/// A model of one product, [rows][cols], in the three ways that models multiply.
enum class Use : uint8_t { kLinear, kGated, kHead };

/// The logits of `tokens` that this gives, or why it is refused.
Result<std::vector<float>> run(Backend& backend, const MatrixView& first, const MatrixView& second,
                               Use use, int64_t num_tokens) {
  constexpr int64_t kVocab = 24;
  const int64_t rows = first.rows;
  const WeightFormat dense = {kF32, kNone, Zero::kNone, 0};
  const RandomMatrix table = random_matrix(dense, kVocab, first.cols, Contents::kReal, 1);
  const RandomMatrix stream = random_matrix(dense, kVocab, rows, Contents::kReal, 2);
  const RandomMatrix head = random_matrix(dense, kVocab, rows, Contents::kReal, 3);
  std::vector<Matrix> both;
  both.push_back(unowned(first));
  if (use == Use::kGated) both.push_back(unowned(second));
  SUBBYTE_TRY(const Weight weight, backend.upload_joined(std::move(both)));
  SUBBYTE_TRY(const Weight table_weight, backend.upload(unowned(table.view)));
  SUBBYTE_TRY(const Weight stream_weight, backend.upload(unowned(stream.view)));
  SUBBYTE_TRY(const Weight head_weight, backend.upload(unowned(head.view)));
  Norm norm, last_norm;
  SUBBYTE_TRY(norm.weight, backend.upload(std::vector<float>(first.cols, 1.0f)));
  SUBBYTE_TRY(last_norm.weight, backend.upload(std::vector<float>(rows, 1.0f)));

  SUBBYTE_TRY(KvPool pool, backend.make_kv_pool({}, Element::kF16, {256}));
  Sequence sequence(pool, 200);
  SUBBYTE_CHECK(sequence.reserve(num_tokens));
  std::vector<int32_t> tokens(num_tokens);
  for (int64_t i = 0; i < num_tokens; ++i) tokens[i] = static_cast<int32_t>(i * 5 % kVocab);
  Recorder record;
  ValueId x = record.embed("table", table_weight);
  if (use == Use::kHead) {
    record.logits("head", record.head_norm("norm", x, kNoValue, norm), weight);
  } else {
    const ValueId h = record.add_norm("norm", x, kNoValue, norm);
    const ValueId y = record.embed("stream", stream_weight);
    const ValueId delta = use == Use::kLinear ? record.linear("linear", h, weight)
                                              : record.gated_linear("gated", h, weight);
    record.logits("head", record.head_norm("last_norm", y, delta, last_norm), head_weight);
  }
  SUBBYTE_TRY(StepPlan plan, std::move(record).finish());
  SUBBYTE_TRY(const auto step, backend.compile(std::move(plan)));
  const Part part = {&sequence, tokens, num_tokens};
  backend.submit(*step, {{&part, 1}});
  Logits logits;
  SUBBYTE_CHECK(backend.wait(logits));
  return logits.values;
}

TEST(GpuLoading, every_format_that_runs_on_the_cpu_runs_here) {
  const auto cpu = backend_of("cpu");
  const auto gpu = backend_of("cuda");
  int served = 0;
  double worst = INFINITY;
  // Those are for two layers, and this is less than one. Weights that are rounded to 16 bits are
  // rounded as much as activations are.
  for (const WeightFormat& format : formats()) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{48, 512}, {38, 192}, {37, 120}}) {
      RandomMatrix first = random_matrix(format, rows, cols, Contents::kReal, 10);
      RandomMatrix second = random_matrix(format, rows, cols, Contents::kReal, 11);
      // Gates of ordinary size: silu(g) of a large negative g is as inexact as g is large, and
      // f16 ends at 65504. Codes of E4M3 are 100 times as large as those of four bits, and integers
      // of two levels (u4 to i8) make scales 7 to 64 times as large.
      const double scale = format.element == Format::kE4M3 ? 0.001
                           : has_two_levels(format.scale)  ? 0.003
                                                           : 0.1;
      first.view.tensor_scale = second.view.tensor_scale = is_dense(format) ? 1 : scale;
      std::vector<uint32_t> order(cols);
      std::iota(order.rbegin(), order.rend(), 0);
      if (!is_dense(format) && !has_two_levels(format) && rows == 38)
        first.view.input_order = order;  // of one of the two
      for (const Use use : {Use::kLinear, Use::kGated, Use::kHead}) {
        for (const int64_t tokens : {1, 70}) {
          const auto expected = run(*cpu, first.view, second.view, use, tokens);
          if (!expected.ok()) continue;  // not on the CPU either
          const auto found = run(*gpu, first.view, second.view, use, tokens);
          ASSERT_TRUE(found.ok()) << to_string(format) << ": " << found.error().message;
          const double here = decibels(*found, *expected);
          EXPECT_GT(here, kF16Decibels)
              << to_string(format) << " " << rows << " x " << cols << " use "
              << static_cast<int>(use) << ", " << tokens << " tokens";
          worst = std::min(worst, here);
          ++served;
        }
      }
    }
  }
  std::printf("%d products, worst %.1f dB; %s\n", served, worst, gpu->description().c_str());
  EXPECT_GT(served, 500);
}

}  // namespace
}  // namespace subbyte
