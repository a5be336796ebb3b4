// Mixtures of experts on the GPU, against the formula in double precision.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <span>

#include "experts_formula.h"
#include "matrix/alternate_rows.h"
#include "model_on_gpu.h"

namespace subbyte::testing {
namespace {

constexpr WeightFormat kMxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
constexpr WeightFormat kAwq = {Format::kU4, Format::kF16, Zero::kU8, 64};
constexpr WeightFormat kNf4 = {Format::kNF4, Format::kF32, Zero::kNone, 64};
constexpr WeightFormat kNvfp4 = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};
constexpr WeightFormat kKbit3 = {Format::kNFL3, Format::kF16, Zero::kNone, 32};
constexpr WeightFormat kKbit5 = {Format::kNFL5, Format::kF16, Zero::kNone, 32};
constexpr WeightFormat kGptq8 = {Format::kU8, Format::kF16, Zero::kU8, 32};
constexpr WeightFormat kU4In32s = {Format::kU4, Format::kF16, Zero::kU8, 32};

/// Random experts and tokens, and the formula of them.
void expect_formula_of(const WeightFormat& format, const Sizes& sizes, uint64_t seed,
                       std::span<const cuda::Number> numbers, std::span<const int64_t> tokens) {
  const TestExperts experts = random_experts(format, sizes, seed);
  for (const cuda::Number number : numbers) {
    OnGpu on(experts, number);
    for (const int64_t count : tokens) {
      expect_formula(experts, random_tokens(sizes, count, number, count), number, on,
                     text_of(format, count, experts.matrices.top_k));
    }
  }
}

TEST(GpuExperts, match_the_formula) {
  for (const WeightFormat& format : {kMxfp4, kAwq, kNf4}) {
    for (const cuda::Number number : kNumbers) {
      for (const int64_t top_k : {1, 2, 4, 8}) {
        TestExperts experts = random_experts(format, {}, 10 + top_k);
        experts.matrices.top_k = top_k;
        OnGpu on(experts, number);
        for (const int64_t tokens : {1, 3, 8, 9, 16, 17, 65, 300}) {
          expect_formula(experts, random_tokens(experts.sizes, tokens, number, tokens), number, on,
                         text_of(format, tokens, top_k));
        }
      }
    }
  }
}

constexpr WeightFormat kQ4K = {Format::kU4, Format::kU6, Zero::kOffsetU6, 32};
constexpr WeightFormat kQ6K = {Format::kI6, Format::kI8, Zero::kNone, 16};

/// As files of GGUF mix them: down in more bits than gate and up.
TEST(GpuExperts, with_scales_of_two_levels_of_two_types) {
  constexpr WeightFormat kQ5K = {Format::kU5, Format::kU6, Zero::kOffsetU6, 32};
  constexpr WeightFormat kIq4Xs = {Format::kIQ4, Format::kI6, Zero::kNone, 32};
  for (const auto& [gate_up, down] : {std::pair(kQ4K, kQ6K), {kIq4Xs, kQ5K}}) {
    for (const cuda::Number number : kNumbers) {
      const TestExperts experts = random_experts(gate_up, {4, 320, 96}, 17, down);
      OnGpu on(experts, number);
      for (const int64_t tokens : {1, 9, 40, 300}) {  // small_m8 to large_m256
        expect_formula(experts, random_tokens(experts.sizes, tokens, number, tokens), number, on,
                       text_of(gate_up, tokens, experts.matrices.top_k));
      }
    }
  }
}

/// And gate in other bits than up, which are two products then, with biases or without, beside
/// floats, too.
TEST(GpuExperts, with_gate_and_up_of_two_types) {
  constexpr WeightFormat kFloats = {Format::kBF16, Format::kNone, Zero::kNone, 0};
  for (const auto& [gate, up] : {std::pair(kQ4K, kQ6K), {kQ6K, kNf4}, {kFloats, kQ4K}}) {
    for (const cuda::Number number : kNumbers) {
      for (const Sizes& sizes : {Sizes{4, 320, 96}, Sizes{3, 64, 36}, Sizes{2, 256, 33}}) {
        TestExperts experts = random_experts_apart(gate, up, kNf4, sizes, 18);
        OnGpu on(experts, number);
        EXPECT_TRUE(on.is_apart());
        for (const int64_t tokens : {1, 9, 40, 300, 1400}) {  // small_m8 to large_m256
          expect_formula(
              experts, random_tokens(sizes, tokens, number, tokens), number, on,
              text_of(gate, tokens, experts.matrices.top_k) + " beside " + to_string(up));
        }
      }
    }
  }
}

TEST(GpuExperts, with_gate_and_up_of_two_types_do_not_depend_on_neighbours) {
  const TestExperts experts = random_experts_apart(kQ4K, kQ6K, kAwq, {8, 320, 288}, 19);
  OnGpu on(experts, cuda::Number::kF16, true);
  const Inputs all = random_tokens(experts.sizes, 300, cuda::Number::kF16, 19);
  const std::vector<float> together = on.run(all);
  const Inputs first = {
      1, {all.x.begin(), all.x.begin() + 320}, {all.logits.begin(), all.logits.begin() + 8}};
  EXPECT_EQ(on.run(first), std::vector<float>(together.begin(), together.begin() + 320));
}

constexpr cuda::Number kF16Alone[] = {cuda::Number::kF16};

/// Rows that begin at any address, strips and tiles that are not whole.
TEST(GpuExperts, of_odd_sizes) {
  constexpr int64_t kTokens[] = {1, 12, 70};
  for (const WeightFormat& format : {kMxfp4, kAwq, kNf4}) {
    for (const Sizes& sizes : {Sizes{5, 100, 52}, Sizes{3, 264, 77}, Sizes{1, 33, 1}}) {
      expect_formula_of(format, sizes, 3, kF16Alone, kTokens);
    }
  }
}

/// Rows as long as those of gpt-oss: inputs come in chunks.
TEST(GpuExperts, of_long_rows) {
  constexpr int64_t kTokens[] = {1, 20, 130};
  for (const Sizes& sizes : {Sizes{2, 2880, 320}, Sizes{2, 320, 2880}}) {
    expect_formula_of(kMxfp4, sizes, 4, kF16Alone, kTokens);
  }
}

/// Fewer batches of inputs than warpgroups have a share of, and rows of one K tile, of which groups
/// are parts.
TEST(GpuExperts, of_short_rows) {
  constexpr WeightFormat kU2In16s = {Format::kU2, Format::kF16, Zero::kU8, 16};
  constexpr int64_t kTokens[] = {9, 20, 130};
  for (const WeightFormat& format : {kAwq, kU4In32s, kGptq8, kU2In16s, kQ6K}) {
    for (const Sizes& sizes : {Sizes{8, 160, 512}, Sizes{8, 384, 64}, Sizes{4, 64, 32}}) {
      expect_formula_of(format, sizes, 13, kNumbers, kTokens);
    }
  }
}

/// CTAs of panels that have several units, of two experts, too, and rings that are filled again
/// within a unit.
TEST(GpuExperts, of_several_units_of_a_cta) {
  constexpr int64_t kTokens[] = {9, 20, 70};
  for (const WeightFormat& format : {kAwq, kQ4K, kU4In32s}) {
    for (const Sizes& sizes : {Sizes{16, 320, 1056}, Sizes{3, 1120, 288}}) {
      expect_formula_of(format, sizes, 14, kNumbers, kTokens);
    }
  }
}

TEST(GpuExperts, with_uneven_routes_and_experts_without_tokens) {
  TestExperts experts = random_experts(kMxfp4, {64, 64, 64}, 5);
  experts.matrices.top_k = 2;
  OnGpu on(experts, cuda::Number::kF16);
  for (const int64_t tokens : {1, 7, 31, 64, 300, 1000, 8200}) {  // small_m8 to large_m256
    Inputs inputs = random_tokens(experts.sizes, tokens, cuda::Number::kF16, tokens);
    for (int64_t t = 0; t < tokens; ++t) {
      inputs.logits[t * 64 + 63] += 100;  // the last one has all
      // Three have most of the others, or all of very many.
      if (t % 10 != 0 || tokens > 1000) inputs.logits[t * 64 + t % 3 * 20] += 50;
    }
    expect_formula(experts, inputs, cuda::Number::kF16, on, text_of(kMxfp4, tokens, 2));
  }
}

TEST(GpuExperts, of_256_and_8_for_a_token) {
  TestExperts experts = random_experts(kMxfp4, {256, 96, 64}, 12);
  experts.matrices.top_k = 8;
  OnGpu on(experts, cuda::Number::kF16);
  for (const int64_t tokens : {1, 5, 100, 1000}) {  // small_m8 to large_m128
    expect_formula(experts, random_tokens(experts.sizes, tokens, cuda::Number::kF16, tokens),
                   cuda::Number::kF16, on, text_of(kMxfp4, tokens, 8));
  }
}

TEST(GpuExperts, with_scales_alpha_and_limit_of_their_own) {
  TestExperts experts = random_experts(kMxfp4, {}, 6);
  experts.matrices.swiglu = {1.2f, 0.75f, 0.5f};
  for (int64_t e = 0; e < experts.sizes.experts; ++e) {
    experts.matrices.gate_up[e].view.tensor_scale = 0.5 + 0.25 * static_cast<double>(e);
    experts.matrices.down[e].view.tensor_scale = 2 - 0.125 * static_cast<double>(e);
  }
  OnGpu on(experts, cuda::Number::kBF16);
  for (const int64_t tokens : {2, 50}) {
    expect_formula(experts, random_tokens(experts.sizes, tokens, cuda::Number::kBF16, tokens),
                   cuda::Number::kBF16, on, text_of(kMxfp4, tokens, 4));
  }
}

/// The same experts with gate and up as two matrices.
TestExperts taken_apart(const TestExperts& in_turns) {
  TestExperts apart;
  apart.sizes = in_turns.sizes;
  apart.format = in_turns.format;
  apart.matrices = in_turns.matrices;
  apart.matrices.gate_up.clear();
  for (const Matrix& both : in_turns.matrices.gate_up) {
    apart.matrices.gate_up.push_back(every_second_row(both.view, 0));
    apart.matrices.gate_up.push_back(every_second_row(both.view, 1));
  }
  const int64_t rows = 2 * in_turns.sizes.inner;
  for (std::size_t i = 0; i < apart.matrices.gate_up_bias.size(); ++i) {
    const auto row = static_cast<int64_t>(i) % rows;
    const int64_t from = static_cast<int64_t>(i) - row + 2 * (row % (rows / 2)) + row / (rows / 2);
    apart.matrices.gate_up_bias[i] = in_turns.matrices.gate_up_bias[from];
  }
  return apart;
}

TEST(GpuExperts, apart_give_the_bits_of_experts_in_turns) {
  for (const WeightFormat& format : {kNvfp4, kAwq, kNf4}) {
    const TestExperts in_turns = random_experts(format, {}, 26);
    const TestExperts apart = taken_apart(in_turns);
    OnGpu first(in_turns, cuda::Number::kBF16);
    OnGpu second(apart, cuda::Number::kBF16);
    for (const int64_t tokens : {1, 7, 50, 700}) {
      const Inputs inputs = random_tokens(in_turns.sizes, tokens, cuda::Number::kBF16, tokens);
      EXPECT_EQ(first.run(inputs), second.run(inputs)) << text_of(format, tokens, 4);
    }
  }
}

/// The result of a plain SwiGLU is proportional to up, and so, in bf16, is every rounding.
TEST(GpuExperts, apart_have_a_factor_each) {
  const TestExperts in_turns = random_experts(kNvfp4, {8, 160, 96}, 27);  // has what follows them
  TestExperts experts = taken_apart(in_turns);
  experts.matrices.swiglu = {};
  experts.matrices.gate_up_bias.clear();
  experts.matrices.down_bias.clear();
  OnGpu one(experts, cuda::Number::kBF16);
  for (std::size_t i = 1; i < experts.matrices.gate_up.size(); i += 2) {
    experts.matrices.gate_up[i].view.tensor_scale *= 8;
  }
  OnGpu eight(experts, cuda::Number::kBF16);
  for (const int64_t tokens : {1, 7, 50, 700}) {
    const Inputs inputs = random_tokens(experts.sizes, tokens, cuda::Number::kBF16, tokens);
    std::vector<float> expected = one.run(inputs);
    for (float& value : expected) value *= 8;
    EXPECT_EQ(eight.run(inputs), expected) << tokens;
  }
}

/// Inputs of both products are prepared before them: in another order, rotated, or both.
TEST(GpuExperts, of_vectors_match_the_formula) {
  for (const Format element : {Format::kVQ2, Format::kVQ4}) {
    for (const int rotation : {0, 16}) {
      const WeightFormat format = {element, Format::kE4M4, Zero::kNone, 32, rotation};
      for (const cuda::Number number : kNumbers) {
        const TestExperts experts = random_experts(format, {8, 160, 96}, 31);
        OnGpu on(experts, number);
        for (const int64_t tokens : {1, 7, 16, 65, 300, 1100}) {
          expect_formula(experts, random_tokens(experts.sizes, tokens, number, tokens), number, on,
                         text_of(format, tokens, 4));
        }
      }
    }
  }
}

TEST(GpuExperts, of_vectors_have_one_codebook) {
  const WeightFormat format = {Format::kVQ4, Format::kE4M4, Zero::kNone, 32};
  TestExperts experts = random_experts(format, {4, 160, 96}, 32);
  experts.matrices.down[2].view.codebook = experts.owners.back().codebook;
  ThreadPool host(1);
  device::Uploader uploader(host);
  const auto uploaded = upload_experts(
      experts.matrices, {device::Gpu::current(0, nullptr), uploader, cuda::Number::kF16});
  ASSERT_FALSE(uploaded.ok());
  EXPECT_EQ(uploaded.error().code, "linear.unsupported");
  EXPECT_NE(uploaded.error().message.find("one codebook"), std::string::npos)
      << uploaded.error().message;
}

/// As Qwen3-MoE has them, with either rule for the weights of the routes.
TEST(GpuExperts, without_bias_and_clamp_match_the_formula) {
  for (const WeightFormat& format : {kMxfp4, kAwq, kNf4, kNvfp4, kKbit3, kKbit5, kGptq8}) {
    TestExperts experts = random_experts(format, {8, 160, 96}, 16);
    experts.matrices.swiglu = {};
    experts.matrices.gate_up_bias.clear();
    experts.matrices.down_bias.clear();
    for (const bool normalises : {true, false}) {
      experts.router.rule.normalises = normalises;
      OnGpu on(experts, cuda::Number::kBF16);
      for (const int64_t tokens : {1, 7, 16, 65, 300, 1100}) {
        expect_formula(experts, random_tokens(experts.sizes, tokens, cuda::Number::kBF16, tokens),
                       cuda::Number::kBF16, on, text_of(format, tokens, 4));
      }
    }
  }
}

TEST(GpuExperts, with_input_orders) {
  TestExperts experts = random_experts(kAwq, {4, 128, 64}, 7);
  Random random(7);
  const auto shuffle = [&](MatrixView& view) {
    std::vector<uint32_t> order(view.cols);
    std::iota(order.begin(), order.end(), 0u);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    experts.orders.push_back(std::move(order));
    view.input_order = experts.orders.back();
  };
  experts.orders.reserve(8);
  for (Matrix& matrix : experts.matrices.gate_up) shuffle(matrix.view);
  for (Matrix& matrix : experts.matrices.down) shuffle(matrix.view);
  OnGpu on(experts, cuda::Number::kF16);
  for (const int64_t tokens : {1, 40}) {
    expect_formula(experts, random_tokens(experts.sizes, tokens, cuda::Number::kF16, tokens),
                   cuda::Number::kF16, on, text_of(kAwq, tokens, 4));
  }
}

TEST(GpuExperts, ties_go_to_the_lower_index_and_nan_stays_in_its_token) {
  const TestExperts experts = random_experts(kMxfp4, {}, 8);
  OnGpu on(experts, cuda::Number::kF16);
  Inputs inputs = random_tokens(experts.sizes, 40, cuda::Number::kF16, 8);
  std::ranges::fill(std::span(inputs.logits).subspan(3 * 8, 8), 2.0f);
  expect_formula(experts, inputs, cuda::Number::kF16, on, "equal logits");
  inputs.logits[5 * 8 + 2] = NAN;
  inputs.x[7 * experts.sizes.hidden + 11] = NAN;
  const std::vector<float> y = on.run(inputs);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto token = static_cast<int64_t>(i) / experts.sizes.hidden;
    ASSERT_EQ(std::isnan(y[i]), token == 5 || token == 7) << "token " << token;
  }
}

