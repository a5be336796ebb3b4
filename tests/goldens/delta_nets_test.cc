// Models of which some layers keep a state, with three short prompts and one of 220 tokens that
// transformers computed in chunks of 64: whole, cut at every border, token by token, from a shared
// prefix, after steps that were taken back, and pre-empted in mid-answer.
//
// The norm of each head's result keeps its relative error. Where a query and a key are nearly
// orthogonal, as may be among the first tokens, the result is a small difference of large
// products, down to sqrt(eps) = 1e-3 beside the usual 0.1. So the bound of golden_bound.h is that
// of the median token, and a single one may be off by kSmallest times as much.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "support/delta_net_models.h"
#include "support/golden_bound.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

constexpr double kSmallest = 100;

class DeltaNetModels : public testing::DeltaNetGoldens {
 protected:
  void start(bool batch_invariant) {
    const char* isa = std::getenv("SUBBYTE_ISA");
    start_on({.device = "cpu",
              .num_threads = 2,
              .isa = isa == nullptr ? "" : isa,
              .batch_invariant = batch_invariant},
             Element::kF32);
  }

  /// The largest difference of each token, from the smallest to the largest.
  std::vector<double> differences(std::span<const float> found,
                                  std::span<const float> expected) const {
    const auto vocab = static_cast<std::size_t>(model_->config().vocab_size);
    std::vector<double> worst(expected.size() / vocab);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double difference = std::abs(double{found[i]} - expected[i]);
      double& largest = worst[i / vocab];
      largest = difference <= largest ? largest : difference;  // NaN becomes the largest
    }
    std::ranges::sort(worst);
    return worst;
  }
};

TEST_P(DeltaNetModels, give_the_logits_and_the_greedy_tokens_of_the_reference) {
  start(false);
  const auto rounding =
      testing::rounding_of(testing::isa_of(*backend_), Activations::kF32, /*is_prompt=*/true);
  std::vector<double> of_tolerance;  // of each token
  for (const Prompt& prompt : prompts_) {
    const std::vector<float> found = logits_of_prompt(prompt);
    const double tolerance = testing::golden_tolerance(model_->config(), prompt.logits, rounding,
                                                       std::ssize(prompt.ids));
    for (const double worst :
         differences(std::span(found).last(prompt.logits.size()), prompt.logits)) {
      of_tolerance.push_back(worst / tolerance);
    }
    EXPECT_EQ(alone(prompt.ids), prompt.greedy);
  }
  // The median, as the state of the first tokens is a sum of few: what a query reads of it may be
  // small beside it, and its norm makes noise of that.
  std::ranges::sort(of_tolerance);
  EXPECT_LE(of_tolerance[of_tolerance.size() / 2], 1);
  EXPECT_LE(of_tolerance.back(), kSmallest);
}

TEST_P(DeltaNetModels, a_prompt_has_the_same_bits_wherever_it_is_cut) {
  start(true);
  expect_the_same_bits_wherever_it_is_cut();
}

TEST_P(DeltaNetModels, shared_prefixes_and_steps_taken_back_change_nothing) {
  start(true);
  expect_shared_prefixes_and_steps_taken_back_to_change_nothing();
}

TEST_P(DeltaNetModels, answers_that_are_pre_empted_go_on_with_the_same_tokens) {
  start(true);
  expect_pre_empted_answers_to_go_on_with_the_same_tokens();
}

INSTANTIATE_TEST_SUITE_P(Goldens, DeltaNetModels,
                         ::testing::ValuesIn(testing::goldens(testing::kStates)), NamedByValue());

}  // namespace
}  // namespace subbyte
