// Models with experts whose steps are one kernel, beside launches.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "gpu_linear.h"
#include "kernels/cuda/step/layout.h"
#include "model_on_gpu.h"
#include "near_experts.h"
#include "support/gguf_bytes.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "synth/synth.h"

namespace subbyte::testing {
namespace {

struct Tokens {
  std::vector<float> logits;  // [tokens][vocabulary]
  std::vector<bool> may_have_other_experts;
  std::string last_step;
};

Tokens token_by_token(const std::filesystem::path& folder, const DeviceOptions& options,
                      int64_t count, double stated) {
  const LoadedModel on = load(folder, options);
  TestContext context(*on.model, *on.backend, count, Element::kF16);
  const std::vector<int32_t> ids = random_tokens(on, count, 3);
  Tokens tokens;
  for (const int32_t& id : ids) append(tokens.logits, context.forward({&id, 1}));
  tokens.last_step = on.backend->last_step();
  tokens.may_have_other_experts = near_ties(on, ids, stated, Element::kF16);
  return tokens;
}

DeviceOptions with_step_kernel(int tokens) {
  DeviceOptions options = gpu();
  options.step_kernel_tokens = tokens;
  return options;
}

void expect_near(const Tokens& found, const Tokens& expected, int64_t count, double stated,
                 const std::string& what) {
  ASSERT_EQ(found.logits.size(), expected.logits.size());
  const std::size_t vocab = expected.logits.size() / count;
  int64_t others = 0;
  for (int64_t token = 0; token < count; ++token) {
    const double near = decibels(std::span(found.logits).subspan(token * vocab, vocab),
                                 std::span(expected.logits).subspan(token * vocab, vocab));
    const bool may_be_another = expected.may_have_other_experts[token];
    std::printf("%s, token %d: %.1f dB of %.1f%s\n", what.c_str(), static_cast<int>(token), near,
                stated, may_be_another ? ", near experts" : "");
    if (near >= stated) continue;
    EXPECT_TRUE(may_be_another) << what << ", token " << token << ": " << near << " dB";
    ++others;
  }
  EXPECT_LE(others, count / 8) << what;
}

/// The median token is as near as is stated, and no token more than `smallest` decibels less,
/// unless it may have other experts.
void expect_most_near(const Tokens& found, const Tokens& expected, int64_t count, double stated,
                      double smallest, const std::string& what) {
  ASSERT_EQ(found.logits.size(), expected.logits.size());
  const std::size_t vocab = expected.logits.size() / count;
  std::vector<double> all;
  for (int64_t token = 0; token < count; ++token) {
    const double near = decibels(std::span(found.logits).subspan(token * vocab, vocab),
                                 std::span(expected.logits).subspan(token * vocab, vocab));
    EXPECT_TRUE(near >= stated - smallest || expected.may_have_other_experts[token])
        << what << ", token " << token << ": " << near << " dB";
    all.push_back(near);
  }
  std::ranges::sort(all);
  std::printf("%s: %.1f dB in the median, %.1f to %.1f, stated %.1f\n", what.c_str(),
              all[all.size() / 2], all.front(), all.back(), stated);
  EXPECT_GE(all[all.size() / 2], stated) << what;
}

/// Both round activations between operations, one to 16 bits, one to 16 of significand. Tokens
/// whose experts are so near that this decides may be others; they are few.
TEST(GpuProgramExperts, are_near_those_that_are_launched) {
  constexpr int64_t kTokens = 24;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "subbyte_program_experts";
  for (const auto& [format, group] : {std::pair{"awq", 128}, {"awq", 64}, {"fp8", 128}}) {
    std::filesystem::remove_all(folder);
    ThreadPool pool(4);
    const Status made = synthesize(folder,
                                   {.arch = "qwen3-moe",
                                    .shape = "30b-a3b",
                                    .format = format,
                                    .layers = 2,
                                    .group_size = group},
                                   pool);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const double stated = of_layers(kF16Decibels, 2) - kOfDifferences;
    const Tokens one = token_by_token(folder, with_step_kernel(8), kTokens, stated);
    if (!cuda::StepLayout::supports(this_device(), 1)) GTEST_SKIP() << "no kernel of a step";
    EXPECT_EQ(one.last_step, "one kernel");
    const Tokens launched = token_by_token(folder, with_step_kernel(0), kTokens, stated);
    EXPECT_EQ(launched.last_step, "a graph");
    expect_near(one, launched, kTokens, stated, format + (" g" + std::to_string(group)));
  }
  std::filesystem::remove_all(folder);
}

/// Three layers of delta nets and one of attention whose heads have 256 numbers, experts beside one
/// that every token goes to. What a state has for a query that is nearly orthogonal to the keys
/// before it is small beside its rounding (delta_net_models_gpu_test.cc), so most tokens are as
/// near as is stated, and all within kSmallestDecibels of that.
TEST(GpuProgramExperts, beside_delta_nets_are_near_those_that_are_launched) {
  constexpr int64_t kTokens = 24;
  constexpr double kSmallestDecibels = 40;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "subbyte_program_delta_nets";
  for (const char* format : {"fp8", "awq"}) {
    std::filesystem::remove_all(folder);
    ThreadPool pool(4);
    const Status made = synthesize(
        folder, {.arch = "qwen3.5-moe", .shape = "35b-a3b", .format = format, .layers = 4}, pool);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const double stated = of_layers(kF16Decibels, 4) - kOfDifferences;
    const Tokens one = token_by_token(folder, with_step_kernel(8), kTokens, stated);
    if (!cuda::StepLayout::supports(this_device(), 1)) GTEST_SKIP() << "no kernel of a step";
    EXPECT_EQ(one.last_step, "one kernel");
    const Tokens launched = token_by_token(folder, with_step_kernel(0), kTokens, stated);
    EXPECT_EQ(launched.last_step, "a graph");
    expect_most_near(one, launched, kTokens, stated, kSmallestDecibels, format);
  }
  std::filesystem::remove_all(folder);
}

/// A small file of GGUF whose routers are F32, and whose layers have matrices of Q4_K, and of Q6_K
/// where `Q4_K_M` has them: the values' and down of one of two layers.
class MixtureOfTwoLevels {
 public:
  MixtureOfTwoLevels() {
    file_.text("general.architecture", "qwen3moe");
    for (const auto& [name, number] : {std::pair{"embedding_length", kHidden},
                                       {"block_count", kLayers},
                                       {"context_length", 64},
                                       {"feed_forward_length", kInner},
                                       {"expert_feed_forward_length", kInner},
                                       {"expert_count", kExperts},
                                       {"expert_used_count", 8},
                                       {"attention.head_count", kHeads},
                                       {"attention.head_count_kv", kKvHeads},
                                       {"attention.key_length", kHeadDim},
                                       {"attention.value_length", kHeadDim},
                                       {"vocab_size", kVocab}}) {
      file_.u32(std::string("qwen3moe.") + name, static_cast<uint32_t>(number));
    }
    file_.f32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6F);
    file_.f32("qwen3moe.rope.freq_base", 1e6F);
    floats("token_embd.weight", {kHidden, kVocab});
    floats("output_norm.weight", {kHidden});
    blocks("output.weight", {kHidden, kVocab}, kQ6K);
    for (uint64_t i = 0; i < kLayers; ++i) layer("blk." + std::to_string(i) + ".", i == 0);
  }

