// Whole models on the GPU: the goldens, the demo model beside the CPU, several sequences in one
// step.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>

#include "checkpoints/containers/tensor_source.h"
#include "engine/generate.h"
#include "model_on_gpu.h"
#include "near_experts.h"
#include "support/shared_experts.h"
#include "support/test_context.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

using namespace testing;  // of tests/gpu/model_on_gpu.h

template <class T>
std::vector<T> read_tensor(const TensorSource& source, const std::string& name) {
  const FileTensor* tensor = source.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

std::vector<int32_t> greedy(const LoadedModel& on, std::span<const int32_t> prompt, int64_t count,
                            Element type) {
  testing::TestContext context(*on.model, *on.backend, std::ssize(prompt) + count, type);
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = count;
  std::vector<int32_t> tokens;
  value_of(
      generate(*on.model, *on.backend, context.sequence(), prompt, options, [&](int32_t token) {
        tokens.push_back(token);
        return true;
      }));
  return tokens;
}

class GpuGoldens : public ::testing::TestWithParam<const char*> {};

/// The best tokens are those of the reference where it continues its own greedy tokens, unless in
/// its logits (the CPU's, whose greedy tokens are the reference's) two tokens are nearer than the
/// error that is stated. Greedy tokens are equal up to one that went the other way there, or after
/// a token whose experts were that near.
void expect_greedy(const LoadedModel& on, const LoadedModel& cpu, const std::vector<int32_t>& ids,
                   const std::vector<int32_t>& expected, Element type) {
  std::vector<int32_t> tokens = ids;
  tokens.insert(tokens.end(), expected.begin(), expected.end() - 1);
  const auto reference = testing::logits_of(*cpu.model, *cpu.backend, tokens);
  const auto found = testing::logits_of(*on.model, *on.backend, tokens, type);
  const std::vector<int32_t> generated = greedy(on, ids, std::ssize(expected), type);
  const int64_t vocab = on.model->config().vocab_size;
  const double stated = of_layers(kF16Decibels, on.model->config().num_layers);
  const double allowed = stated_difference(reference, stated);
  const std::vector<bool> near_experts = near_ties(cpu, tokens, stated);
  bool tied = false;
  bool reads_others = false;  // where all tokens are read as a prompt
  bool may_have_other_experts = std::any_of(
      near_experts.begin(), near_experts.begin() + std::ssize(ids) - 1, std::identity());
  for (int64_t i = 0; i < std::ssize(expected); ++i) {
    const int64_t at = (std::ssize(ids) - 1 + i) * vocab;
    const Best exact = best_of(std::span(reference).subspan(at, vocab));
    EXPECT_EQ(exact.token, expected[i]);
    may_have_other_experts |= near_experts[std::ssize(ids) - 1 + i];
    tied = tied || (may_have_other_experts && generated[i] != expected[i]);
    if (exact.gap <= allowed) {
      std::printf("token %d: two logits are %.5f apart, %.5f are allowed\n", static_cast<int>(i),
                  exact.gap, allowed);
      tied = tied || generated[i] != expected[i];
      continue;
    }
    const int32_t read = best_of(std::span(found).subspan(at, vocab)).token;
    reads_others = reads_others || (may_have_other_experts && read != expected[i]);
    if (!reads_others) {
      EXPECT_EQ(read, expected[i]);
    }
    if (!tied) {
      EXPECT_EQ(generated[i], expected[i]);
    }
  }
}

/// Of `folder`, on a GPU beside the CPU; `model` is a directory or a file.
void expect_reference(const std::filesystem::path& model, const std::filesystem::path& folder) {
  const LoadedModel on = load(model, gpu());
  const LoadedModel cpu = load(model, {.device = "cpu"});
  const double stated = of_layers(kF16Decibels, on.model->config().num_layers);
  const auto source = TensorSource::open(folder / "reference.safetensors");
  ASSERT_TRUE(source.ok());
  int whole = 0;
  int runs = 0;
  for (const std::string prompt : {"prompt0", "prompt1", "prompt2"}) {
    const auto ids = read_tensor<int32_t>(*source, prompt + ".ids");
    const auto expected = read_tensor<float>(*source, prompt + ".logits");
    const std::vector<bool> tied = near_ties(cpu, ids, stated);
    {
      const Element type = Element::kF16;
      const auto together = testing::logits_of(*on.model, *on.backend, ids, type);
      whole += expect_decibels(together, expected, tied, stated);
      testing::TestContext context(*on.model, *on.backend, std::ssize(ids), type);
      std::vector<float> alone;
      for (const int32_t& id : ids) {
        const std::vector<float> one = context.forward({&id, 1});
        alone.insert(alone.end(), one.begin(), one.end());
      }
      whole += expect_decibels(alone, expected, tied, stated);
      runs += 2;
      std::printf("%s %s: prompt %.1f dB, token by token %.1f dB\n", folder.filename().c_str(),
                  prompt.c_str(), decibels(together, expected), decibels(alone, expected));
      expect_greedy(on, cpu, ids, read_tensor<int32_t>(*source, prompt + ".greedy"), type);
    }
  }
  EXPECT_GE(2 * whole, runs) << "tokens with other experts left too little to compare";
}

TEST_P(GpuGoldens, logits_and_greedy_tokens) {
  expect_reference(golden(GetParam()), golden(GetParam()));
}

class GpuGgufGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuGgufGoldens, logits_and_greedy_tokens) {
  expect_reference(gguf_golden(GetParam()) / "model.gguf", gguf_golden(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Architectures, GpuGgufGoldens, ::testing::ValuesIn(testing::kGgufGoldens),
                         NamedByValue());
/// Gate and up of experts, and of a dense block, are of two types.
INSTANTIATE_TEST_SUITE_P(Types, GpuGgufGoldens, ::testing::Values("types-two"), NamedByValue());

/// Experts with MXFP8 inputs, on both devices: rounding to 4 bits of significand lets numbers that
/// differ by f16's rounding differ by 2^-4, in a few of a thousand places.
TEST(GpuMxfp8, is_near_that_of_the_cpu_and_not_what_16_bits_give) {
  const LoadedModel on = load(golden("gpt-oss-mxfp4"), gpu(Activations::kMxfp8));
  const LoadedModel plain = load(golden("gpt-oss-mxfp4"), gpu());
  const LoadedModel cpu =
      load(golden("gpt-oss-mxfp4"), {.device = "cpu", .activations = Activations::kMxfp8});
  const auto source = TensorSource::open(golden("gpt-oss-mxfp4") / "reference.safetensors");
  ASSERT_TRUE(source.ok());
  for (const std::string prompt : {"prompt0", "prompt1", "prompt2"}) {
    const auto ids = read_tensor<int32_t>(*source, prompt + ".ids");
    const auto expected = testing::logits_of(*cpu.model, *cpu.backend, ids);
    const auto found = testing::logits_of(*on.model, *on.backend, ids, Element::kF16);
    const auto without = testing::logits_of(*plain.model, *plain.backend, ids, Element::kF16);
    std::printf("%s: %.1f dB from the CPU's, %.1f dB from 16 bits\n", prompt.c_str(),
                decibels(found, expected), decibels(found, without));
    EXPECT_GT(decibels(found, expected), decibels(without, expected)) << prompt;
    EXPECT_NE(found, without);
  }
}

TEST_P(GpuGoldens, bf16_activations) {
  const LoadedModel on = load(golden(GetParam()), gpu(Activations::kBF16));
  const auto source = TensorSource::open(golden(GetParam()) / "reference.safetensors");
  ASSERT_TRUE(source.ok());
  const auto ids = read_tensor<int32_t>(*source, "prompt0.ids");
  const auto expected = read_tensor<float>(*source, "prompt0.logits");
  const auto found = testing::logits_of(*on.model, *on.backend, ids, Element::kBF16);
  std::printf("%s: %.1f dB\n", GetParam(), decibels(found, expected));
  EXPECT_GT(decibels(found, expected), of_layers(kBF16Decibels, on.model->config().num_layers));
}

INSTANTIATE_TEST_SUITE_P(All, GpuGoldens, ::testing::ValuesIn(testing::goldens(testing::kGpu)),
                         NamedByValue());

TEST(GpuModels, shared_experts_add_up_with_those_of_the_routes) {
  for (const testing::ExpertAttributes& attributes : testing::expert_attributes()) {
    const testing::SharedExperts block(attributes);
    const std::vector<float> expected = block.expected();
    for (const auto& [activations, stated] :
         {std::pair{Activations::kF32, kF16Decibels}, {Activations::kBF16, kBF16Decibels}}) {
      const auto backend = make_backend(gpu(activations));
      ASSERT_TRUE(backend.ok()) << backend.error().message;
      EXPECT_GT(decibels(block.run(**backend), expected), of_layers(stated, 1)) << attributes.name;
    }
  }
}

TEST(GpuModels, the_demo_model_beside_the_cpu) {
  for (const int head_bits : {16, 4, 8}) {
    const LoadedModel cpu = load(demo(), {.device = "cpu"}, head_bits);
    const LoadedModel on = load(demo(), gpu(), head_bits);
    const std::vector<int32_t> prompt = {11, 500, 77, 1023, 4};
    std::vector<int32_t> tokens = prompt;
    const std::vector<int32_t> more = greedy(cpu, prompt, 400, Element::kF32);
    tokens.insert(tokens.end(), more.begin(), more.end());
    const auto expected = testing::logits_of(*cpu.model, *cpu.backend, tokens);
    testing::TestContext context(*on.model, *on.backend, std::ssize(tokens), Element::kF16);
    std::vector<float> found;
    for (std::size_t at = 0; at < tokens.size();) {  // a prompt, single tokens, prompts
      const std::size_t step = at == 0 ? 40 : at < 300 ? 1 : 33;
      const std::size_t count = std::min(step, tokens.size() - at);
      const auto part = context.forward(std::span(tokens).subspan(at, count));
      found.insert(found.end(), part.begin(), part.end());
      at += count;
    }
    const std::size_t vocab = cpu.model->config().vocab_size;
    int equal = 0;
    for (std::size_t first = 0; first < found.size(); first += vocab) {
      const auto best = [&](const std::vector<float>& all) {
        return std::max_element(all.begin() + first, all.begin() + first + vocab) - all.begin();
      };
      equal += best(found) == best(expected);
    }
    std::printf("head of %d bits: %.1f dB, %d of %zu best tokens equal\n", head_bits,
                decibels(found, expected), equal, tokens.size());
    EXPECT_GT(decibels(found, expected), kF16Decibels - kEightLayers);
  }
}

/// A conversation of a batch: all its tokens, and the logits of each so far.
struct Conversation {
  Sequence sequence;
  std::vector<int32_t> tokens;
  std::vector<float> logits;
};

void step(const LoadedModel& on, std::vector<Conversation>& all,
          const std::vector<int64_t>& counts) {
  std::vector<Part> parts;
  std::vector<Conversation*> owners;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int64_t length = all[i].sequence.length();
    const int64_t count = std::min(counts[i], std::ssize(all[i].tokens) - length);
    if (count == 0) continue;
    parts.push_back({&all[i].sequence, std::span(all[i].tokens).subspan(length, count), count});
    owners.push_back(&all[i]);
  }
  Logits logits;
  value_of(on.model->forward(*on.backend, {parts}, logits));
  int64_t row = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (int64_t t = 0; t < parts[i].num_logits; ++t, ++row) {
      const auto one = logits.row(row);
      owners[i]->logits.insert(owners[i]->logits.end(), one.begin(), one.end());
    }
  }
}