TEST(GpuExperts, have_the_same_bits_in_every_run) {
  const TestExperts experts = random_experts(kMxfp4, {}, 9);
  OnGpu on(experts, cuda::Number::kF16);
  for (const int64_t tokens : {1, 30, 300}) {
    const Inputs inputs = random_tokens(experts.sizes, tokens, cuda::Number::kF16, tokens);
    const std::vector<float> first = on.run(inputs);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(on.run(inputs), first);
  }
}

TEST(GpuExperts, batch_invariant_results_do_not_depend_on_neighbours) {
  const TestExperts experts = random_experts(kMxfp4, {8, 320, 288}, 10);
  OnGpu on(experts, cuda::Number::kF16, true);
  const Inputs all = random_tokens(experts.sizes, 300, cuda::Number::kF16, 10);
  const std::vector<float> together = on.run(all);
  const auto rows = [](const std::vector<float>& from, int64_t cols, int64_t first, int64_t count) {
    return std::vector<float>(from.begin() + first * cols, from.begin() + (first + count) * cols);
  };
  for (const auto& [first, count] :
       {std::pair<int64_t, int64_t>{0, 1}, {17, 1}, {40, 9}, {3, 100}}) {
    const Inputs part = {count, rows(all.x, 320, first, count), rows(all.logits, 8, first, count)};
    EXPECT_EQ(on.run(part), rows(together, 320, first, count)) << first << ", " << count;
  }
}

