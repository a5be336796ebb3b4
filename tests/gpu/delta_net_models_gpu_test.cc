// Models of gated delta nets on the GPU: near the reference whole, token by token and in a batch,
// as launches, as graphs and beside the kernel of a step; and in batch-invariant mode the same bits
// however a prompt is cut, shared, taken back or pre-empted.
//
// The norm of each head's result keeps its relative error, and where a query and the keys before it
// are nearly orthogonal that is large (tests/goldens/delta_nets_test.cc). So the decibels that are
// stated for 16-bit activations are those of the median token, and a single one may have
// kSmallestDecibels less, as its state's results are that much smaller than usual ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "model_on_gpu.h"
#include "near_experts.h"
#include "support/delta_net_models.h"
#include "support/test_names.h"

namespace subbyte::testing {
namespace {

constexpr double kSmallestDecibels = 40;

class GpuDeltaNetModels : public DeltaNetGoldens {
 protected:
  std::filesystem::path folder() const override { return golden(GetParam()); }

  void start(const DeviceOptions& device) {
    start_on(device, device.activations == Activations::kBF16 ? Element::kBF16 : Element::kF16);
  }
  void start_invariant() {
    DeviceOptions options = gpu();
    options.batch_invariant = true;
    start(options);
  }

  int64_t vocab() const { return model_->config().vocab_size; }

  /// Adds the decibels of each token that the reference has logits of.
  void add_decibels(std::span<const float> found, std::span<const float> expected,
                    std::vector<double>& all) const {
    ASSERT_GE(found.size(), expected.size());
    const auto last = found.last(expected.size());
    for (std::size_t at = 0; at < expected.size(); at += vocab()) {
      all.push_back(decibels(last.subspan(at, vocab()), expected.subspan(at, vocab())));
    }
  }

  void expect_decibels(std::vector<double> all, double stated, const char* what) const {
    std::ranges::sort(all);
    const double median = all[all.size() / 2];
    std::printf("%s %s: %.1f dB, the worst of %zu tokens %.1f, stated %.1f\n", GetParam(), what,
                median, all.size(), all.front(), stated);
    EXPECT_GE(median, stated) << what;
    EXPECT_GE(all.front(), stated - kSmallestDecibels) << what;
  }

  std::vector<float> token_by_token(std::span<const int32_t> ids) {
    TestContext context(*model_, *backend_, kPositions, cache_type_);
    std::vector<float> logits;
    for (const int32_t& id : ids) testing::append(logits, context.forward({&id, 1}));
    return logits;
  }