bool any_left(const std::vector<Conversation>& all) {
  return std::ranges::any_of(
      all, [](const Conversation& one) { return one.sequence.length() < std::ssize(one.tokens); });
}

/// Eight conversations in steps of random chunks; the last two begin with pages of the sixth.
std::vector<Conversation> run_eight(const LoadedModel& on, KvPool& pool) {
  Random random(11);
  const auto add_tokens = [&](Conversation& one, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      one.tokens.push_back(static_cast<int32_t>(random.below(on.model->config().vocab_size)));
    }
  };
  std::vector<Conversation> all;
  for (const int64_t length : {1, 5, 17, 130, 256, 300}) {
    all.push_back({Sequence(pool, 400), {}, {}});
    add_tokens(all.back(), length);
  }
  const auto run = [&] {
    while (any_left(all)) {
      std::vector<int64_t> counts;
      for (std::size_t i = 0; i < all.size(); ++i) {
        counts.push_back(random.below(2) == 0 ? 1 : 1 + static_cast<int64_t>(random.below(70)));
      }
      step(on, all, counts);
    }
  };
  run();
  const int64_t vocab = on.model->config().vocab_size;
  for (const int64_t length : {128, 201}) {
    const Conversation& parent = all[5];
    Conversation child = {parent.sequence.share(length), {}, {}};
    child.tokens.assign(parent.tokens.begin(), parent.tokens.begin() + length);
    child.logits.assign(parent.logits.begin(), parent.logits.begin() + length * vocab);
    all.push_back(std::move(child));
  }
  for (Conversation& one : all) add_tokens(one, 60);
  run();
  return all;
}