/// Many tokens are multiplied in 8 bits, in which every product is rounded to 2^-4 of its input at
/// most, some 3 % in the mean, twice; few tokens of the same backend in 16 bits, after the same
/// rounding but of groups of 32.
TEST(GpuExperts, of_many_tokens_in_8_bits_are_near_those_of_few_in_16) {
  const TestExperts experts = random_experts(kMxfp4, {8, 320, 288}, 11);
  const Inputs all = random_tokens(experts.sizes, 1200, cuda::Number::kF16, 11);
  OnGpu rounding(experts, cuda::Number::kF16, false, true);
  OnGpu few(experts, cuda::Number::kF16, true, true);
  OnGpu exact(experts, cuda::Number::kF16);
  const std::vector<float> found = rounding.run(all);
  const double of_rounding = decibels(found, few.run(all));
  const double of_all = decibels(found, exact.run(all));
  std::printf("%.1f dB from rounded in 16 bits, %.1f dB from exact\n", of_rounding, of_all);
  EXPECT_GT(of_rounding, 32);
  EXPECT_GT(of_all, 24);
  EXPECT_LT(of_all, 32);
}

TEST(GpuExperts, are_refused_by_name) {
  const auto backend = std::move(make_backend(gpu())).value();
  const auto expect_refused = [&](const TestExperts& experts, const std::string& part) {
    const auto found = backend->upload(experts.matrices);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, "linear.unsupported");
    EXPECT_NE(found.error().message.find(part), std::string::npos) << found.error().message;
  };
  expect_refused(random_experts({Format::kU4, Format::kF16, Zero::kU8, 24}, {}, 1),
                 "in its packed formats");
  TestExperts experts = random_experts(kMxfp4, {}, 1);
  experts.matrices.top_k = 9;
  expect_refused(experts, "expected 1 to 8 experts of a token, found 9");
  experts.matrices.top_k = 2;
  experts.matrices.down_bias.pop_back();
  expect_refused(experts, "a bias for each output of each expert, or none");
}

}  // namespace
}  // namespace subbyte::testing