  /// Where the reference continues its own greedy tokens, the logits of each are within kOfToken
  /// decibels of what is stated, unless experts of it or of one before it were that near; and the
  /// best tokens are those of the reference, unless that is so or two of its logits are that near.
  /// Greedy tokens are equal up to the first such one.
  void expect_greedy(const LoadedModel& cpu, double stated) {
    constexpr double kOfToken = 10;
    int compared = 0;
    int excused = 0;
    for (const Prompt& prompt : prompts_) {
      std::vector<int32_t> ids = prompt.ids;
      ids.insert(ids.end(), prompt.greedy.begin(), prompt.greedy.end() - 1);
      const auto exact = testing::logits_of(*cpu.model, *cpu.backend, ids);
      const auto found = testing::logits_of(*model_, *backend_, ids, cache_type_);
      const std::vector<bool> near_experts = near_ties(cpu, ids, stated - kOfToken);
      const std::vector<int32_t> tokens = alone(prompt.ids);
      ASSERT_EQ(tokens.size(), prompt.greedy.size());
      bool may_have_other_experts = false;
      bool may_differ = false;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto row = std::span(exact).subspan(i * vocab(), vocab());
        const auto near = std::span(found).subspan(i * vocab(), vocab());
        const double seen = decibels(near, row);
        may_have_other_experts = may_have_other_experts || near_experts[i];
        const bool is_off = seen < stated - kOfToken;
        if (i + 1 < prompt.ids.size()) continue;
        EXPECT_TRUE(!is_off || may_have_other_experts) << "token " << i << ": " << seen << " dB";
        const std::size_t at = i + 1 - prompt.ids.size();
        const bool is_excused =
            is_off || best_of(row).gap <= stated_difference(row, stated - kOfToken);
        ++compared;
        excused += is_excused;
        may_differ = may_differ || is_excused;
        if (!is_excused) {
          EXPECT_EQ(best_of(near).token, prompt.greedy[at]) << "token " << i;
        }
        if (!may_differ) {
          EXPECT_EQ(tokens[at], prompt.greedy[at]) << "token " << i;
        }
      }
    }
    // The two largest of n normal numbers are sqrt(2 ln n) to a deviation apart in the mean, as
    // exponentially distributed: so many gaps are more than is allowed, of which half must be.
    const double allowed = std::sqrt(2) * std::pow(10, -(stated - kOfToken) / 20);
    const double share = std::exp(-allowed * std::sqrt(2 * std::log(vocab())));
    std::printf("%s: %d of %d best tokens compared, %.0f expected\n", GetParam(),
                compared - excused, compared, share * compared);
    EXPECT_GE(compared - excused, share * compared / 2);
  }
};

TEST_P(GpuDeltaNetModels, are_near_the_reference_whole_and_token_by_token) {
  const LoadedModel cpu = load(folder(), {.device = "cpu"});
  for (const Activations activations : {Activations::kF32, Activations::kBF16}) {
    const bool is_bf16 = activations == Activations::kBF16;
    start(gpu(activations));
    const double stated =
        of_layers(is_bf16 ? kBF16Decibels : kF16Decibels, model_->config().num_layers);
    std::vector<double> whole, alone;
    for (const Prompt& prompt : prompts_) {
      add_decibels(logits_of_prompt(prompt), prompt.logits, whole);
      add_decibels(token_by_token(prompt.ids), prompt.logits, alone);
    }
    expect_decibels(whole, stated, is_bf16 ? "bf16 prompts" : "f16 prompts");
    expect_decibels(alone, stated, is_bf16 ? "bf16 token by token" : "f16 token by token");
    expect_greedy(cpu, stated);
  }
}

/// The kernel of a step has its part in the test before this one.
TEST_P(GpuDeltaNetModels, steps_of_one_token_are_the_same_as_launches_and_as_graphs) {
  std::vector<std::vector<float>> logits;
  std::vector<std::string> how;
  for (const bool has_graphs : {true, false}) {
    DeviceOptions options = gpu();
    options.step_kernel_tokens = 0;
    options.step_graphs = has_graphs;
    start(options);
    logits.push_back(token_by_token(ids_));
    how.push_back(backend_->last_step());
  }
  EXPECT_EQ(how, (std::vector<std::string>{"a graph", "launches"}));
  EXPECT_TRUE(logits[0] == logits[1]);
}

/// Four sequences of unequal lengths in each step, prompts beside single tokens.
TEST_P(GpuDeltaNetModels, sequences_of_a_batch_are_near_single_runs) {
  start(gpu());
  auto pool = model_->make_kv_pool(*backend_, cache_type_, {4 * kPositions, 4});
  ASSERT_TRUE(pool.ok());
  std::vector<Sequence> sequences;
  for (int i = 0; i < 4; ++i) sequences.emplace_back(*pool, kPositions);
  const int64_t steps[][4] = {{100, 1, 17, 30}, {1, 1, 1, 1}, {1, 60, 1, 2}, {1, 1, 1, 1}};
  std::vector<std::vector<float>> found(4);
  for (const auto& counts : steps) {
    std::vector<Part> parts;
    for (int i = 0; i < 4; ++i) {
      const auto rest = std::span<const int32_t>(ids_).subspan(sequences[i].length() + i);
      parts.push_back({&sequences[i], rest.first(counts[i]), counts[i]});
    }
    Logits logits;
    const Status status = model_->forward(*backend_, {parts}, logits);
    ASSERT_TRUE(status.ok()) << status.error().message;
    int64_t at = 0;
    for (int i = 0; i < 4; ++i) {
      testing::append(found[i], std::span(logits.values).subspan(at, counts[i] * vocab()));
      at += counts[i] * vocab();
    }
  }
  std::vector<double> all;
  for (int i = 0; i < 4; ++i) {
    const auto ids = std::span<const int32_t>(ids_).subspan(i, sequences[i].length());
    add_decibels(found[i], testing::logits_of(*model_, *backend_, ids, cache_type_), all);
  }
  const double stated = of_layers(kF16Decibels, model_->config().num_layers);
  expect_decibels(all, stated - kOfDifferences, "four sequences");
}

TEST_P(GpuDeltaNetModels, a_prompt_has_the_same_bits_wherever_it_is_cut) {
  start_invariant();
  expect_the_same_bits_wherever_it_is_cut();
}

TEST_P(GpuDeltaNetModels, shared_prefixes_and_steps_taken_back_change_nothing) {
  start_invariant();
  expect_shared_prefixes_and_steps_taken_back_to_change_nothing();
}

TEST_P(GpuDeltaNetModels, answers_that_are_pre_empted_go_on_with_the_same_tokens) {
  start_invariant();
  expect_pre_empted_answers_to_go_on_with_the_same_tokens();
}

INSTANTIATE_TEST_SUITE_P(Goldens, GpuDeltaNetModels, ::testing::ValuesIn(goldens(kStates)),
                         NamedByValue());

}  // namespace
}  // namespace subbyte::testing