TEST(GpuModels, eight_sequences_are_near_single_runs) {
  for (const Element type : {Element::kF16, Element::kBF16}) {
    const LoadedModel on = load(golden("qwen3-awq"), gpu());
    auto pool = on.model->make_kv_pool(*on.backend, type, {40 * kPagePositions, 16});
    ASSERT_TRUE(pool.ok());
    double worst = INFINITY;
    for (const Conversation& one : run_eight(on, *pool)) {
      const auto alone = testing::logits_of(*on.model, *on.backend, one.tokens, type);
      worst = std::min(worst, decibels(one.logits, alone));
    }
    std::printf("eight sequences: worst %.1f dB\n", worst);
    // A cache in bf16 rounds eight times as much as f16, in both.
    EXPECT_GT(worst, (type == Element::kBF16 ? kBF16Decibels : kF16Decibels) - kOfDifferences);
  }
}

TEST(GpuModels, choose_the_tokens_of_their_logits) {
  const LoadedModel on = load(demo(), gpu());
  auto pool = on.model->make_kv_pool(*on.backend, Element::kF16, {8 * kPagePositions, 16});
  ASSERT_TRUE(pool.ok());
  const std::vector<int32_t> tokens = {11, 500, 77, 1023, 4, 900, 31};
  const TokenChoice drawn = {.temperature = 0.9,
                             .top_k = 40,
                             .min_p = 0.01,
                             .repetition_penalty = 1.3,
                             .uniform = 0.6,
                             .history = tokens};
  std::deque<Sequence> sequences;
  std::vector<Part> parts;
  const auto add = [&](int64_t count, int64_t num_logits, std::optional<TokenChoice> choice) {
    sequences.emplace_back(*pool, kPagePositions);
    parts.push_back({&sequences.back(), std::span(tokens).first(count), num_logits, choice});
  };
  add(7, 2, drawn);
  add(3, 0, std::nullopt);
  add(1, 1, TokenChoice{});
  add(7, 0, drawn);
  Logits logits;
  const Status status = on.model->forward(*on.backend, {parts}, logits);
  ASSERT_TRUE(status.ok()) << status.error().message;
  ASSERT_EQ(std::ssize(logits.values), 3 * on.model->config().vocab_size);
  TokenChooser chooser;
  const int32_t first = *chooser.choose(logits.row(1), drawn);
  const int32_t second = *chooser.choose(logits.row(2), {});
  EXPECT_EQ(logits.tokens, (std::vector<int32_t>{first, second, first}));
}