  std::string bytes() const { return file_.bytes(); }

 private:
  using Sizes = std::vector<uint64_t>;  // inputs first

  static constexpr uint64_t kHidden = 512;
  static constexpr uint64_t kInner = 256;
  static constexpr uint64_t kLayers = 2;
  static constexpr uint64_t kExperts = 32;
  static constexpr uint64_t kHeads = 8;
  static constexpr uint64_t kKvHeads = 2;
  static constexpr uint64_t kHeadDim = 64;
  static constexpr uint64_t kVocab = 256;
  static constexpr uint32_t kF32 = 0;
  static constexpr uint32_t kQ4K = 12;
  static constexpr uint32_t kQ6K = 14;
  static constexpr int kMiddleScale = 32;  // integers of scales are around it

  void layer(const std::string& name, bool has_more_bits) {
    const uint32_t more = has_more_bits ? kQ6K : kQ4K;
    for (const char* norm : {"attn_norm", "ffn_norm"}) floats(name + norm + ".weight", {kHidden});
    for (const char* norm : {"attn_q_norm", "attn_k_norm"}) {
      floats(name + norm + ".weight", {kHeadDim});
    }
    blocks(name + "attn_q.weight", {kHidden, kHeads * kHeadDim}, kQ4K);
    blocks(name + "attn_k.weight", {kHidden, kKvHeads * kHeadDim}, kQ4K);
    blocks(name + "attn_v.weight", {kHidden, kKvHeads * kHeadDim}, more);
    blocks(name + "attn_output.weight", {kHeads * kHeadDim, kHidden}, kQ4K);
    floats(name + "ffn_gate_inp.weight", {kHidden, kExperts});
    blocks(name + "ffn_gate_exps.weight", {kHidden, kInner, kExperts}, kQ4K);
    blocks(name + "ffn_up_exps.weight", {kHidden, kInner, kExperts}, kQ4K);
    blocks(name + "ffn_down_exps.weight", {kInner, kHidden, kExperts}, more);
  }

