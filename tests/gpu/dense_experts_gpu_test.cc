// Mixtures of experts in f32, f16 and bf16 on the GPU, against the formula in double precision.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "base/float16.h"
#include "experts_formula.h"
#include "matrix/alternate_rows.h"
#include "model_on_gpu.h"

namespace subbyte::testing {
namespace {

constexpr WeightFormat kBrain = {Format::kBF16, Format::kNone, Zero::kNone, 0};
constexpr WeightFormat kHalf = {Format::kF16, Format::kNone, Zero::kNone, 0};
constexpr WeightFormat kFloat = {Format::kF32, Format::kNone, Zero::kNone, 0};

struct Kept {
  WeightFormat format;
  cuda::Number number;
};

/// What is multiplied exactly: numbers of the activations' type, and bf16 beside f16.
constexpr Kept kKept[] = {
    {kBrain, cuda::Number::kBF16}, {kBrain, cuda::Number::kF16}, {kHalf, cuda::Number::kF16}};

/// With weights of ordinary size gates are, too: products of 160 by 0.02.
TEST(GpuDenseExperts, match_the_formula_with_every_kernel) {
  for (const auto& [format, number] : kKept) {
    for (const int64_t top_k : {1, 4}) {
      TestExperts experts = random_experts(format, {}, 40 + top_k);
      experts.matrices.top_k = top_k;
      OnGpu on(experts, number);
      // small_m8, small_m16, small_m64, large_m128 and large_m256
      for (const int64_t tokens : {1, 3, 8, 9, 16, 17, 65, 300, 2100}) {
        expect_formula(experts, random_tokens(experts.sizes, tokens, number, tokens), number, on,
                       text_of(format, tokens, top_k));
      }
    }
  }
}

/// Rows that begin at any address, strips and tiles that are not whole.
TEST(GpuDenseExperts, of_odd_sizes) {
  for (const auto& [format, number] : kKept) {
    for (const Sizes& sizes : {Sizes{5, 100, 52}, Sizes{3, 264, 77}, Sizes{1, 33, 1}}) {
      const TestExperts experts = random_experts(format, sizes, 43);
      OnGpu on(experts, number);
      for (const int64_t tokens : {1, 12, 70, 300}) {
        expect_formula(experts, random_tokens(sizes, tokens, number, tokens), number, on,
                       text_of(format, tokens, experts.matrices.top_k));
      }
    }
  }
}

/// Rows as long as those of Qwen3-30B-A3B and longer: inputs come in chunks.
TEST(GpuDenseExperts, of_long_rows) {
  for (const Sizes& sizes : {Sizes{2, 2048, 768}, Sizes{2, 4096, 256}, Sizes{2, 320, 2880}}) {
    const TestExperts experts = random_experts(kBrain, sizes, 44);
    OnGpu on(experts, cuda::Number::kF16);
    for (const int64_t tokens : {1, 20, 130, 600}) {
      expect_formula(experts, random_tokens(sizes, tokens, cuda::Number::kF16, tokens),
                     cuda::Number::kF16, on, text_of(kBrain, tokens, 2));
    }
  }
}

/// 40 MiB of gates and 20 of the others: more than the uploader copies at once.
TEST(GpuDenseExperts, that_are_copied_in_parts) {
  const Sizes sizes = {20, 1024, 512};
  const TestExperts experts = random_experts(kBrain, sizes, 50);
  ASSERT_GT(sizes.experts * experts.matrices.gate_up[0].view.bytes(), device::Uploader::kSlotBytes);
  OnGpu on(experts, cuda::Number::kBF16);
  for (const int64_t tokens : {1, 40}) {
    expect_formula(experts, random_tokens(sizes, tokens, cuda::Number::kBF16, tokens),
                   cuda::Number::kBF16, on, text_of(kBrain, tokens, 4));
  }
}

/// As Qwen3-MoE has them: 128 experts, gate and up apart, no biases.
TEST(GpuDenseExperts, apart_without_bias_match_the_formula) {
  for (const auto& [format, number] : kKept) {
    TestExperts in_turns = random_experts(format, {128, 192, 96}, 45);
    in_turns.matrices.swiglu = {};
    in_turns.matrices.top_k = 8;
    in_turns.matrices.gate_up_bias.clear();
    in_turns.matrices.down_bias.clear();
    TestExperts apart;
    apart.sizes = in_turns.sizes;
    apart.format = format;
    apart.matrices = in_turns.matrices;
    apart.matrices.gate_up.clear();
    for (const Matrix& both : in_turns.matrices.gate_up) {
      apart.matrices.gate_up.push_back(every_second_row(both.view, 0));
      apart.matrices.gate_up.push_back(every_second_row(both.view, 1));
    }
    OnGpu on(apart, number);
    OnGpu other(in_turns, number);
    for (const int64_t tokens : {1, 7, 40, 300, 1100}) {
      const Inputs inputs = random_tokens(in_turns.sizes, tokens, number, tokens);
      expect_formula(in_turns, inputs, number, on, text_of(format, tokens, 8));
      expect_formula(in_turns, inputs, number, other, text_of(format, tokens, 8));
    }
  }
}

/// Weights that f16 would round, and some beyond its range, between inputs and results that it
/// holds.
TEST(GpuDenseExperts, of_bf16_beyond_the_range_of_f16) {
  TestExperts experts = random_experts(kBrain, {4, 160, 96}, 46);
  experts.matrices.gate_up_bias.clear();
  experts.matrices.down_bias.clear();
  experts.matrices.swiglu = {};
  for (std::size_t e = 0; e < experts.owners.size(); ++e) {
    const float factor = e % 2 != 0 ? 0x1p22f : 0x1p-12f;  // down, gate and up
    const std::span<std::byte> bytes = experts.owners[e].codes->span();
    for (std::size_t i = 0; i < bytes.size(); i += 2) {
      BFloat16 number;
      std::memcpy(&number, bytes.data() + i, 2);
      number = to_bfloat16(to_float(number) * factor);
      std::memcpy(bytes.data() + i, &number, 2);
    }
  }
  for (const cuda::Number number : kNumbers) {
    OnGpu on(experts, number);
    for (const int64_t tokens : {1, 20, 300}) {
      Inputs inputs = random_tokens(experts.sizes, tokens, number, tokens);
      for (float& x : inputs.x) x *= 256;
      expect_formula(experts, inputs, number, on, text_of(kBrain, tokens, 4));
    }
  }
}

/// f32 numbers that a checkpoint in bf16 was made of are the same experts.
TEST(GpuDenseExperts, of_f32_that_16_bits_hold_give_the_bits_of_those) {
  const TestExperts experts = random_experts(kBrain, {}, 47);
  TestExperts wide = random_experts(kFloat, {}, 47);
  for (std::size_t e = 0; e < experts.owners.size(); ++e) {
    const std::span<const std::byte> from = experts.owners[e].view.codes;
    for (std::size_t i = 0; i < from.size(); i += 2) {
      BFloat16 number;
      std::memcpy(&number, from.data() + i, 2);
      const float value = to_float(number);
      std::memcpy(wide.owners[e].codes->data() + 2 * i, &value, 4);
    }
  }
  for (const cuda::Number number : kNumbers) {
    OnGpu first(experts, number);
    OnGpu second(wide, number);
    for (const int64_t tokens : {1, 30, 300}) {
      const Inputs inputs = random_tokens(experts.sizes, tokens, number, tokens);
      EXPECT_EQ(first.run(inputs), second.run(inputs)) << tokens;
    }
  }
}

TEST(GpuDenseExperts, batch_invariant_results_do_not_depend_on_neighbours) {
  const TestExperts experts = random_experts(kBrain, {8, 320, 288}, 48);
  OnGpu on(experts, cuda::Number::kF16, true);
  const Inputs all = random_tokens(experts.sizes, 300, cuda::Number::kF16, 48);
  const std::vector<float> together = on.run(all);
  const auto rows = [](const std::vector<float>& from, int64_t cols, int64_t first, int64_t count) {
    return std::vector<float>(from.begin() + first * cols, from.begin() + (first + count) * cols);
  };
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {17, 1}, {40, 9}}) {
    const Inputs part = {count, rows(all.x, 320, first, count), rows(all.logits, 8, first, count)};
    EXPECT_EQ(on.run(part), rows(together, 320, first, count)) << first << ", " << count;
  }
}

TEST(GpuDenseExperts, that_would_be_rounded_are_refused_by_name) {
  for (const auto& [format, activations] :
       {std::pair(kFloat, Activations::kF32), std::pair(kFloat, Activations::kBF16),
        std::pair(kHalf, Activations::kBF16)}) {
    const auto backend = std::move(make_backend(gpu(activations))).value();
    const auto found = backend->upload(random_experts(format, {}, 49).matrices);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, "linear.unsupported");
    EXPECT_NE(found.error().message.find("weights of a matrix would be rounded as"),
              std::string::npos)
        << found.error().message;
  }
}

}  // namespace
}  // namespace subbyte::testing