TEST(GpuModels, the_same_bits_in_every_run) {
  const LoadedModel on = load(demo(), gpu());
  const std::vector<int32_t> prompt = {11, 500, 77, 1023, 4, 900, 31};
  const auto first = testing::logits_of(*on.model, *on.backend, prompt, Element::kF16);
  const std::vector<int32_t> tokens = greedy(on, prompt, 64, Element::kF16);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(testing::logits_of(*on.model, *on.backend, prompt, Element::kF16), first);
    EXPECT_EQ(greedy(on, prompt, 64, Element::kF16), tokens);
  }
}

/// Rounding to e4m3 costs on the GPU what it costs on the CPU: 16-bit activations and a cache whose
/// numbers were rounded the other way here and there add less than as much again.
TEST(GpuModels, a_cache_in_e4m3_beside_the_cpu) {
  for (const char* name : {"qwen3-awq", "qwen3-bf16"}) {
    const LoadedModel cpu = load(golden(name), {.device = "cpu"});
    const LoadedModel on = load(golden(name), gpu());
    Random random(21);
    std::vector<int32_t> tokens(200);
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(random.below(on.model->config().vocab_size));
    }
    const auto exact = testing::logits_of(*cpu.model, *cpu.backend, tokens);
    const auto on_cpu = testing::logits_of(*cpu.model, *cpu.backend, tokens, Element::kE4M3);
    const auto on_gpu = testing::logits_of(*on.model, *on.backend, tokens, Element::kE4M3);
    testing::TestContext context(*on.model, *on.backend, 200, Element::kE4M3);
    std::vector<float> alone;
    for (const int32_t& token : tokens) {
      const std::vector<float> one = context.forward({&token, 1});
      alone.insert(alone.end(), one.begin(), one.end());
    }
    const double allowed = decibels(on_cpu, exact) - kOfDifferences;
    std::printf("%s: e4m3 on the CPU %.1f dB, on the GPU %.1f, token by token %.1f\n", name,
                decibels(on_cpu, exact), decibels(on_gpu, exact), decibels(alone, exact));
    EXPECT_GT(decibels(on_gpu, exact), allowed);
    EXPECT_GT(decibels(alone, exact), allowed);
  }
}