  void add(const std::string& name, const Sizes& sizes, uint32_t type, const std::string& data) {
    file_.place(name, sizes, type, file_.data.size());
    file_.data += data;
    file_.data.resize((file_.data.size() + file_.alignment - 1) / file_.alignment *
                      file_.alignment);
  }

  static uint64_t count(const Sizes& sizes) {
    uint64_t numbers = 1;
    for (const uint64_t size : sizes) numbers *= size;
    return numbers;
  }

  /// Norms around 1; matrices around 0.
  void floats(const std::string& name, const Sizes& sizes) {
    const float middle = sizes.size() == 1 ? 1 : 0;
    std::string data;
    for (uint64_t i = 0; i < count(sizes); ++i) {
      const auto of_byte = static_cast<float>(random_.below(1 << 20)) * 0x1p-19F - 1;
      data += raw(middle + of_byte / 8);
    }
    add(name, sizes, kF32, data);
  }

  void blocks(const std::string& name, const Sizes& sizes, uint32_t type) {
    const float deviation = 1 / std::sqrt(static_cast<float>(sizes[0]));
    std::string data;
    for (uint64_t i = 0; i < count(sizes) / 256; ++i) {
      data += type == kQ4K ? q4_k(deviation) : q6_k(deviation);
    }
    add(name, sizes, type, data);
  }

  std::string random_bytes(int count) {
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(random_.below(256));
    return bytes;
  }
  int random_scale() { return kMiddleScale / 2 + static_cast<int>(random_.below(kMiddleScale)); }

  /// Codes uniform in 0 to 15, less the mean of 7.5 by a minimum that has the integer of the scale.
  std::string q4_k(float deviation) {
    const float factor = deviation / (4.61F * kMiddleScale);
    std::string scales(12, '\0');
    for (int i = 0; i < 4; ++i) {
      const int low = random_scale();
      const int high = random_scale();
      scales[i] = scales[i + 4] = static_cast<char>(low | high >> 4 << 6);
      scales[i + 8] = static_cast<char>((high & 15) * 17);
    }
    return raw(to_float16(factor).bits) + raw(to_float16(7.5F * factor).bits) + scales +
           random_bytes(128);
  }

  std::string q6_k(float deviation) {
    std::string scales;
    for (int i = 0; i < 16; ++i) scales += static_cast<char>(random_scale());
    const float factor = deviation / (18.5F * kMiddleScale);
    return random_bytes(192) + scales + raw(to_float16(factor).bits);
  }

  GgufBytes file_;
  Random random_ = Random(5);
};

TEST(GpuProgramExperts, with_scales_of_two_levels_are_near_those_of_the_cpu) {
  constexpr int64_t kTokens = 24;
  const TempDir folder;
  const std::filesystem::path file = folder.write("model.gguf", MixtureOfTwoLevels().bytes());
  const double stated = of_layers(kF16Decibels, 2);
  const Tokens one = token_by_token(file, with_step_kernel(8), kTokens, stated);
  if (!cuda::StepLayout::supports(this_device(), 1)) GTEST_SKIP() << "no kernel of a step";
  EXPECT_EQ(one.last_step, "one kernel");
  const DeviceOptions cpu = {.device = "cpu", .num_threads = 4};
  expect_near(one, token_by_token(file, cpu, kTokens, stated), kTokens, stated, "the CPU");
  const Tokens launched = token_by_token(file, with_step_kernel(0), kTokens, stated);
  EXPECT_EQ(launched.last_step, "a graph");
  expect_near(one, launched, kTokens, stated - kOfDifferences, "launches");
}

}  // namespace
}  // namespace subbyte::testing