LoadedModel load_invariant(const char* name, Activations activations = Activations::kF32) {
  DeviceOptions options = gpu(activations);
  options.batch_invariant = true;
  return load(golden(name), options);
}

TEST(GpuModels, batch_invariant_logits_do_not_depend_on_how_a_prompt_is_cut) {
  for (const char* name : testing::goldens(testing::kKind)) {
    const LoadedModel on = load_invariant(name);
    const auto source = TensorSource::open(golden(name) / "reference.safetensors");
    ASSERT_TRUE(source.ok());
    const auto ids = read_tensor<int32_t>(*source, "prompt0.ids");
    EXPECT_GT(decibels(testing::logits_of(*on.model, *on.backend, ids, Element::kF16),
                       read_tensor<float>(*source, "prompt0.logits")),
              of_layers(kF16Decibels, on.model->config().num_layers));
    Random random(22);
    std::vector<int32_t> tokens(700);
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(random.below(on.model->config().vocab_size));
    }
    for (const Element type : {Element::kF16, Element::kE4M3}) {
      std::vector<float> first;
      for (const std::size_t chunk : {1, 7, 64, 512}) {
        testing::TestContext context(*on.model, *on.backend, std::ssize(tokens), type);
        std::vector<float> all;
        for (std::size_t at = 0; at < tokens.size(); at += chunk) {
          const std::size_t count = std::min(chunk, tokens.size() - at);
          const auto part = context.forward(std::span(tokens).subspan(at, count));
          all.insert(all.end(), part.begin(), part.end());
        }
        if (first.empty()) first = all;
        EXPECT_TRUE(all == first) << name << " in chunks of " << chunk;
      }
    }
  }
}

TEST(GpuModels, batch_invariant_logits_do_not_depend_on_neighbours) {
  for (const Activations activations : {Activations::kF32, Activations::kBF16}) {
    for (const Element type : {Element::kF16, Element::kE4M3}) {
      const LoadedModel on = load_invariant("qwen3-awq", activations);
      auto pool = on.model->make_kv_pool(*on.backend, type, {40 * kPagePositions, 16});
      ASSERT_TRUE(pool.ok());
      for (const Conversation& one : run_eight(on, *pool)) {
        EXPECT_TRUE(testing::logits_of(*on.model, *on.backend, one.tokens, type) == one.logits)
            << one.tokens.size() << " tokens";
      }
    }
  }
}

TEST(GpuModels, says_that_there_is_no_such_gpu) {
  const auto backend = make_backend({.device = "cuda:99"});
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.error().code, "cuda.device");
  EXPECT_EQ(make_backend({.device = "cuda:x"}).error().code, "device.unknown");
}

}  // namespace
}  // namespace subbyte
